"""The published sizes: each row, or line of a figure, in a process of its own, several side by side; what is made is kept.

python benchmarks/paper_size.py fedseqrec FOLDER [--jobs 6] [--only MovieData]
python benchmarks/paper_size.py privrec FOLDER [--jobs 6]

Answers lie in FOLDER, one file for each plan and log; a second call makes those that are missing. Tables and figures whose
answers are all there are put into results/reproduce-PAPER-paper.json in place of what they had; other parts stay as they
were. On one GPU, processes take turns unless CUDA's multi-process service runs (`nvidia-cuda-mps-control -d`).

fedseqrec   Tables 3 and 4
privrec     Figure 3 by rounds, and Figure 4
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import RESULTS

from tacit.core.plan import Plan
from tacit.core.run_folder import plain, write_json
from tacit.lab.data import Population
from tacit_papers import Figure, Options, Table, fedseqrec, paper, privrec
from tacit_papers.fedseqrec.study import CENTRAL, ROWS
from tacit_papers.privrec.printed import TABLE2
from tacit_papers.privrec.stages import NOISY, noisy_plan
from tacit_papers.privrec.study import by_round, plan_of

Answers = dict[str, np.ndarray]
SEED = 0


class Job(NamedTuple):
    """A plan on a log: what it answers."""

    plan: Plan
    people: Population
    make: Callable[[], Answers]


class Sequences:
    """FedSeqRec: a job for each row of each log."""

    def __init__(self, only: str):
        self.paper = fedseqrec.Paper(Options(size="paper", seeds=(SEED,)))
        self.logs = [log for log in self.paper.logs if only in log.paper]

    def jobs(self) -> dict[str, Job]:
        """By name."""
        rows = dict.fromkeys((*ROWS, *CENTRAL))
        return {f"{log.paper} {row}": self._job(log, row) for log in self.logs for row in rows}

    def _job(self, log: Any, row: str) -> Job:
        study = self.paper.studies[log.paper]

        def make() -> Answers:
            study.add(row, (SEED,))
            return study.values[row]

        return Job(fedseqrec.plan_of(row, log), log.people, make)

    def parts(self, kept: Mapping[str, Answers]) -> Iterator[Table | Figure]:
        """Those whose rows are all there."""
        for log in self.logs:
            study = self.paper.studies[log.paper]
            for row in (*ROWS, *CENTRAL):
                if f"{log.paper} {row}" in kept:
                    study.values[row] = kept[f"{log.paper} {row}"]
                    study.digests[row] = fedseqrec.plan_of(row, log).digest
            if set(ROWS) <= set(study.values):
                yield self.paper.ranking(log)
                if set(CENTRAL) <= set(study.values):
                    yield self.paper.pooled(log)


class People:
    """PrivRec: a job for the run that is looked at on its way, and for each line with noise."""

    def __init__(self, only: str):
        self.paper, self.only = privrec.Paper(Options(size="paper", seeds=(SEED,))), only
        size = self.paper.movies.size
        self.wanted, self.longest = size.rounds, plan_of("PrivRec", size, {"rounds": max(size.rounds)})

    def jobs(self) -> dict[str, Job]:
        """By name."""
        people = self.paper.movies.people
        lines = {row: Job(self._plan(row), people, partial(self._line, row)) for row in NOISY}
        jobs = {"rounds": Job(self.longest, people, self._rounds), **lines}
        return {name: job for name, job in jobs.items() if self.only in name}

    def _rounds(self) -> Answers:
        found = by_round(self.paper.movies, self.longest, SEED, self.wanted)
        return {str(at): np.array(value) for at, value in found.items()}

    def _line(self, row: str) -> Answers:
        return self.paper.movies.values(self._plan(row), SEED)

    def _plan(self, row: str) -> Plan:
        return noisy_plan(row, self.paper.movies, len(self.paper.movies.split(SEED).train))

    def parts(self, kept: Mapping[str, Answers]) -> Iterator[Table | Figure]:
        """Those whose lines are all there."""
        known = self.paper.movies.known
        if "rounds" in kept:
            curve = {int(at): float(value) for at, value in kept["rounds"].items()}
            known[self.longest.digest, SEED, self.wanted] = curve
            yield self.paper.rounds("Figure 3", self.paper.movies)
        if set(NOISY) <= set(kept):
            known.update({(self._plan(row).digest, SEED): kept[row] for row in NOISY})
            yield self.paper.with_noise(4, self.paper.movies, TABLE2)


PAPERS = {"fedseqrec": Sequences, "privrec": People}


def side_by_side(names: list[str], folder: Path, options: argparse.Namespace) -> None:
    """Each in a process of its own, so many at a time."""
    waiting, running = list(names), {}
    alone = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            again = [sys.executable, __file__, options.paper, str(folder), "--one", name]
            running[name] = subprocess.Popen(again, env=alone), time.perf_counter()
        for name, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                print(f"{name}: exit {process.returncode}, {time.perf_counter() - began:.0f} s", flush=True)
        time.sleep(0.5)


def keep(path: Path, answers: Answers) -> None:
    """Whole or not at all."""
    unfinished = path.with_suffix(".part.npz")
    np.savez(unfinished, **answers)  # pyright: ignore[reportArgumentType]
    unfinished.replace(path)


def put(name: str, parts: list[Table | Figure]) -> None:
    """Into the kept file, each in the place of the part of its title, all in the paper's order."""
    path = RESULTS / f"reproduce-{name}-paper.json"
    kept = json.loads(path.read_text()) if path.is_file() else {"paper": name, "size": "paper", "seeds": 1, "parts": []}
    made = [plain(part.to_dict()) for part in parts]
    found = {(part["name"], part["title"]): part for part in (*kept["parts"], *made)}
    order = list(paper(name).PARTS)
    kept["parts"] = sorted(found.values(), key=lambda part: (order.index(part["name"]), part["title"]))
    write_json(path, kept)
    print(f"{', '.join(part['title'] for part in made) or 'nothing whole yet'}: benchmarks/results/{path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=PAPERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", default="", help="a part of the names of jobs; for fedseqrec, of the log's")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    work = PAPERS[options.paper]("" if options.one else options.only)
    jobs = work.jobs()
    if not jobs:
        parser.error(f"--only must be a part of the name of a job, got {options.only!r}; leave it out for all.")
    where = {name: options.folder / f"{job.plan.digest}-{job.people.digest}.npz" for name, job in jobs.items()}
    if options.one:
        return keep(where[options.one], jobs[options.one].make())
    side_by_side([name for name, path in where.items() if not path.is_file()], options.folder, options)
    kept = {name: dict(np.load(path)) for name, path in where.items() if path.is_file()}
    put(options.paper, list(work.parts(kept)))
    sys.exit(len(kept) < len(jobs))


if __name__ == "__main__":
    main()
