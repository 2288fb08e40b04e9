"""Shard: the people of one node, stepped together. Each takes the same step as alone; their reports may be summed at home.

Homes are kept stacked, in the order of the people. People are stepped in chunks of similar history length, padded alike.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report
from tacit.device.histories import People
from tacit.device.method import Method
from tacit.device.round import Home, adapt, enter, new_home, step
from tacit.privacy.mechanism import Mechanism, add_reports

CHUNK = 256  # people stepped at a time
SHORTEST = 8  # the least padding: few lengths, few programs


def furnish(secrets: np.ndarray) -> Home:
    """Empty homes for people with these secrets, uint32[n, 2]."""
    return jax.tree.map(np.asarray, jax.vmap(new_home)(jnp.asarray(secrets, jnp.uint32)))


def groups(people: People, ids: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Chunks of these people with the length their histories are padded to."""
    lengths = np.maximum(people.shared.lengths[ids], SHORTEST)
    padded = 1 << np.ceil(np.log2(lengths)).astype(int)
    found = []
    for length in np.unique(padded):
        some = ids[padded == length]
        found += [(some[at : at + CHUNK], int(length)) for at in range(0, some.size, CHUNK)]
    return found


def shapes(methods: list[Method], people: People, stages: int, limited: bool) -> Home:
    """The shapes of everybody's homes after entering so many stages, without running anything."""
    n = len(people)
    homes = jax.eval_shape(jax.vmap(new_home), jax.ShapeDtypeStruct((n, 2), jnp.uint32))
    history = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), people.histories(np.array([0]), SHORTEST)
    )
    allowed = jax.ShapeDtypeStruct((n,), jnp.int32) if limited else None
    for stage in range(stages):
        homes = jax.eval_shape(lambda *parts: _enter(methods[stage], stage, *parts), homes, history, allowed)  # noqa: B023
    return homes


def enter_all(method: Method, stage: int, people: People, homes: Home, allowance: np.ndarray | None) -> Home:
    """Everybody begins a stage."""
    parts = groups(people, np.arange(len(people)))
    made = []
    for ids, length in parts:
        some = jax.tree.map(lambda leaf: leaf[ids], homes)  # noqa: B023
        made.append(_enter(method, stage, some, _histories(people, ids, length), _some(allowance, ids)))
    return _together(made, [ids for ids, _ in parts])


def step_some(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, people: People, homes: Home, ids: np.ndarray
) -> tuple[Home, list[Report], np.ndarray]:
    """Those asked take their step: everybody's homes after it, the reports in stacks, and who of them sends."""
    after, reports, who = jax.tree.map(np.array, homes), [], np.zeros(len(people), bool)
    for some, length in groups(people, ids):
        room = min(CHUNK, 1 << (some.size - 1).bit_length())
        at = np.pad(some, (0, room - some.size), mode="edge")
        mine = jax.tree.map(lambda leaf: leaf[at], homes)  # noqa: B023
        moved, made = _step(method, mechanism, stage, broadcast, mine, _histories(people, at, length))
        made = made._replace(sent=made.sent & (jnp.arange(room) < some.size))
        _put(after, some, moved)
        who[some] = np.asarray(made.sent)[: some.size]
        reports.append(made)
    return after, reports, np.flatnonzero(who).astype(np.int32)


def total_of(mechanism: Mechanism, total: Any, reports: list[Report]) -> Any:
    """The sum of stacked reports, added to a total."""
    for stack in reports:
        total = _collect(mechanism, total, stack)
    return total


def adapted(method: Method, stage: int, params: dict, people: People, homes: Home, person: int) -> tuple[Any, Any]:
    """One person's private state after adapting to the last broadcast, and what the method made of the history."""
    ids = np.array([person])
    length = groups(people, ids)[0][1]
    own = jax.tree.map(lambda leaf: leaf[0], _prepare(method, _histories(people, ids, length)))
    home = jax.tree.map(lambda leaf: jnp.asarray(leaf[person]), homes)
    return adapt(method, stage, params, home, own).local[str(stage)], own


def _put(homes: Home, ids: np.ndarray, moved: Home) -> None:
    """Homes back to where they belong; beyond the ids, padding."""
    for old, new in zip(jax.tree.leaves(homes), jax.tree.leaves(moved)):
        old[ids] = np.asarray(new)[: ids.size]


def _histories(people: People, ids: np.ndarray, length: int) -> Any:
    return jax.tree.map(jnp.asarray, people.histories(ids, length))


def _some(allowance: np.ndarray | None, ids: np.ndarray) -> jax.Array | None:
    return None if allowance is None else jnp.asarray(allowance[ids])


def _together(parts: list[Home], ids: list[np.ndarray]) -> Home:
    order = np.argsort(np.concatenate(ids))
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[order], *parts)


@jax.jit
def _prepare(method: Method, histories: Any) -> Any:
    return jax.vmap(method.prepare)(histories)


@partial(jax.jit, static_argnums=1)
def _enter(method: Method, stage: int, homes: Home, histories: Any, allowances: Any) -> Home:
    def one(home: Home, history: Any, allowance: Any) -> Home:
        return enter(method, stage, home, method.prepare(history), allowance)

    return jax.vmap(one)(homes, histories, allowances)  # an allowance that is None is no leaf: vmap passes it on


@partial(jax.jit, static_argnums=2)
def _step(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, homes: Home, histories: Any
) -> tuple[Home, Report]:
    def one(home: Home, history: Any) -> tuple[Home, Report]:
        return step(method, mechanism, stage, broadcast, home, method.prepare(history))

    return jax.vmap(one)(homes, histories)


_collect = jax.jit(add_reports)
