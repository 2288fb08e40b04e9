"""The bench: every plan on the shelf, as it is there, on every log, asked in one way. A row is kept as soon as it is made.

A second run goes on where the first ended; a plan, a log or a size that has changed makes its rows again.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tacit.errors import PlanError, unknown
from tacit.lab.data.datasets import about_dataset
from tacit.lab.experiments.bench.logs import PLACES, SIZES, Place
from tacit.lab.experiments.bench.logs import place as place
from tacit.lab.experiments.bench.results import make as make
from tacit.lab.experiments.bench.store import Book as Book
from tacit.lab.experiments.bench.worker import Worker
from tacit.lab.plans.loader import load_plan, plan_names


@dataclass(frozen=True)
class Options:
    """What a person may ask for; nothing named is everything that is there."""

    data: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    size: str = "small"  # "small": some of the people; "paper": all of them
    limit: float | None = None  # seconds that a row may take
    quiet: bool = True


def bench(options: Options, out: str | Path) -> Book:
    """Make every row that the file does not hold yet, and keep each at once."""
    names = _known(options.plans, plan_names(), "The shelf", "plan")
    plans = [load_plan(name) for name in names]
    data = _known(options.data, PLACES, "The bench", "log")
    if options.size not in SIZES:
        raise PlanError(f"The size of the bench must be {' or '.join(SIZES)}, got {options.size!r}.")
    book = Book.open(Path(out), options.size)
    with Worker(options.size, options.limit) as worker:
        for where in _there(data, options):
            for plan, seed in product(plans, options.seeds):
                if not book.holds(where, plan, seed, options.limit):
                    _say(f"{where.name}: {plan.name}, seed {seed}", options.quiet)
                    book.write(worker.make(plan, where, seed))
    return book


def _there(names: Iterable[str], options: Options) -> Iterator[Place]:
    """The logs named; those of the standing list that are not on this machine are passed over."""
    for name in names:
        if options.data or about_dataset(name).present:
            yield place(name, options.size)
        else:
            _say(f"{name} is not here: tacit data get {name}", options.quiet)


def _known(asked: Sequence[str], known: Sequence[str], where: str, what: str) -> Sequence[str]:
    for name in asked:
        if name not in known:
            raise PlanError(unknown(where, name, known, what))
    return asked or known


def _say(words: str, quiet: bool) -> None:
    if not quiet:
        print(words, file=sys.stderr, flush=True)
