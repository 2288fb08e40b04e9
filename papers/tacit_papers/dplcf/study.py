"""DPLCF's experiment on one log: competing servers on the same reports and the same test cases, seed by seed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.plan import Plan
from tacit.device.method import build
from tacit.lab.analysis.noise_floor import true_pair_counts
from tacit.lab.baselines.central.bpr import Loss, StepSize, first_factors, pairwise, train_checkpoints, train_epochs
from tacit.lab.baselines.central.gmf import pointwise
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.selection import k_core
from tacit.lab.evaluation.candidates import AllItems, Candidates, Sampled
from tacit.lab.evaluation.scoring import ranks, seen_mask
from tacit.lab.evaluation.sessions import merge_repeats
from tacit.lab.evaluation.splits import Split, leave_last_out
from tacit.lab.evaluation.statistics import ConfidenceInterval, PairedTest, interval, paired_test
from tacit.lab.experiments.search import SearchResult, SearchTrial
from tacit.lab.plans.loader import choose
from tacit.metrics import per_case, rank_and_ties
from tacit.privacy.price import settle
from tacit_papers.dplcf.readings import CollectedReports, collect_reports, decode_run, log_from_bits

NEGATIVES = 99
CLAMP, RAW = {"server.recipe": "clamp"}, {"server.recipe": "raw"}
ROWS: dict[str, tuple[str, dict]] = {
    "LCF-UB": ("lcf-ub", {}),
    "BPR-MF": ("bpr-mf", {}),
    "GMF": ("gmf", {}),
    "LCF-AP": ("lcf-ap", {}),
    "LCF-SP": ("lcf-sp", {}),
    "DPLCF-AP": ("dplcf-ap", CLAMP),
    "DPLCF-SP": ("dplcf", CLAMP),
    "DPLCF-AP, raw": ("dplcf-ap", RAW),
    "DPLCF-SP, raw": ("dplcf-paper", {}),
    "DPLCF-AP, shrunk": ("dplcf-ap", {}),
    "DPLCF-SP, shrunk": ("dplcf", {}),
}
# What the paper searches for the two central models; batches of 1024 and 4 negatives are fixed, as in the plans.
SEARCH = {
    "hyper.rate": (0.001, 0.0005, 0.0001),
    "hyper.penalty": (0.001, 0.0001, 0.0),
    "hyper.dim": (4, 8, 16),
}
JUDGED = "NDCG@10"  # what decides, on the validation part


class Factors(NamedTuple):
    """A central model: what it lowers, and everybody's scores of all items, float[M, N], from what was fitted."""

    loss: Loss
    scores: Callable[[dict], jax.Array]


CENTRAL = {
    "BPR-MF": Factors(pairwise, lambda made: made["people"] @ made["items"].T + made["bias"]),
    "GMF": Factors(pointwise, lambda made: (made["people"] * made["mixture"]) @ made["items"].T),
}


class Log(NamedTuple):
    """A log, how it is asked, and how many neighbours the paper would give it."""

    label: str
    people: Population
    neighbours: int
    split: Split

    @property
    def sparsity(self) -> float:
        """The share of pairs of a person and an item that are nothing."""
        return 1 - self.people.items.size / (len(self.people) * self.people.catalog.n_items)


def first_present(names: Iterable[str]) -> str | None:
    """The first of some datasets whose files are there."""
    return next((name for name in names if about_dataset(name).present), None)


def small_log(data: str | None, size: str) -> Log:
    """App Usage, or a log of its size: a few hundred people, most items rare."""
    name = data or first_present(("app-usage", "ml-latest-small"))
    if name is None:
        users, items = (600, 600) if size == "small" else (871, 1682)
        return _log(f"movies, synthetic, {users} people", dataset("movies", users=users, items=items), 10)
    people = dataset(name)
    return _log(name, people, 10) if name == "app-usage" or data else _log(f"{name}, 10-core", k_core(people, 10), 10)


def large_log(data: str | None, size: str) -> Log:
    """MovieLens as the paper took it, or the largest of its kind that is there."""
    name = data or first_present((*(("ml-20m",) if size == "paper" else ()), "ml-1m"))
    if name is None:
        users = 2000 if size == "small" else 6000
        return _log(f"movies, synthetic, {users:,} people", dataset("movies", users=users, items=users // 2), 20)
    return _log("ml-20m, 60-core", k_core(dataset(name), 60), 20) if name == "ml-20m" else _log(name, dataset(name), 20)


def _log(label: str, people: Population, neighbours: int) -> Log:
    people = merge_repeats(people)
    return Log(label, people, neighbours, leave_last_out(people))


@dataclass
class Study:
    """Ranks of everybody's last item, [seeds, users], for each row of a table."""

    log: Log
    sampled: dict[str, np.ndarray] = field(default_factory=dict)
    full: dict[str, np.ndarray] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    floor: float = 0.0  # people: the noise of a count, symmetric flips
    chosen: dict[str, SearchResult] = field(default_factory=dict)  # of the central models
    typical: float = 0.0  # people: the median of how many have both of two items that anybody has

    def values(self, row: str, metric: str, full: bool = False) -> np.ndarray:
        """The metric of each user, the mean over seeds."""
        return np.stack([per_case(one, metric) for one in (self.full if full else self.sampled)[row]]).mean(0)

    def mean(self, row: str, metric: str) -> float:
        """The metric, over users and seeds."""
        return float(self.values(row, metric).mean())

    def interval(self, row: str, metric: str, full: bool = False) -> ConfidenceInterval:
        """The same with its interval over users."""
        return interval(self.values(row, metric, full))

    def compare(self, ours: str, theirs: str, metric: str) -> PairedTest:
        """Ours less theirs, user by user."""
        return paired_test(self.values(ours, metric), self.values(theirs, metric), f"{ours} − {theirs}, {metric}")


def plan_of(row: str, epsilon: float, neighbours: int, tuned: Mapping[str, Any] | None = None) -> Plan:
    """The plan that stands behind a row; a central one with the settings that were chosen for it."""
    name, settings = ROWS[row]
    if row in CENTRAL:
        return choose(name, tuned)
    settings = {**settings, "hyper.neighbours": neighbours}
    return choose(name, settings, None if row == "LCF-UB" else epsilon)


def run_study(
    log: Log, seeds: tuple[int, ...], rows: Iterable[str] = tuple(ROWS), *, epsilon: float = 1.0, full: bool = False
) -> Study:
    """Everybody speaks once a seed and form of lie; every row reads the same reports. All items are ranked for the
    first seed only, where they are."""
    made, found, everything = Study(log), {}, {}
    made.chosen = {row: tuned(row, log, seeds[0], epsilon) for row in rows if row in CENTRAL}
    for seed in seeds:
        heard: dict[tuple[int, int], CollectedReports] = {}
        candidates = Sampled(log.split, NEGATIVES, seed)
        for row in rows:
            plan = plan_of(row, epsilon, log.neighbours, made.chosen[row].best.settings if row in CENTRAL else None)
            ranked = _answering(row, plan, log, heard, seed, epsilon)
            made.digests[row] = plan.digest
            found.setdefault(row, []).append(ranked(candidates))
            if full and seed == seeds[0]:
                everything[row] = [ranked(AllItems())]
    made.sampled, made.full = ({row: np.stack(one) for row, one in ranked.items()} for ranked in (found, everything))
    mechanism = settle(plan_of("DPLCF-SP", epsilon, log.neighbours).stages[0], len(log.people))[0]
    made.floor, made.typical = mechanism.floor(len(log.people)) or 0.0, _typical(log.split.train)
    return made


def _answering(
    row: str, plan: Plan, log: Log, heard: dict, seed: int, epsilon: float
) -> Callable[[Candidates], np.ndarray]:
    """How a row ranks everybody's last item among some candidates, once it has learned."""
    if row not in CENTRAL:
        run = decode_run(_heard(plan, log, heard, seed), plan)
        return lambda candidates: ranks(run, log.split, candidates, seed=seed)
    lies = log_from_bits(_heard(plan_of("LCF-SP", epsilon, log.neighbours), log, heard, seed))
    method = build(plan.stages[0], lies.catalog)
    first = first_factors(method, lies)
    scores = np.asarray(CENTRAL[row].scores(train_epochs(CENTRAL[row].loss, first, method, lies)))
    return lambda candidates: central_ranks(scores, log.split, candidates, seed)


def tuned(row: str, log: Log, seed: int, epsilon: float) -> SearchResult:
    """A central model with every setting of the grid, by how it ranks everybody's last training item.

    What may be learned from is cut once more in the same way, and people lie about what is left of it. The item asked
    for is true: a server that has the lies alone could not choose so well.
    """
    inner = leave_last_out(log.split.train)
    lies = log_from_bits(collect_reports(plan_of("LCF-SP", epsilon, log.neighbours), inner.train, seed))
    candidates, tried = Sampled(inner, NEGATIVES, seed), []
    paces = list(product(SEARCH["hyper.rate"], SEARCH["hyper.penalty"]))
    for dim in SEARCH["hyper.dim"]:
        for pace, scores in zip(paces, _side_by_side(row, dim, paces, lies)):
            value = float(per_case(central_ranks(scores, inner, candidates, seed), JUDGED).mean())
            tried.append(SearchTrial({**dict(zip(SEARCH, pace)), "hyper.dim": dim}, value))
    return SearchResult(tuple(tried))


def _side_by_side(row: str, dim: int, paces: list[tuple[float, float]], lies: Population) -> Iterable[np.ndarray]:
    """A model's scores for each rate and penalty, all fitted on the same batches at once: in a third of the time."""
    model, stage = CENTRAL[row], choose(ROWS[row][0], {"hyper.dim": dim}).stages[0]
    method = build(stage, lies.catalog)
    first = jax.tree.map(lambda leaf: np.stack([leaf] * len(paces)), first_factors(method, lies))
    pace = StepSize(*(np.array(part, np.float32) for part in zip(*paces)))
    made = next(train_checkpoints(model.loss, first, method, pace, lies, (stage.hyper["epochs"],)))
    return (np.asarray(model.scores({name: leaf[k] for name, leaf in made.items()})) for k in range(len(paces)))


def central_ranks(scores: np.ndarray, split: Split, candidates: Candidates, seed: int) -> np.ndarray:
    """The rank of every target by scores that a server has of everybody, float[M, N]."""
    device, target = split.test.device, split.test.target
    offered, keys = candidates.rows(np.arange(device.size)), jax.random.split(jax.random.key(seed), device.size)
    if offered is not None:
        scores, target = np.where(offered >= 0, scores[device[:, None], offered], -np.inf), np.zeros_like(target)
        return np.asarray(jax.vmap(rank_and_ties)(keys, jnp.asarray(scores), jnp.asarray(target))[0])
    had = seen_mask(split.test_population, device, np.arange(scores.shape[1]))
    had[np.arange(device.size), target] = False
    scores = np.where(had, -np.inf, scores[device])
    return np.asarray(jax.vmap(rank_and_ties)(keys, jnp.asarray(scores), jnp.asarray(target))[0])


def _heard(plan: Plan, log: Log, heard: dict, seed: int) -> CollectedReports:
    """What people say by this plan's odds, said once."""
    odds = settle(plan.stages[0], len(log.people))[0].thresholds  # pyright: ignore[reportAttributeAccessIssue]
    if odds not in heard:
        heard[odds] = collect_reports(plan, log.split.train, seed)
    return heard[odds]


def _typical(people: Population) -> float:
    both = true_pair_counts(people)
    above = both[np.triu_indices(both.shape[0], 1)]
    return float(np.median(above[above > 0])) if (above > 0).any() else 0.0
