"""SeqMF's experiments on one log: all methods and controls on the same test cases, in one split or cycle by cycle."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.lab.data import Population, from_events
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.evaluation.sessions import drop_quick_repeats
from tacit.lab.evaluation.statistics import ConfidenceInterval, PairedTest, interval, paired_test
from tacit.lab.experiments.online import Knows, Timeline, simulate_cycles
from tacit.lab.experiments.trial import Trial, trial
from tacit.lab.experiments.tune import tune
from tacit.lab.plans.loader import choose
from tacit.lab.runs.device_cost import cost
from tacit.lab.runs.run import simulate
from tacit_papers.seqmf.printed import PER_CYCLE

# What the authors' search went over; the values their code settled on are in the plan `seqmf-authors`.
GRID = {
    "hyper.smoothing": [0.001, 0.01, 0.1, 0.5, 1.0],
    "hyper.dim": [24, 32, 64, 80],
    "hyper.penalty": [0.01, 0.1, 1.0],
    "hyper.gamma": [0.01, 0.1, 0.5, 1.0],
    "server.rate": [1e-7, 5e-7, 1e-6, 1e-5, 1e-4],
}
PRINTED = {"privacy": {"mechanism": "none"}}  # the printed objective, without its noise
UNTRAINED = {"rounds": 0}
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "Random": ("random", {}),
    "MRU": ("mru", {}),
    "MFU": ("mfu", {}),
    "SR": ("sr", {}),
    "SR-od": ("sr-od", {}),
    "MF": ("mf", {}),
    "SeqMF": ("seqmf-authors", {}),
    "SeqMF, printed objective": ("seqmf-paper", PRINTED),
    "control: untrained Q": ("seqmf-authors", UNTRAINED),
    "control: on-device only": ("on-device", {}),
    "control: public chart": ("seqmf-popularity-prior", {}),
    "SeqMF-CE": ("seqmf-ce", {}),
    "SeqMF-EB": ("seqmf-eb", {}),
    "seqmf, private": ("seqmf", {}),
}
TUNED = "SeqMF, tuned here"


class Place(NamedTuple):
    """Where an experiment of the paper takes place: its own log, or a world in its stead."""

    paper: str  # what the paper calls it
    label: str  # what our numbers were measured on
    worlds: tuple[Population, ...]  # one for each seed; a real log is the same every time
    protocol: str
    cycles: int
    every: int  # cycles between two trainings of the table
    epsilon: float  # of one message, in the paper


def place(paper: str, data: str | None, seeds: Iterable[int], users: int | None) -> Place:
    """LSApp or App Usage where they are present, or the log named; else a world that looks like them."""
    first = paper == "LSApp"
    name = data or ("lsapp" if first else "app-usage")
    if data is None and not about_dataset(name).present:
        name = "apps" if first else "apps500"
    about = about_dataset(name)
    if about.built_in:
        users = users or (292 if first else 1000)
        days: dict[str, Any] = {} if first else {"days": 8}  # as long as App Usage
        worlds = tuple(dataset(name, users=users, seed=seed, **days) for seed in seeds)
        count = len(worlds)
        label = f"{name}, synthetic, {users} people, {count} seed{'s' if count > 1 else ''}"
    else:
        log = dataset(name)
        worlds, label = tuple(log for _ in seeds), name
    long = first if data is None else np.ptp(worlds[0].require_times(name)) > 30 * 86_400
    rest = ("seqmf", 34, 10, 4.5) if long else ("seqmf-week", 8, 2, 1.1)
    return Place(paper, label, worlds, *rest)


@dataclass
class Static:
    """Everybody's answers in one cut of the log, pooled over the seeds."""

    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)  # row -> metric -> one value a person
    digests: dict[str, str] = field(default_factory=dict)
    epsilon: dict[str, str] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)  # what validation chose, seed by seed

    def interval(self, row: str, metric: str) -> ConfidenceInterval:
        """Over people."""
        return interval(self.values[row][metric])

    def mean(self, row: str, metric: str) -> float:
        """The plain mean."""
        return float(self.values[row][metric].mean())

    def compare(self, ours: str, theirs: str, metric: str) -> PairedTest:
        """Person by person."""
        return paired_test(self.values[ours][metric], self.values[theirs][metric], f"{ours} − {theirs}, {metric}")


def static(where: Place, trials: int, rows: Mapping[str, tuple[str, dict]] = RIVALS, seed: int = 0) -> Static:
    """Every rival on every world; with `trials`, SeqMF also with what a search on earlier days chose."""
    found = Static()
    pooled: dict[str, list[dict[str, np.ndarray]]] = {row: [] for row in rows}
    for world in where.worlds:
        for row, (name, settings) in rows.items():
            plan = choose(name, settings)
            _note(found, pooled, row, plan, trial(plan, world, where.protocol, seed=seed, quiet=True))
        if trials:
            best = tune(
                "seqmf-authors",
                world,
                GRID,
                trials=trials,
                protocol=where.protocol,
                metric="HR@5",
                seed=seed,
                quiet=True,
            )
            found.chosen.append(", ".join(f"{k.split('.')[1]} {v:g}" for k, v in best.best.variant.setting.items()))
            _note(found, pooled, TUNED, best.best.variant.plan, best.test)
    for row, parts in pooled.items():
        found.values[row] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return found


def _note(found: Static, pooled: dict, row: str, plan: Plan, done: Trial) -> None:
    pooled.setdefault(row, []).append(done.evaluation.values)
    found.digests[row], found.epsilon[row] = plan.digest, done.epsilon


# ---- the cost of a round on a phone ----


def operations(installed: int, dim: int) -> dict[str, int]:
    """What section 4.3 counts for one device: T_u, to solve the user vector, and T_g, for the gradient of the items."""
    n, d = installed, dim
    matrix = 2 * d**2 * n + d  # T_m
    right = 2 * d * n**2 + 4 * n * d + 2 * n  # T_r
    solve = d * (d + 1) * (2 * d + 7) // 6 + 2 * d * (d - 1)  # T_s = d³/3 + 3d²/2 + 7d/6 + 2d(d − 1)
    gradient = 3 * n + 3 * d * n + 2 * d * (n + n**2) + 2 * n * d**2 + 4 * n**2
    return {"user vector": matrix + right + solve, "gradient": gradient}


def phone_flops(cores: Iterable[tuple[int, float]]) -> float:
    """Operations a second, by the paper's rule: cores times cycles times 4."""
    return PER_CYCLE * sum(count * cycles for count, cycles in cores)


def measured_cost(installed: int, dim: int, seed: int = 0) -> dict[str, float]:
    """What `cost` measures on this machine for one device with so many items, all of them used."""
    random = np.random.default_rng(seed)
    items = np.concatenate([np.arange(installed), random.integers(installed, size=20 * installed)])
    plan = choose("seqmf-paper", {**PRINTED, "hyper.dim": dim, "hyper.installed": installed, "rounds": 1})
    return cost(simulate(plan, from_events(np.zeros(items.size, int), items), seed=seed, quiet=True))


# ---- cycle by cycle ----

# As the authors' code has it when cycles go by: plain gradient descent, and a smaller table.
STEPS = {"hyper.dim": 64, "server": {"rule": "sgd", "rate": 5e-5, "decay": 0.1, "scale": "sum"}}
AGAIN = 4  # rounds of each later training
REGIMES: dict[str, tuple[str, dict[str, Any], Knows]] = {
    "SeqMF Full": ("seqmf-authors", STEPS, "cycles"),
    "SeqMF Rare": ("seqmf-authors", STEPS, "updates"),
    "SeqMF Global": ("seqmf-authors", {**STEPS, "hyper.solves": "never"}, "cycles"),
    "SR-od": ("sr-od", {}, "cycles"),
    "MRU": ("mru", {}, "cycles"),
    "control: untrained Q": ("seqmf-authors", {**STEPS, **UNTRAINED}, "cycles"),
    "control: on-device only": ("on-device", {}, "cycles"),
    "control: public chart": ("seqmf-popularity-prior", {}, "cycles"),
}
BOUND, NORM = 3e-3, 1.5e-2  # the largest number of an update at the authors' start, and its length: medians, rounded


def mechanisms(epsilon: float) -> dict[str, dict[str, Any]]:
    """The settings of Figures 5 and 6: so much ε a message, where the mechanism keeps one."""
    direction = {**STEPS, "server": {**STEPS["server"], "scale": "mean"}}  # what the printed server makes is no sum
    paper = {"form": "paper", "server": "paper", "epsilon_of_signs": epsilon, "k": 5}
    share = {"epsilon_per_message": epsilon}
    return {
        "no noise": STEPS,
        "QHarmony as printed": {**direction, "privacy": {"mechanism": "qharmony", **paper}},
        "QHarmony-clip": {**STEPS, "privacy": {"mechanism": "qharmony", **share, "bound": BOUND}},
        "k-Harmony": {**STEPS, "privacy": {"mechanism": "harmony", **share, "bound": BOUND}},
        "Kashin": {**STEPS, "privacy": {"mechanism": "kashin", **share, "bound": NORM}},
        "Laplace": {**STEPS, "privacy": {"mechanism": "laplace", "clip": "elements", **share, "bound": BOUND}},
    }


class Dynamic:
    """Timelines of one place, each made once and averaged over its worlds."""

    def __init__(self, where: Place, seed: int = 0):
        self.where, self.seed, self._made = where, seed, {}

    @cached_property
    def logs(self) -> list[Population]:
        """The worlds, cleaned."""
        return [drop_quick_repeats(world) for world in self.where.worlds]

    def of(self, plan: str, settings: Mapping[str, Any], knows: Knows = "cycles") -> list[Timeline]:
        """One timeline a world."""
        chosen = choose(plan, settings)
        key = (chosen.digest, knows)
        if key not in self._made:
            self._made[key] = [
                simulate_cycles(
                    chosen, log, self.where.cycles, every=self.where.every, again=AGAIN, knows=knows, seed=self.seed
                )
                for log in self.logs
            ]
        return self._made[key]

    @staticmethod
    def mean(timelines: list[Timeline], metric: str = "HR@5") -> np.ndarray:
        """Cycle by cycle, over the worlds."""
        values = np.array([one.metrics[metric] for one in timelines])
        some = np.isfinite(values).any(axis=0)
        return np.where(some, np.nanmean(np.where(some, values, 0.0), axis=0), np.nan)
