"""The bench: every built-in plan on every log of the bench, under one protocol. A row is saved as soon as it is made.

A second run makes only what is missing; a plan, a log or a size that has changed makes its rows again.
"""

import json
import math
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.core.run_folder import plain, write_text
from tacit.errors import PlanError, RunError, unknown
from tacit.lab.data.datasets import about_dataset
from tacit.lab.experiments.bench.rows import (
    LOGS,
    PROTOCOL,
    SIZES,
    BenchLog,
    bench_log,
    measure,
    missing_row,
    why_not,
)
from tacit.lab.plans.loader import load_plan, plan_names


@dataclass(frozen=True)
class BenchOptions:
    """Options of the bench; by default all logs on this machine and all built-in plans."""

    data: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    size: str = "small"  # "small": a sample of the users; "paper": all of them
    limit: float | None = None  # seconds for a row
    quiet: bool = True


def bench(options: BenchOptions, out: str | Path) -> "ResultsFile":
    """Make every row that the file does not have yet, and save each at once."""
    names = _known(options.plans, plan_names(), "Tacit", "plan")
    plans = [load_plan(name) for name in names]
    data = _known(options.data, LOGS, "The bench", "log")
    if options.size not in SIZES:
        raise PlanError(f"The size of the bench must be {' or '.join(SIZES)}, got {options.size!r}.")
    results = ResultsFile.open(Path(out), options.size)
    with Worker(options.size, options.limit) as worker:
        for log in _present(data, options):
            for plan, seed in product(plans, options.seeds):
                if not results.holds(log, plan, seed, options.limit):
                    _print_progress(f"{log.name}: {plan.name}, seed {seed}", options.quiet)
                    results.write(worker.make(plan, log, seed))
    return results


def _present(names: Iterable[str], options: BenchOptions) -> Iterator[BenchLog]:
    """The named logs; of the default list, those on this machine."""
    for name in names:
        if options.data or about_dataset(name).present:
            yield bench_log(name, options.size)
        else:
            _print_progress(f"{name} is not here: tacit data get {name}", options.quiet)


def _known(names: Sequence[str], known: Sequence[str], where: str, what: str) -> Sequence[str]:
    for name in names:
        if name not in known:
            raise PlanError(unknown(where, name, known, what))
    return names or known


def _print_progress(words: str, quiet: bool) -> None:
    if not quiet:
        print(words, file=sys.stderr, flush=True)


# ---- the results file ----


class ResultsFile:
    """Rows by log, plan and seed, in a file that is rewritten after every row."""

    def __init__(self, path: Path, size: str, rows: dict[str, dict[str, Any]]):
        self.path, self.size, self.rows = path, size, rows

    @classmethod
    def open(cls, path: Path, size: str) -> "ResultsFile":
        """The rows of a file, or a new one; a file of another size, or of another kind, is refused."""
        if not path.exists():
            return cls(path, size, {})
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            rows, before = {_key(row): row for row in found["rows"]}, found["size"]
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{path} holds no rows of the bench; name another file with --out.") from None
        if before != size:
            raise RunError(f"{path} holds rows of size {before}, these are {size}; name another file with --out.")
        return cls(path, size, rows)

    def holds(self, log: BenchLog, plan: Plan, seed: int, limit: float | None = None) -> bool:
        """Whether the row exists for this plan and this log; one that ran out of time is repeated with a larger limit."""
        row = self.rows.get(f"{log.name}/{plan.name}/{seed}")
        if row is None or row.get("limit", math.inf) < (math.inf if limit is None else limit):
            return False
        return (row["digest"], row["people"]) == (plan.digest, log.log.digest)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row and save the file."""
        self.rows[_key(row)] = row
        self.save()

    def save(self) -> None:
        """Write the file: one line a row, so that a change of a row is a change of a line."""
        head, rows = {**self.to_dict(), "rows": []}, self.to_dict()["rows"]
        lines = ",\n".join(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows)
        text = json.dumps(plain(head), ensure_ascii=False).removesuffix("[]}") + f"[\n{lines}\n]}}\n"
        write_text(self.path, text)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: size, protocol, and every row in order."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        return {"size": self.size, "protocol": PROTOCOL.name, "about": PROTOCOL.about, "rows": rows}


def _key(row: dict[str, Any]) -> str:
    return f"{row['data']}/{row['plan']}/{row['seed']}"


# ---- the worker process ----

_KILLED = "the system ended it; most often there was too little memory"


class Worker:
    """Makes rows one after another, in a process of its own if there is a limit; one over `limit` seconds is given up."""

    def __init__(self, size: str, limit: float | None):
        self.size, self.limit = size, limit
        self._process: Any = None
        self._connection: Any = None  # its type depends on the system

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop()

    def make(self, plan: Plan, log: BenchLog, seed: int) -> dict[str, Any]:
        """The row, or one that says that it took too long."""
        if self.limit is None or why_not(plan, log):
            return measure(plan, log, seed)
        connection = self._connection or self._start(log.name)
        connection.send((plan.to_dict(), log.name, seed))
        try:
            if connection.poll(self.limit):
                return connection.recv()
        except EOFError:
            self._stop()
            return missing_row(plan, log, seed, _KILLED, limit=self.limit)
        self._stop()
        return missing_row(plan, log, seed, f"more than {self.limit:g} seconds here", limit=self.limit)

    def _start(self, name: str) -> Any:
        """A process that loads the log before the time limit starts."""
        fresh = multiprocessing.get_context("spawn")
        self._connection, theirs = fresh.Pipe()
        self._process = fresh.Process(target=_serve, args=(theirs, self.size), daemon=True)
        self._process.start()
        theirs.close()
        self._connection.send(name)
        self._connection.recv()
        return self._connection

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None


def _serve(connection: Any, size: str) -> None:
    """The process: returns the row of every job."""
    known = cache(lambda name: bench_log(name, size))
    connection.send(known(connection.recv()).name)
    while True:
        try:
            plan, name, seed = connection.recv()
        except EOFError:  # the parent has ended
            return
        connection.send(measure(Plan.from_dict(plan), known(name), seed))
