"""Readings: what people said once, read in many ways. Servers that differ are compared on the very same lies."""

from typing import NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.device.method import build
from tacit.errors import PlanError
from tacit.lab.data import Population, from_events
from tacit.lab.plans.loader import complete
from tacit.lab.runs.run import Run
from tacit.lab.simulation import cooccurrence
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import GRID, PackedReports, collect_reports, cooccurrence_job, enter_devices
from tacit.privacy.price import settle
from tacit.server.rule import build_rule


class Said(NamedTuple):
    """Everybody's reports of one round, and how many said 1 of every two items."""

    federation: Federation
    job: Job
    reports: PackedReports
    pairs: np.ndarray  # int32[N, N]


def say(plan: Plan, people: Population, seed: int = 0) -> Said:
    """Everybody takes the plan's one step."""
    federation = Federation(plan, people, seed=seed, performance=Performance(grid=GRID))
    job = cooccurrence_job(federation)
    enter_devices(federation, job)
    reports = collect_reports(federation, job)
    return Said(federation, job, reports, cooccurrence.count_pairs(reports))


def read(said: Said, plan: Plan) -> Run:
    """The run of a plan that tells its devices to say the same, and makes its own table of it."""
    plan, people = complete(plan), said.federation.population
    stage = plan.stages[0]
    mechanism = settle(stage, len(people))[0]
    ours, theirs = mechanism.thresholds, said.job.mechanism.thresholds  # pyright: ignore[reportAttributeAccessIssue]
    if ours != theirs:
        raise PlanError(f"{plan.name} has other odds than the plan by which people spoke, {ours} and {theirs}.")
    method = build(stage, people.catalog)
    k = min(stage.hyper["neighbours"], people.catalog.n_items)
    table = cooccurrence.similarity_table(said.reports, build_rule(stage.server), mechanism, k, pairs=said.pairs)
    return cooccurrence.run_from_table(said.federation, plan, method, table)


def log_of(said: Said) -> Population:
    """What a server that believes every word takes people's histories to be."""
    bits = np.unpackbits(said.reports.packed, axis=1, count=said.reports.width)
    person, item = np.nonzero(bits)
    return from_events(person, item, n_items=said.reports.width)


def noise_floor(said: Said) -> float:
    """Standard deviation of the count of an item that nobody has: √(M·q(1 − q))/(p − q)."""
    return said.job.mechanism.floor(said.reports.packed.shape[0]) or 0.0
