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
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.mechanisms._parts.total import collect

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


class PreparedHistories:
    """What a method makes of each person's history (`Method.prepare`): computed when first needed, then kept."""

    def __init__(self, method: Method, people: People):
        self.method, self.people = method, people
        self._stacks: dict[int, tuple[np.ndarray, Any]] = {}  # padded length -> ids, ascending, and their rows

    def rows(self, ids: np.ndarray, length: int) -> Any:
        """The prepared histories of these people, stacked; `groups` pads all of them to this length."""
        if length not in self._stacks:
            self._stacks[length] = self._prepare(length)
        known, stack = self._stacks[length]
        at = np.searchsorted(known, ids)
        return jax.tree.map(lambda leaf: leaf[at], stack)

    def _prepare(self, length: int) -> tuple[np.ndarray, Any]:
        """All people whose histories are padded to this length, chunk by chunk."""
        chunks = [ids for ids, of in groups(self.people, np.arange(len(self.people))) if of == length]
        made = []
        for ids in chunks:
            room = min(CHUNK, 1 << (ids.size - 1).bit_length())
            stack = _prepare(
                self.method, _histories(self.people, np.pad(ids, (0, room - ids.size), mode="edge"), length)
            )
            made.append(jax.tree.map(lambda leaf: np.asarray(leaf)[: ids.size], stack))  # noqa: B023
        return np.concatenate(chunks), jax.tree.map(lambda *leaves: np.concatenate(leaves), *made)


def shapes(methods: list[Method], people: People, stages: int, limited: bool) -> Home:
    """The shapes of everybody's homes after entering so many stages, without running anything."""
    n = len(people)
    homes = jax.eval_shape(jax.vmap(new_home), jax.ShapeDtypeStruct((n, 2), jnp.uint32))
    history = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), people.histories(np.array([0]), SHORTEST)
    )
    allowed = jax.ShapeDtypeStruct((n,), jnp.int32) if limited else None
    for stage in range(stages):
        own = jax.eval_shape(_prepare, methods[stage], history)
        homes = jax.eval_shape(lambda *parts: _enter(methods[stage], stage, *parts), homes, own, allowed)  # noqa: B023
    return homes


def enter_all(stage: int, prepared: PreparedHistories, homes: Home, allowance: np.ndarray | None) -> Home:
    """Everybody begins a stage."""
    parts = groups(prepared.people, np.arange(len(prepared.people)))
    made = []
    for ids, length in parts:
        some = jax.tree.map(lambda leaf: leaf[ids], homes)  # noqa: B023
        made.append(_enter(prepared.method, stage, some, prepared.rows(ids, length), _some(allowance, ids)))
    return _together(made, [ids for ids, _ in parts])


def step_some(
    mechanism: Mechanism, stage: int, broadcast: Broadcast, prepared: PreparedHistories, homes: Home, ids: np.ndarray
) -> tuple[Home, list[Report], np.ndarray]:
    """Those asked take their step: everybody's homes after it, the reports in stacks, and who of them sends."""
    after, reports, who = jax.tree.map(np.array, homes), [], np.zeros(len(prepared.people), bool)
    for some, length in groups(prepared.people, ids):
        room = min(CHUNK, 1 << (some.size - 1).bit_length())
        at = np.pad(some, (0, room - some.size), mode="edge")
        mine = jax.tree.map(lambda leaf: leaf[at], homes)  # noqa: B023
        moved, made = _step(prepared.method, mechanism, stage, broadcast, mine, prepared.rows(at, length))
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


def adapted(stage: int, params: dict, prepared: PreparedHistories, homes: Home, person: int) -> tuple[Any, Any]:
    """One person's private state after adapting to the last broadcast, and what the method made of the history."""
    ids = np.array([person])
    length = groups(prepared.people, ids)[0][1]
    own = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), prepared.rows(ids, length))
    home = jax.tree.map(lambda leaf: jnp.asarray(leaf[person]), homes)
    return adapt(prepared.method, stage, params, home, own).local[str(stage)], own


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
def _enter(method: Method, stage: int, homes: Home, owns: Any, allowances: Any) -> Home:
    def one(home: Home, own: Any, allowance: Any) -> Home:
        return enter(method, stage, home, own, allowance)

    return jax.vmap(one)(homes, owns, allowances)  # an allowance that is None is no leaf: vmap passes it on


@partial(jax.jit, static_argnums=2)
def _step(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, homes: Home, owns: Any
) -> tuple[Home, Report]:
    def one(home: Home, own: Any) -> tuple[Home, Report]:
        return step(method, mechanism, stage, broadcast, home, own)

    return jax.vmap(one)(homes, owns)


_collect = jax.jit(collect)
