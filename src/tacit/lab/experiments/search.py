"""Search spaces: the whole grid of some settings where it is small enough, else random search by a seed."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import PlanError
from tacit.lab.experiments.variants import parse_values

_RANGE = re.compile(r"\s*(?P<low>\S+?)\s*\.\.\s*(?P<high>[^\s\[]+)\s*(?P<log>log|\[log\])?\s*")
_MAX_DRAWS = 50  # draws for each trial wanted, before a space of few values counts as exhausted


@dataclass(frozen=True)
class Range:
    """Every value from low to high, both included; on a log scale where small differences matter at the small end."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self):
        if not -math.inf < self.low < self.high < math.inf:
            raise PlanError(f"A range goes from a smaller to a larger number, got {self}; write 0.01..0.1, say.")
        if self.log and self.low <= 0:
            raise PlanError(f"A range on a log scale begins above 0, got {self}; begin higher, or leave out log.")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{' log' if self.log else ''}"

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant: both ends are."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, rng: np.random.Generator) -> float:
        """One value."""
        low, high = (self.low, self.high + 1) if self.whole else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        # Six digits are enough to tell values apart, and stay readable.
        value = math.floor(value) if self.whole else float(f"{value:.6g}")
        return min(max(value, self.low), self.high)


Space = Mapping[str, Range | Sequence[Any]]  # setting -> what to try


class SearchTrial(NamedTuple):
    """Settings, and the metric they reached on the validation data."""

    settings: dict[str, Any]
    value: float


class SearchResult(NamedTuple):
    """All trials of a search."""

    tried: tuple[SearchTrial, ...]

    @property
    def best(self) -> SearchTrial:
        """The highest; the first of equals."""
        return max(self.tried, key=lambda one: one.value)


def parse_search(text: str) -> tuple[str, Range | list[Any]]:
    """A search as text: choices between commas, `a..b` for a range, `a..b log` or `a..b[log]` on a log scale.

    >>> parse_search("hyper.dim=8,16,32")
    ('hyper.dim', [8, 16, 32])
    >>> print(*parse_search("server.rate=0.01..0.1[log]"))
    server.rate 0.01..0.1 log
    """
    path, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise PlanError(
            f"A search is written name=values, got {text!r}; write hyper.dim=8,16 or server.rate=0.01..0.1."
        )
    found = _RANGE.fullmatch(value)
    if found is None:
        return path.strip(), parse_values(value)
    ends = [parse_values(found[end])[0] for end in ("low", "high")]
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise PlanError(f"A range goes from one number to another, got {value.strip()!r}; write 0.01..0.1, say.")
    return path.strip(), Range(*ends, log=found["log"] is not None)


def draw_settings(space: Space, trials: int, seed: int = 0) -> list[dict[str, Any]]:
    """Settings to try: the whole grid where there are only choices and it has at most so many, else different draws.

    >>> draw_settings({"hyper.dim": [8, 16], "rounds": [5]}, trials=10)
    [{'hyper.dim': 8, 'rounds': 5}, {'hyper.dim': 16, 'rounds': 5}]
    """
    if trials < 1:
        raise PlanError(f"trials must be at least 1, got {trials}; 20 is usual.")
    for path, values in space.items():
        if not isinstance(values, Range) and not len(values):
            raise PlanError(f"A search over {path} needs at least one value, got none.")
    rng, names = np.random.default_rng(seed), list(space)
    choices = [values for values in space.values() if not isinstance(values, Range)]
    if len(choices) == len(space) and math.prod(map(len, choices)) <= trials:
        return [dict(zip(names, values)) for values in itertools.product(*choices)]
    found: dict[str, dict[str, Any]] = {}
    for _ in range(_MAX_DRAWS * trials):
        setting = {name: _one(rng, values) for name, values in space.items()}
        found.setdefault(repr(setting), setting)
        if len(found) == trials:
            break
    return list(found.values())


def _one(rng: np.random.Generator, values: Range | Sequence[Any]) -> Any:
    return values.draw(rng) if isinstance(values, Range) else values[int(rng.integers(len(values)))]
