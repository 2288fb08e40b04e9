"""The crew: a round of many devices on every core. Buckets are dealt to teams; a team is one program and one thread."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import Awake, Job, State, Tally, close, fold, wake
from tacit.server import round as server

_fold = jax.jit(fold, donate_argnames=("homes", "rows"))
_close = jax.jit(close)


class Crew(NamedTuple):
    """Who works on which buckets: a team is one program, and teams work side by side."""

    teams: list[list[int]]
    pool: ThreadPoolExecutor | None


def one_round(
    job: Job, key: jax.Array, round: int, state: State, owns: list, awake: list[Awake], crew: Crew
) -> tuple[State, Tally]:
    """A round of many devices: every team folds its buckets from an empty total, then the server closes."""
    broadcast = server.open_round(round, state.params, state.memory.dials)

    def work(team: list[int]) -> tuple:
        parts = (state.homes, owns, awake, state.rows)
        mine = (None if part is None else [part[b] for b in team] for part in parts)
        made = _fold(job, broadcast, *mine)
        return jax.block_until_ready(made) if crew.pool else made

    made = list((crew.pool.map if crew.pool else map)(work, crew.teams))
    order = np.argsort([b for team in crew.teams for b in team])
    homes = [home for part in made for home in part[0]]
    each = None if state.rows is None else [rows for part in made for rows in part[2][1]]
    params, memory, n = _close(job, key, broadcast.round, state.params, state.memory, [part[1] for part in made])
    tally = Tally(n, jnp.stack([part[2][0] for part in made]).sum(0)[None], broadcast.dials)
    return State(params, memory, [homes[b] for b in order], None if each is None else [each[b] for b in order]), tally


def hands() -> int:
    """How many teams can work at a time: the cores of a CPU; one program has a GPU to itself."""
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hire(job: Job, params: dict, buckets: list[Bucket]) -> Crew:
    """As many teams as there are hands, each with as much to do.

    A program on the CPU keeps one core busy, so teams get a thread each. Batched LAPACK calls from two threads were
    seen to hang: a method that lowers to any is given to a single team.
    """
    alone = Crew([list(range(len(buckets)))], None)
    if hands() < 2 or len(buckets) < 2 or _calls_lapack(job, params, buckets[0]):
        return alone
    teams: list[list[int]] = [[] for _ in range(min(hands(), len(buckets)))]
    load = [0] * len(teams)
    for b in sorted(range(len(buckets)), key=lambda b: -buckets[b].length * buckets[b].ids.size):
        least = load.index(min(load))
        teams[least].append(b)
        load[least] += buckets[b].length * buckets[b].ids.size
    return Crew(teams, ThreadPoolExecutor(len(teams), "tacit"))


def _calls_lapack(job: Job, params: dict, bucket: Bucket) -> bool:
    first = jax.tree.map(lambda leaf: leaf[:1], (bucket.home, bucket.own))
    program = _fold.lower(job, server.open_round(0, params), [first[0]], [first[1]], [wake(np.zeros(1, int), 1)])
    return "lapack" in program.as_text()
