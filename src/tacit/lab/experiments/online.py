"""Online evaluation: a plan is tested on each cycle of a log with what was learned before, then learns from it.

The parameters are trained on the first cycle and again every few cycles, from where they were; every ledger goes on. The
private state of a user is a function of the parameters and the history, so a cycle is tested on homes rebuilt from the
history so far.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tacit.core.plan import Plan
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.selection import take
from tacit.lab.evaluation.candidates import SeenBefore
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.sessions import cycles_of
from tacit.lab.evaluation.splits import Cases, Split, cycle
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.buckets import homes_by_id
from tacit.lab.simulation.federation import Performance, Start
from tacit.metrics import average, levels, per_case

Knows = Literal["cycles", "updates"]
SESSION = 64  # events of a session that are shown to the model


@dataclass(frozen=True)
class Timeline:
    """The metrics of a plan, cycle by cycle, from cycle 1."""

    plan: Plan
    metrics: dict[str, np.ndarray]  # name -> one value for each cycle
    updates: tuple[int, ...]  # the cycles before which the parameters were trained again
    run: Run  # the last one; its ledgers hold what every device spent

    def ahead(self, other: "Timeline", metric: str) -> np.ndarray:
        """The difference to the other, summed over the cycles so far."""
        return np.nancumsum(self.metrics[metric] - other.metrics[metric])


def simulate_cycles(
    plan: Plan | str,
    log: Population,
    cycles: int,
    *,
    every: int,
    again: int | None = None,
    knows: Knows = "cycles",
    settings: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = ("HR@5",),
    balanced: bool = True,
    seed: int = 0,
) -> Timeline:
    """Train on cycle 0, then test on each cycle before learning from it.

    A user without an event before a cycle is not evaluated in it: candidates are the items seen before and the target.

    Args:
        plan: what to run; a plan of 0 rounds is evaluated all the same.
        log: the events of all users, with times.
        cycles: how many, the first included.
        every: after how many cycles the parameters are trained again.
        again: rounds of such a training; as many as the plan says by default.
        knows: whether the private state of a user follows the history after every cycle, or only after training.
        settings: changes to the plan, as for `tacit.simulate`.
        metrics: by name; the mean over the test cases of a session, then the sessions of a user, then users.
        balanced: divide the active days of each user, so that nearly as many users are active in each cycle; else
            the calendar.
        seed: of the runs, and of ties.
    """
    if every < 1:
        raise DataError(f"simulate_cycles needs every to be at least 1 cycle, got {every}.")
    chosen, when = choose(plan, settings), cycles_of(log, cycles, balanced)
    grid = (-(-int(log.lengths.max()) // 512) * 512,)  # one shape for all cycles: each shape is a program
    run, learned, updates = _train(chosen, log, when, 1, seed, grid, None), 1, []
    found: list[list[float]] = []
    for now in range(1, cycles):
        if now > 1 and (now - 1) % every == 0 and chosen.stages[-1].rounds:
            run, learned = _train(_shortened(chosen, again), log, when, now, seed, grid, run), now
            updates.append(now)
        known = take(log, when < (now if knows == "cycles" else learned))
        found.append(_evaluate_cycle(run, log, when, now, known, metrics, seed, grid))
    columns = {name: np.array(column) for name, column in zip(metrics, zip(*found))}
    return Timeline(chosen, columns, tuple(updates), run)


def _train(
    plan: Plan, log: Population, when: np.ndarray, now: int, seed: int, grid: Sequence[int], before: Run | None
) -> Run:
    """A run on everything before a cycle, from where the run before it stood."""
    start = None
    if before is not None:
        start = Start(before.params, homes_by_id(before.buckets), np.arange(len(log)))
    return simulate(
        plan,
        take(log, when < now),
        seed=seed,
        quiet=True,
        performance=Performance(grid=grid),
        start=start,
        after=before,
    )


def _shortened(plan: Plan, rounds: int | None) -> Plan:
    if rounds is None:
        return plan
    return replace(plan, stages=tuple(stage.with_rounds(rounds) if stage.rounds else stage for stage in plan.stages))


def _evaluate_cycle(
    run: Run,
    log: Population,
    when: np.ndarray,
    now: int,
    known: Population,
    metrics: Sequence[str],
    seed: int,
    grid: Sequence[int],
) -> list[float]:
    """The metrics of one cycle, of users with the history known; nan where there is no test case."""
    if not (when == now).any():
        return [math.nan] * len(metrics)
    split = replace(cycle(log, when, now, recent=SESSION), people=known)
    split = replace(split, test=_with_candidates(split))
    if not len(split.test):
        return [math.nan] * len(metrics)
    seen = SeenBefore(split, plus_target=True, in_training=True)
    found = ranks(run, split, seen, seed=seed, grid=grid)
    groups = levels("user", split.test.device, split.test.session)
    return [average(per_case(found, name), groups).value for name in metrics]


def _with_candidates(split: Split) -> Cases:
    """The test cases of users with earlier events; without any, the target is the only candidate, and always a hit."""
    some = split.train.lengths[split.test.device] > 0
    return split.test.at(some)
