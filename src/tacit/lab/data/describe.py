"""Statistics of a log, as numbers and as tables in the terminal."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit.lab.data import Population
from tacit.lab.evaluation.repeats import choose_repeats, percent, repeat_share
from tacit.lab.evaluation.sessions import tied_events

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
TAIL = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
PERIODS = 12


@dataclass(frozen=True)
class LogStatistics:
    """Statistics of a log. `tail` maps a share of the items, most popular first, to their share of the events."""

    users: int
    items: int
    events: int
    density: float  # distinct (user, item) pairs over all pairs
    events_per_user: float
    events_per_item: float
    silos: int | None
    lengths: dict[str, float]  # quantile -> events of a user
    histogram: list[tuple[int, int, int]]  # from, to (inclusive), users
    periods: list[tuple[str, int]]  # first day, events; empty without times
    tail: dict[str, float]
    label_counts: dict[str, int]  # at most eleven distinct labels, else empty
    fields: dict[str, list[str]]  # item, person, event
    repeated: float  # share of the events that repeat an item of the same person
    evaluation: str  # how repeats are treated by default, in a sentence
    plan: str  # the built-in private plan for such a log, with a trusted server
    tied: float | None  # share of the users whose last event has the time stamp of the one before; None without times
    notes: list[str]

    @property
    def sparsity(self) -> float:
        """One minus the density."""
        return 1.0 - self.density

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**asdict(self), "sparsity": self.sparsity}


def describe_log(world: Population) -> LogStatistics:
    """The statistics of a population.

    >>> from tacit.lab.data.synthetic.small import checkerboard
    >>> found = describe_log(checkerboard(6)[0])
    >>> found.users, found.items, found.events, found.sparsity
    (6, 6, 12, 0.6666666666666667)
    """
    lengths, catalog = world.lengths, world.catalog
    users, items, events = len(world), catalog.n_items, int(world.items.size)
    return LogStatistics(
        users,
        items,
        events,
        _pairs(world) / (users * items),
        events / users,
        events / items,
        None if world.silo is None else int(np.unique(world.silo).size),
        {f"{q:.0%}": float(np.quantile(lengths, q)) for q in QUANTILES},
        length_histogram(lengths),
        events_over_time(world.times),
        long_tail(world.items, items),
        _labels(world.labels),
        {
            "item": [field.name for field in catalog.item_fields],
            "person": [field.name for field in catalog.person_fields],
            "event": [field.name for field in catalog.event_fields],
        },
        repeat_share(world),
        choose_repeats(world).words,
        private_plan(world),
        None if world.times is None else tied_ends(world),
        list(world.notes),
    )


def private_plan(world: Population) -> str:
    """The built-in plan for the next item under user-level privacy, with a trusted server.

    Where people come back to things, their own habits predict more than what others do next: then counts alone are sent.

    >>> from tacit.lab.data.synthetic.small import checkerboard
    >>> private_plan(checkerboard(6)[0])
    'steps'
    """
    return "counts-home" if choose_repeats(world).repeats == "all" else "steps"


def tied_ends(world: Population) -> float:
    """The share of the users whose last event has the time stamp of the one before it: only the order in the file decides between them."""
    last = world.offsets[1:][world.lengths > 1] - 1
    return float(tied_events(world)[last].mean()) if last.size else 0.0


def _pairs(world: Population) -> int:
    user = np.repeat(np.arange(len(world), dtype=np.int64), world.lengths)
    return int(np.unique(user * world.catalog.n_items + world.items).size)


def length_histogram(lengths: np.ndarray) -> list[tuple[int, int, int]]:
    """How many users have 1, 2-3, 4-7, 8-15, … events.

    >>> length_histogram(np.array([1, 3, 3, 9]))
    [(1, 1, 1), (2, 3, 2), (4, 7, 0), (8, 15, 1)]
    """
    level = np.log2(np.maximum(lengths, 1)).astype(int)
    counts = np.bincount(level)
    first = int(np.flatnonzero(counts)[0])
    return [(2**k, 2 ** (k + 1) - 1, int(counts[k])) for k in range(first, counts.size)]


def events_over_time(times: np.ndarray | None) -> list[tuple[str, int]]:
    """Events in twelve equal parts of the time the log spans, each with its first day."""
    if times is None or not times.size or times.max() == times.min():
        return []
    counts, edges = np.histogram(times, PERIODS)
    return [(datetime.fromtimestamp(edge, UTC).date().isoformat(), int(n)) for edge, n in zip(edges, counts)]


def long_tail(items: np.ndarray, n_items: int) -> dict[str, float]:
    """The share of the events that falls on the most popular part of the items.

    >>> long_tail(np.array([0, 0, 0, 1]), 2)["50%"]
    0.75
    """
    counts = np.sort(np.bincount(items, minlength=n_items))[::-1]
    reached = np.cumsum(counts) / max(counts.sum(), 1)
    return {f"{share:.0%}": float(reached[max(int(np.ceil(share * n_items)), 1) - 1]) for share in TAIL}


def _labels(labels: np.ndarray | None) -> dict[str, int]:
    if labels is None:
        return {}
    values, counts = np.unique(labels, return_counts=True)
    return {f"{value:g}": int(count) for value, count in zip(values, counts)} if values.size <= 11 else {}


def count_sessions(world: Population, gap: float) -> int:
    """The number of sessions, if a pause longer than `gap` seconds ends one."""
    times = world.require_times("A count of sessions")
    starts = np.zeros(times.size, bool)
    starts[world.offsets[:-1][world.lengths > 0]] = True
    starts[1:] |= np.diff(times) > gap
    return int(starts.sum())


def print_statistics(name: str, found: LogStatistics, console: Any = None) -> None:
    """Tables: counts, quantiles, histogram, events over time, long tail; plain text where the output is no terminal."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console(highlight=False)
    counts = Table(title=name, title_justify="left", show_header=False)
    for word, value in _counts(found):
        counts.add_row(word, value)
    console.print(counts)
    bars = [(f"{low:,}-{high:,}" if high > low else f"{low}", n) for low, high, n in found.histogram]
    print_bars("Events of a user", "users", bars, console=console)
    print_bars("Events over time, from", "events", found.periods, console=console)
    print_bars("Labels", "events", list(found.label_counts.items()), console=console)
    tail = [(f"top {share} of items", round(1000 * part)) for share, part in found.tail.items()]
    print_bars("Long tail", "‰ of events", tail, console=console)
    for note in found.notes:
        console.print(f"Note: {note}", markup=False)


def _counts(found: LogStatistics) -> list[tuple[str, str]]:
    rows = [
        ("users", f"{found.users:,}"),
        ("items", f"{found.items:,}"),
        ("events", f"{found.events:,}"),
        ("density", f"{found.density:.4%} (sparsity {found.sparsity:.4%})"),
        ("events per user", f"{found.events_per_user:,.2f}"),
        ("events per item", f"{found.events_per_item:,.2f}"),
        ("quantiles", "  ".join(f"{q}: {value:,.0f}" for q, value in found.lengths.items())),
    ]
    rows.append(("repeats", found.evaluation))
    rows.append(
        ("private plan", f"{found.plan}, if a server is trusted with the sums; `tacit plan {found.plan}` shows it")
    )
    if found.tied is not None:
        rows.append(("ties", f"{percent(found.tied)} of the users' last events have the time stamp of the one before"))
    rows += [("silos", f"{found.silos:,}")] if found.silos is not None else []
    return rows + [(f"{about} fields", ", ".join(names)) for about, names in found.fields.items() if names]


def print_bars(title: str, unit: str, bars: list[tuple[str, int]], *, console: Any = None, width: int = 40) -> None:
    """Numbers as bars, for a terminal or a pipe."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console(highlight=False)
    if not bars:
        return
    most = max(max(n for _, n in bars), 1)
    table = Table(title, unit, "", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for word, n in bars:
        table.add_row(word, f"{n:,}", "█" * round(width * n / most) or ("▏" if n else ""))
    console.print(table)
