"""The thread pool: a round of many devices on every core. Buckets are shared out to teams; a team is a program on a thread."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import CohortSlots, Job, RoundTally, State, close_round, cohort_slots, fold
from tacit.server.round import open_round

_fold = jax.jit(fold, donate_argnames=("homes", "rows"))
_close = jax.jit(close_round)


class Teams(NamedTuple):
    """Which buckets are stepped by the same program; teams run side by side on the threads of a pool."""

    buckets: list[list[int]]
    pool: ThreadPoolExecutor | None


def play_round(
    job: Job, key: jax.Array, round: int, state: State, owns: list, cohort: list[CohortSlots], teams: Teams
) -> tuple[State, RoundTally]:
    """A round of many devices: every team folds its buckets into a total of its own, then the server closes the round."""
    broadcast = state.broadcast(round)

    def step_team(team: list[int]) -> tuple:
        parts = (state.homes, owns, cohort, state.rows)
        selected = (None if part is None else [part[b] for b in team] for part in parts)
        made = _fold(job, broadcast, *selected)
        return jax.block_until_ready(made) if teams.pool else made

    made = list((teams.pool.map if teams.pool else map)(step_team, teams.buckets))
    order = np.argsort([b for team in teams.buckets for b in team])
    homes = [home for part in made for home in part[0]]
    each = None if state.rows is None else [rows for part in made for rows in part[2][1]]
    params, memory, n = _close(job, key, broadcast.round, state.params, state.memory, [part[1] for part in made])
    tally = RoundTally(n, jnp.stack([part[2][0] for part in made]).sum(0)[None], broadcast.dials)
    return State(params, memory, [homes[b] for b in order], None if each is None else [each[b] for b in order]), tally


def worker_count() -> int:
    """How many teams can run at a time: one for each core of a CPU, one on a GPU."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def assign_teams(job: Job, params: dict, buckets: list[Bucket]) -> Teams:
    """One team for each worker, with about equal loads.

    A program on the CPU uses one core, so each team gets a thread. Batched LAPACK calls from two threads were seen to
    hang: a method that compiles to any is given to a single team.
    """
    if worker_count() < 2 or len(buckets) < 2 or _calls_lapack(job, params, buckets[0]):
        return Teams([list(range(len(buckets)))], None)
    teams: list[list[int]] = [[] for _ in range(min(worker_count(), len(buckets)))]
    load = [0] * len(teams)
    for b in sorted(range(len(buckets)), key=lambda b: -buckets[b].length * buckets[b].ids.size):
        least = load.index(min(load))
        teams[least].append(b)
        load[least] += buckets[b].length * buckets[b].ids.size
    return Teams(teams, ThreadPoolExecutor(len(teams), "tacit"))


def _calls_lapack(job: Job, params: dict, bucket: Bucket) -> bool:
    first = jax.tree.map(lambda leaf: leaf[:1], (bucket.home, bucket.own))
    program = _fold.lower(job, open_round(0, params), [first[0]], [first[1]], [cohort_slots(np.zeros(1, int), 1)])
    return "lapack" in program.as_text()
