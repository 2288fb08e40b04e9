"""Paper datasets: the statistics that five papers print about their data, beside those of the data here.

The printed numbers are the papers' claims, copied from their tables; the others are computed on demand.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.describe import count_sessions, describe_log
from tacit.lab.data.selection import k_core

QUARTER = 15 * 60.0  # seconds; the pause that ends a session of launches


@dataclass(frozen=True)
class Claim:
    """What a paper prints about one log, and how to compute the same here."""

    paper: str
    where: str
    log: str  # as the paper calls it
    dataset: str  # as this package calls it
    printed: dict[str, float]
    options: dict[str, Any] = field(default_factory=dict)
    compute: Callable[[Population], dict[str, float]] = lambda world: _counts(world)


def _counts(world: Population) -> dict[str, float]:
    found = describe_log(world)
    return {"users": found.users, "items": found.items, "interactions": found.events, "sparsity": found.sparsity}


def _distinct(world: Population) -> dict[str, float]:
    """Interactions as pairs: a second use of the same app is the same interaction."""
    found = describe_log(world)
    pairs = round(found.density * found.users * found.items)
    return {"users": found.users, "items": found.items, "interactions": pairs, "sparsity": found.sparsity}


def _launches(world: Population) -> dict[str, float]:
    return {
        "users": len(world),
        "items": world.catalog.n_items,
        "sessions per user": round(count_sessions(world, QUARTER) / len(world), 1),
    }


def _at_least_60(world: Population) -> dict[str, float]:
    return _counts(k_core(world, 60))


def _training_part(world: Population) -> dict[str, float]:
    """Each user's events without the newest fifth, rounded down."""
    shorter = world.lengths - np.floor(0.2 * world.lengths).astype(int)
    place = np.arange(world.items.size) - np.repeat(world.offsets[:-1], world.lengths)
    keep = place < np.repeat(shorter, world.lengths)
    items = np.unique(world.items[keep]).size
    return {
        "users": len(world),
        "items": items,
        "interactions": int(keep.sum()),
        "per user": round(keep.sum() / len(world), 2),
        "per item": round(keep.sum() / items, 2),
    }


def _monthly(world: Population) -> dict[str, float]:
    """Sessions of one user and one calendar month, without those of a single event."""
    stamp = (
        world.require_times("A count of monthly sessions").astype("datetime64[s]").astype("datetime64[M]").astype(int)
    )
    user = np.repeat(np.arange(len(world), dtype=np.int64), world.lengths)
    _, at, counts = np.unique(user * 100_000 + stamp, return_index=True, return_counts=True)
    kept = at[counts > 1]
    inside = np.isin(user * 100_000 + stamp, (user * 100_000 + stamp)[kept])
    return {
        "clients": 0 if world.silo is None else int(np.unique(world.silo).size),
        "users": int(np.unique(user[kept]).size),
        "items": int(np.unique(world.items[inside]).size),
        "sessions in all": int(kept.size),
    }


_SEQMF = "Saiapin et al. 2024"
_DPLCF = "Gao et al. 2020"
_FEDSEQREC = "Li et al. 2022"
_FPL = "Anelli et al. 2021"
_PRIVREC = "Wang et al. 2021"
_TWENTY = {"duplicates": "latest", "few": "drop", "least": 20}


def _fpl(country: str, users: int, items: int, records: int, per_user: float, per_item: float) -> Claim:
    printed = {"users": users, "items": items, "interactions": records, "per user": per_user, "per item": per_item}
    return Claim(_FPL, "Table 1", country, f"foursquare-{country.lower()}", printed, _TWENTY, _training_part)


CLAIMS = (
    Claim(_SEQMF, "§6.1", "LSApp", "lsapp", {"users": 292, "items": 87, "sessions per user": 109}, {}, _launches),
    Claim(
        _SEQMF, "§6.1", "App Usage", "app-usage", {"users": 1000, "items": 2000, "sessions per user": 58}, {}, _launches
    ),
    Claim(
        _DPLCF,
        "Table 1",
        "AppUsage",
        "app-usage",
        {"users": 871, "items": 1682, "interactions": 51_935, "sparsity": 0.96455},
        {},
        _distinct,
    ),
    Claim(
        _DPLCF,
        "Table 1",
        "MovieLens",
        "ml-20m",
        {"users": 74_529, "items": 9_953, "interactions": 18_848_812, "sparsity": 0.97459},
        {},
        _at_least_60,
    ),
    Claim(
        _FEDSEQREC,
        "Table 2",
        "MoocData",
        "mooccube",
        {"clients": 16, "users": 14_173, "items": 30_430, "training sessions": 21_492, "test sessions": 5_298},
        {},
        _monthly,
    ),
    Claim(
        _FEDSEQREC,
        "Table 2",
        "MovieData",
        "moviedata",
        {"clients": 2, "users": 9_217, "items": 7_862, "training sessions": 10_536, "test sessions": 2_646},
        {},
        _monthly,
    ),
    _fpl("Brazil", 17_473, 47_270, 599_958, 34.34, 12.69),
    _fpl("Canada", 1_340, 29_518, 63_514, 47.40, 2.15),
    _fpl("Italy", 1_353, 25_522, 54_088, 39.98, 2.20),
    Claim(_PRIVREC, "§3.2", "Movielens-1M", "ml-1m", {"users": 6_040, "items": 3_706, "interactions": 1_000_209}),
    Claim(
        _PRIVREC,
        "§3.2",
        "Frappe",
        "frappe",
        {"users": 957, "items": 4_082, "interactions": 288_609},
        {"negatives": 2},
    ),
)


@dataclass(frozen=True)
class Compared:
    """A claim with what was computed; `computed` is None where the data is not present or could not be read."""

    claim: Claim
    computed: dict[str, float] | None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        claim = self.claim
        return {
            "paper": claim.paper,
            "where": claim.where,
            "log": claim.log,
            "dataset": claim.dataset,
            "printed": claim.printed,
            "computed": self.computed,
            "why": self.why,
        }


def compare(claims: tuple[Claim, ...] = CLAIMS) -> list[Compared]:
    """Each claim beside what the data here gives."""
    return [_compare(claim) for claim in claims]


def _compare(claim: Claim) -> Compared:
    if not about_dataset(claim.dataset).present:
        return Compared(claim, None, "not present")
    try:
        world = replace(dataset(claim.dataset, **claim.options), notes=())
        return Compared(claim, claim.compute(world))
    except TacitError as problem:
        return Compared(claim, None, str(problem))


def print_comparison(compared: list[Compared], console: Any = None) -> None:
    """One line for each number; what a paper does not print, or cannot be computed, is a dash."""
    from rich.console import Console
    from rich.table import Table

    table = Table("paper", "where", "log", "number", "printed", "computed")
    for one in compared:
        head = (one.claim.paper, one.claim.where, one.claim.log)
        extra = [name for name in one.computed or {} if name not in one.claim.printed]
        for name in [*one.claim.printed, *extra]:
            found = one.why if one.computed is None else _written(one.computed.get(name))
            table.add_row(*head, name, _written(one.claim.printed.get(name)), found)
            head = ("", "", "")
    (console or Console(highlight=False)).print(table)


def _written(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.5g}" if value != int(value) else f"{int(value):,}"
