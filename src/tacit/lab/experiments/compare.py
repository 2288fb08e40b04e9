"""Comparison of plans, or of settings of a plan, on the same test cases and the same seeds."""

import json
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.core.run_folder import Folder, write_json
from tacit.errors import PlanError, RunError, unknown
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data import Population
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.evaluation.protocols import EvaluationResult, Protocol, load_protocol
from tacit.lab.evaluation.splits import LeakWarning, Split
from tacit.lab.experiments.comparison import Comparison
from tacit.lab.experiments.trial import Trial
from tacit.lab.experiments.variants import Variant, check_fit, sweep_variants
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import Run, simulate


def compare(
    plans: Sequence[Plan | str | Path],
    log: Log,
    protocol: str = "full",
    seeds: Sequence[int] = (0,),
    sweep: Mapping[str, Sequence[Any]] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    repeats: str | None = None,
    ties: str = "file",
    reference: str | None = None,
    out: str | Path | None = None,
    quiet: bool | None = None,
) -> Comparison:
    """Run plans on one split of a log and evaluate all of them on the same test cases.

    The first seed determines the split and the candidates, once for all; each seed is a run: its initial parameters,
    cohorts and noise. Invalid plans and folders are refused before anything runs.

    Args:
        plans: what to run: plans, names of built-in ones, or TOML files.
        log: the histories of all users: a table, a file, the name of a dataset, or a population.
        protocol: how to split and to evaluate.
        seeds: every plan runs once for each.
        sweep: setting -> values; every plan runs with every combination of those it has.
        settings: changes to every plan that has them.
        repeats: evaluate "new" items only, or "all" test cases; by default what fits the log (see `load_protocol`).
        ties: the order of events of a user with equal time stamps: that of the "file", or a "random" draw.
        reference: the name of the plan the others are compared with; the first one by default.
        out: a folder that gets a run folder for each plan and seed. A finished run there is not repeated, and an
            interrupted one is resumed.
        quiet: no progress bar; by default there is one on a terminal.
    """
    loaded, seeds = load_protocol(protocol, repeats=repeats, ties=ties), _distinct(seeds)
    variants, notes = sweep_variants(_plans(plans), sweep or {}, settings)
    chosen = _reference(variants, reference)
    split = checked_split(loaded, as_population(log, [variant.plan for variant in variants]), seeds[0])
    for variant in variants:
        check_fit(variant, split.train)
    jobs, digest = list(_jobs(variants, seeds, out)), split.train.digest
    for job in jobs:
        job.check(digest)
    trials: dict[str, list[Trial]] = {variant.name: [] for variant in variants}
    for number, job in enumerate(jobs, 1):
        _print_progress(f"{job.variant.name}, seed {job.seed} ({number} of {len(jobs)})", quiet)
        trials[job.variant.name].append(job.run(loaded, split, seeds[0], quiet, notes))
    all_notes = (*split.train.notes, *split.notes, *notes)
    made = {name: tuple(some) for name, some in trials.items()}
    found = Comparison(seeds, tuple(variants), made, chosen, tuple(dict.fromkeys(all_notes)))
    if out is not None:
        write_json(Path(out) / "comparison.json", found.to_dict())
    return found


def checked_split(protocol: Protocol, log: Population, seed: int) -> Split:
    """A protocol's split, after checking that its test cases have candidates; a leak is noted in the split."""
    with collect_warnings([]):
        split = protocol.split(log, seed)
    protocol.make_candidates(split, seed)
    return split


class _Job:
    """One plan with one seed: a run to be made, or one in a folder."""

    def __init__(self, variant: Variant, seed: int, folder: Path | None):
        self.variant, self.seed, self.path = variant, seed, folder
        self.resumes = folder is not None and Folder(folder).exists

    def check(self, log_digest: str) -> None:
        """Refuse a folder that holds another run."""
        if self.path is None or not self.resumes:
            return
        before = json.loads(Folder(self.path).read("environment.json"))
        found = {"plan": before["plan_digest"], "seed": before["seed"], "log": before["population"]["digest"]}
        wanted = {"plan": self.variant.plan.digest, "seed": self.seed, "log": log_digest}
        for name, value in wanted.items():
            if found[name] != value:
                raise RunError(
                    f"{self.path} holds a run of another {name}: {found[name]}, this one's is {value}; name another "
                    "folder, or take this one away."
                )

    def run(self, protocol: Protocol, split: Split, seed_of_split: int, quiet: bool | None, notes: list[str]) -> Trial:
        """The trial; warnings about the plan and its evaluation become notes."""
        results: list[EvaluationResult] = []

        def evaluate(run: Run) -> dict[str, float]:
            results.append(protocol.evaluate(run, split, seed_of_split))
            return results[-1].metrics

        began, before = time.perf_counter(), self._seconds()
        warned: list[str] = []
        with collect_warnings(warned):
            run = simulate(
                self.variant.plan,
                split.train,
                seed=self.seed,
                out=self.path,
                resume=self.resumes,
                evaluate=evaluate,
                quiet=quiet,
            )
        notes += [f"{self.variant.name}: {words}" for words in (*warned, *results[-1].warnings)]
        run.split, run.evaluation = split, results[-1]
        return Trial(run, results[-1], before + time.perf_counter() - began)

    def _seconds(self) -> float:
        """The seconds of the finished rounds in the folder."""
        if self.path is None or not self.resumes:
            return 0.0
        folder = Folder(self.path)
        return sum(row["seconds"] for row in folder.rows() if row["done"] <= (folder.latest() or 0))


@contextmanager
def collect_warnings(notes: list[str]) -> Iterator[None]:
    """Collect warnings that a plan is likely to learn nothing; leaks are in the notes of a split; others pass through."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FeasibilityWarning)
        warnings.simplefilter("always", LeakWarning)
        yield
    for one in caught:
        if issubclass(one.category, FeasibilityWarning):
            notes.append(str(one.message))
        elif not issubclass(one.category, LeakWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _jobs(variants: Sequence[Variant], seeds: Sequence[int], out: str | Path | None) -> Iterator[_Job]:
    """Every run with its folder, named by the plan, in characters valid in a file name, and the seed."""
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise RunError(f"{out} is a file; name a folder for the runs.")
    taken: set[str] = set()
    for variant in variants:
        name = re.sub(r"[^\w.=,-]+", "_", variant.name).strip("_")
        name = f"{name}-{variant.plan.digest[:8]}" if name.lower() in taken else name
        taken.add(name.lower())
        for seed in seeds:
            yield _Job(variant, seed, None if out is None else Path(out) / f"{name}-seed{seed}")


def _plans(plans: Sequence[Plan | str | Path]) -> list[Plan]:
    if not plans:
        raise PlanError("A comparison needs at least one plan, got none; name one, or several.")
    return [one if isinstance(one, Plan) else load_plan(one) for one in plans]


def _distinct(seeds: Sequence[int]) -> tuple[int, ...]:
    if not seeds or len(set(seeds)) < len(seeds):
        raise PlanError(f"A comparison needs one or more different seeds, got {list(seeds)}.")
    return tuple(int(seed) for seed in seeds)


def _reference(variants: Sequence[Variant], name: str | None) -> str:
    names = [variant.name for variant in variants]
    if name is not None and name not in names:
        raise PlanError(unknown("The comparison", name, names, "plan"))
    return names[0] if name is None else name


def _print_progress(words: str, quiet: bool | None) -> None:
    if not (not sys.stderr.isatty() if quiet is None else quiet):
        print(words, file=sys.stderr)
