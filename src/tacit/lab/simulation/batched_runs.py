"""Batched runs: several runs of one plan, each on a group of one log's users, as one program over all of them.

The users of a run are places in the log, so histories are prepared once for all runs. What differs between runs, which is
parameters, homes, cohorts and the server's noise, has a leading axis, and `vmap` maps the engine's rounds over it. Each run
ends where `simulate` of its users and its seed would, to rounding; hundreds of steps of a network amplify rounding errors.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.plan import Plan, Stage
from tacit.device.batching import enter_batch, new_homes
from tacit.device.method import Method, build
from tacit.device.round import Home
from tacit.errors import DataError
from tacit.lab.analysis.feasibility import warn_if_infeasible
from tacit.lab.data import Population
from tacit.lab.data.selection import pick
from tacit.lab.plans.loader import complete
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.buckets import device_secrets, prepare_devices
from tacit.lab.simulation.engine import CohortSlots, Job, State, play_rounds
from tacit.lab.simulation.federation import Performance
from tacit.lab.simulation.setup import build_job, init_key, initial_params, run_keys
from tacit.lab.simulation.stage_runner import SCANNED
from tacit.privacy.price import price
from tacit.privacy.sampler import All, Sampler, build_sampler
from tacit.server.round import begin

AT_ONCE = 16  # runs in one program: memory grows with them
CHUNK = 64  # devices of each run stepped at a time


class Models(NamedTuple):
    """What several runs of one plan released."""

    method: Method
    params: dict  # [runs, ...]


class _Participants(NamedTuple):
    """The users of all runs, and which of them take part in each run."""

    log: Population
    users: np.ndarray  # int64[n], ascending
    place: np.ndarray  # int64[runs, m]: places in `users`
    seeds: tuple[int, ...]


def learn_together(
    plan: Plan, log: Population, groups: Sequence[np.ndarray], seeds: Sequence[int], at_once: int = AT_ONCE
) -> Models:
    """One run of the plan for each group of users, each with its seed; so many at a time in one program.

    Where a stage of the plan is not fitted by rounds, the runs are played one after the other.
    """
    _check(groups, seeds)
    plan = complete(plan)
    if any(build_sampler(stage.cohort).fitted != "rounds" for stage in plan.stages):
        return learn_apart(plan, log, groups, seeds)
    methods = [build(stage, log.catalog) for stage in plan.stages]
    warn_if_infeasible(plan, price(plan, len(groups[0])), methods)
    parts = []
    for start in range(0, len(groups), at_once):
        some = slice(start, start + at_once)
        users = np.unique(np.concatenate(groups[some]))
        place = np.stack([np.searchsorted(users, group) for group in groups[some]])
        parts.append(_learn(plan, methods, _Participants(log, users, place, tuple(map(int, seeds[some])))))
    return Models(methods[-1], jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))


def learn_apart(plan: Plan, log: Population, groups: Sequence[np.ndarray], seeds: Sequence[int]) -> Models:
    """The same runs, one after the other."""
    grid = (_longest(log),)
    runs = [
        simulate(plan, pick(log, group), seed=seed, quiet=True, performance=Performance(grid=grid))
        for group, seed in zip(groups, seeds)
    ]
    return Models(runs[0].method, jax.tree.map(lambda *leaves: jnp.stack(leaves), *(run.params for run in runs)))


def _check(groups: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
    sizes = sorted({len(group) for group in groups})
    if len(sizes) != 1 or len(groups) != len(seeds):
        raise DataError(
            f"Runs together need groups of one size and a seed for each, got {len(groups)} groups of "
            f"{' and '.join(map(str, sizes)) or 'no'} people and {len(seeds)} seeds; draw as many people for each."
        )


def _longest(log: Population) -> int:
    """One length for all histories, so that all runs share a program."""
    return max(1, int(log.lengths.max()))


def _learn(plan: Plan, methods: list[Method], runs: _Participants) -> dict:
    """The parameters that some runs end with, [runs, ...]."""
    cost, seeds = price(plan, runs.place.shape[1]), jnp.asarray(runs.seeds)
    secret, noise = jax.vmap(run_keys)(seeds)
    params = jax.vmap(lambda seed: initial_params(init_key(seed), methods))(seeds)
    homes = jax.vmap(partial(_homes, runs.users.size))(secret, jnp.asarray(runs.place))
    for number, (stage, method) in enumerate(zip(plan.stages, methods)):
        own = prepare_devices(method, runs.log, runs.users, _longest(runs.log))
        homes = _enter(method, number, homes, own)
        if not stage.rounds:
            continue
        first = jax.tree.map(lambda leaf: leaf[0], params)
        job = build_job(stage, number, method, cost, first, _longest(runs.log))
        assert job.update is not None
        update = job.update.like()
        memory = jax.vmap(partial(begin, job.mechanism, job.rule, stage.trains, update=update))(params)
        state = _play(job, stage, runs, noise, State(params, memory, [homes]), own)
        params, (homes,) = state.params, state.homes
    return params


def _homes(count: int, root: jax.Array, place: jax.Array) -> Home:
    """Homes of all users in one run; those who are not in it have one that never takes part."""
    own = device_secrets(root, np.arange(place.shape[0]))
    return new_homes(jnp.zeros((count, *own.shape[1:]), own.dtype).at[place].set(own))


@partial(jax.jit, static_argnums=1)
def _enter(method: Method, number: int, homes: Home, own: Any) -> Home:
    return jax.vmap(partial(enter_batch, method, number), (0, None))(homes, own)


def _play(job: Job, stage: Stage, runs: _Participants, noise: jax.Array, state: State, own: Any) -> State:
    """Every round of a stage, some hundred in one program."""
    sampler = build_sampler(stage.cohort)
    for first in range(0, stage.rounds, SCANNED):
        rounds = range(first, min(first + SCANNED, stage.rounds))
        cohort = [_cohorts(sampler, job.stage, rounds, runs)]
        state = _play_batched(job, noise, first, len(rounds), cohort, state, [own])
    return state


@partial(jax.jit, static_argnums=3, donate_argnums=5)
def _play_batched(job: Job, noise: jax.Array, first: Any, count: int, cohort: list, state: State, owns: list) -> State:
    """`count` rounds of every run from `first` on: the engine's rounds, mapped over the axis of runs."""

    def one(noise: jax.Array, cohort: list[CohortSlots], state: State) -> State:
        return play_rounds(job, noise, first, jnp.int32(count), count, cohort, state, owns)[0]

    return jax.vmap(one, (0, [CohortSlots(0, None)], 0))(noise, cohort, state)


def _cohorts(sampler: Sampler, stage: int, rounds: range, runs: _Participants) -> CohortSlots:
    """The cohort of each round of each run, as places among all users; where that is all of its users, once for all rounds."""
    if isinstance(sampler, All):
        slots = _in_chunks(runs.place)
        return CohortSlots(slots, np.int32(slots.shape[1]))
    devices = runs.place.shape[1]
    drawn = [[sampler.draw(seed, stage, number, devices) for number in rounds] for seed in runs.seeds]
    most = max(1, max(ids.size for run in drawn for ids in run))
    slots = np.full((len(drawn), len(rounds), most), -1, np.int32)
    for run, place in zip(range(len(drawn)), runs.place):
        for turn, ids in enumerate(drawn[run]):
            slots[run, turn, : ids.size] = place[ids]
    slots = _in_chunks(slots)
    return CohortSlots(slots, np.full(len(rounds), slots.shape[2], np.int32))


def _in_chunks(slots: np.ndarray) -> np.ndarray:
    """The last axis, cut into chunks of one size; -1 is padding."""
    size = min(CHUNK, slots.shape[-1])
    padded = np.pad(slots, [(0, 0)] * (slots.ndim - 1) + [(0, -slots.shape[-1] % size)], constant_values=-1)
    return padded.reshape(*slots.shape[:-1], -1, size).astype(np.int32)
