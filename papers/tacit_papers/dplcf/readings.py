"""DPLCF in the lab: reports collected once and decoded by different servers, and the flip channel of the paper."""

from typing import NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.device.method import build
from tacit.errors import PlanError
from tacit.lab.data import Population, from_events
from tacit.lab.plans.loader import complete
from tacit.lab.runs.run import Run
from tacit.lab.simulation import cooccurrence, report_collection
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import GRID, PackedReports, cooccurrence_job, enter_devices
from tacit.privacy.price import settle
from tacit.server.rule import build_rule

# ---- the flip channel and its inverse ----


def channel(p: float, q: float) -> np.ndarray:
    """A: expected counts of reported pairs of bits from true counts; order (00, 01, 10, 11), rows are the reported pairs.

    Eq. 6 of the paper, whose first column is misprinted in two rows. Columns add up to 1.

    >>> channel(0.75, 0.25).sum(0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    one = np.array([[1 - q, 1 - p], [q, p]])
    return np.kron(one, one)


def inverse(p: float, q: float) -> np.ndarray:
    """A⁻¹ for any p ≠ q, in closed form: B⁻¹ ⊗ B⁻¹ with B⁻¹ = [[p, p − 1], [−q, 1 − q]] / (p − q)."""
    if p == q:
        raise PlanError(
            f"p and q must differ, got {p} twice: reports that do not depend on the true bits carry no information."
        )
    one = np.array([[p, p - 1], [-q, 1 - q]]) / (p - q)
    return np.kron(one, one)


def printed_inverse(q: float) -> np.ndarray:
    """Eq. 11 of the paper as printed, for p = 1. Wrong in four places; kept to show its effect on counts."""
    r = 1 - q
    rows = [[1 / r, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [-(q**2) / r, 0, -q, r]]
    return np.array(rows) / r


# ---- reports, decoded ----


class CollectedReports(NamedTuple):
    """All devices' reports of one round, and for each pair of items how many reported both."""

    federation: Federation
    job: Job
    reports: PackedReports
    pairs: np.ndarray  # int32[N, N]


def collect_reports(plan: Plan, people: Population, seed: int = 0) -> CollectedReports:
    """Every device takes the plan's one step."""
    federation = Federation(plan, people, seed=seed, performance=Performance(grid=GRID))
    job = cooccurrence_job(federation)
    enter_devices(federation, job)
    reports = report_collection.collect_reports(federation, job)
    return CollectedReports(federation, job, reports, cooccurrence.count_pairs(reports))


def decode_run(said: CollectedReports, plan: Plan) -> Run:
    """The run of a plan with the same mechanism, with its own table estimated from the same reports."""
    plan, people = complete(plan), said.federation.population
    stage = plan.stages[0]
    mechanism = settle(stage, len(people))[0]
    ours, theirs = mechanism.thresholds, said.job.mechanism.thresholds  # pyright: ignore[reportAttributeAccessIssue]
    if ours != theirs:
        raise PlanError(
            f"{plan.name} has other flip probabilities than the plan that collected the reports, {ours} and {theirs}."
        )
    method = build(stage, people.catalog)
    k = min(stage.hyper["neighbours"], people.catalog.n_items)
    table = cooccurrence.similarity_table(said.reports, build_rule(stage.server), mechanism, k, pairs=said.pairs)
    return cooccurrence.run_from_table(said.federation, plan, method, table)


def log_from_bits(said: CollectedReports) -> Population:
    """The histories as a server reads them that takes every reported bit as true."""
    bits = np.unpackbits(said.reports.packed, axis=1, count=said.reports.width)
    person, item = np.nonzero(bits)
    return from_events(person, item, n_items=said.reports.width)


def noise_floor(said: CollectedReports) -> float:
    """Standard deviation of the estimated count of an item that no user has: √(M·q(1 − q))/(p − q)."""
    return said.job.mechanism.floor(said.reports.packed.shape[0]) or 0.0
