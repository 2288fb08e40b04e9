"""Batches on a node: the devices of one machine, stepped together. Each takes the same step as alone.

Homes are kept stacked, in the order of the users. Users are stepped in chunks of similar history length, padded alike;
their reports may be summed on the node.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report
from tacit.device.batching import (
    enter_batch,
    in_id_order,
    new_homes,
    pad_ids,
    power_of_two,
    prepare_batch,
    step_batch,
)
from tacit.device.histories import People
from tacit.device.method import Method
from tacit.device.round import Home, adapt
from tacit.privacy.mechanism import Mechanism, add_reports

CHUNK = 256  # users stepped at a time
SHORTEST = 8  # the least padding: few lengths, few programs
NoiseKeys = Callable[[np.ndarray, Home], jax.Array]  # users' ids and their homes -> a noise key for each report


def homes_for(secrets: np.ndarray) -> Home:
    """Homes before the first stage for users with these secrets, uint32[n, 2]."""
    return jax.tree.map(np.asarray, new_homes(jnp.asarray(secrets, jnp.uint32)))


def groups(people: People, ids: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Chunks of these users, each with the length its histories are padded to."""
    lengths = np.maximum(people.shared.lengths[ids], SHORTEST)
    padded = 1 << np.ceil(np.log2(lengths)).astype(int)
    found = []
    for length in np.unique(padded):
        some = ids[padded == length]
        found += [(some[at : at + CHUNK], int(length)) for at in range(0, some.size, CHUNK)]
    return found


class PreparedHistories:
    """Each user's prepared history (`Method.prepare`): computed when first needed, then kept."""

    def __init__(self, method: Method, people: People):
        self.method, self.people = method, people
        self._stacks: dict[int, tuple[np.ndarray, Any]] = {}  # padded length -> ids, ascending, and their rows

    def rows(self, ids: np.ndarray, length: int) -> Any:
        """The prepared histories of these users, stacked; `groups` pads all of them to this length."""
        if length not in self._stacks:
            self._stacks[length] = self._prepare(length)
        known, stack = self._stacks[length]
        at = np.searchsorted(known, ids)
        return jax.tree.map(lambda leaf: leaf[at], stack)

    def _prepare(self, length: int) -> tuple[np.ndarray, Any]:
        """All users whose histories are padded to this length, chunk by chunk."""
        chunks = [ids for ids, of in groups(self.people, np.arange(len(self.people))) if of == length]
        made = []
        for ids in chunks:
            at = pad_ids(ids, min(CHUNK, power_of_two(ids.size)))
            stack = _prepare(self.method, _histories(self.people, at, length))
            made.append(jax.tree.map(lambda leaf: np.asarray(leaf)[: ids.size], stack))  # noqa: B023
        return np.concatenate(chunks), jax.tree.map(lambda *leaves: np.concatenate(leaves), *made)


def home_shapes(methods: list[Method], people: People, stages: int, limited: bool) -> Home:
    """The shapes of all homes after entering so many stages; nothing is computed."""
    n = len(people)
    homes = jax.eval_shape(new_homes, jax.ShapeDtypeStruct((n, 2), jnp.uint32))
    history = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), people.histories(np.array([0]), SHORTEST)
    )
    allowed = jax.ShapeDtypeStruct((n,), jnp.int32) if limited else None
    for stage in range(stages):
        own = jax.eval_shape(_prepare, methods[stage], history)
        homes = jax.eval_shape(lambda *parts: _enter(methods[stage], stage, *parts), homes, own, allowed)  # noqa: B023
    return homes


def enter_all(stage: int, prepared: PreparedHistories, homes: Home, allowance: np.ndarray | None) -> Home:
    """The homes after all users have entered a stage."""
    parts = groups(prepared.people, np.arange(len(prepared.people)))
    made = []
    for ids, length in parts:
        some = jax.tree.map(lambda leaf: leaf[ids], homes)  # noqa: B023
        allowed = None if allowance is None else jnp.asarray(allowance[ids])
        made.append(_enter(prepared.method, stage, some, prepared.rows(ids, length), allowed))
    return in_id_order(made, [ids for ids, _ in parts])


def step_some(
    mechanism: Mechanism,
    stage: int,
    broadcast: Broadcast,
    prepared: PreparedHistories,
    homes: Home,
    ids: np.ndarray,
    noise_keys: NoiseKeys,
) -> tuple[Home, list[Report], np.ndarray]:
    """One round of the users with these ids: all homes after it, the reports in stacks, and the ids of those who send."""
    after, reports, senders = jax.tree.map(np.array, homes), [], np.zeros(len(prepared.people), bool)
    for some, length in groups(prepared.people, ids):
        at = pad_ids(some, min(CHUNK, power_of_two(some.size)))
        chunk = jax.tree.map(lambda leaf: leaf[at], homes)  # noqa: B023
        noise = noise_keys(at, chunk)
        moved, made = _step(prepared.method, mechanism, stage, broadcast, chunk, prepared.rows(at, length), noise)
        made = made._replace(sent=made.sent & (jnp.arange(at.size) < some.size))
        _put(after, some, moved)
        senders[some] = np.asarray(made.sent)[: some.size]
        reports.append(made)
    return after, reports, np.flatnonzero(senders).astype(np.int32)


def total_of(mechanism: Mechanism, total: Any, reports: list[Report]) -> Any:
    """The sum of stacked reports, added to a total."""
    for stack in reports:
        total = _collect(mechanism, total, stack)
    return total


def adapted(stage: int, params: dict, prepared: PreparedHistories, homes: Home, user: int) -> tuple[Any, Any]:
    """One user's private state after adapting to the last broadcast, and what the method made of the history."""
    ids = np.array([user])
    length = groups(prepared.people, ids)[0][1]
    own = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), prepared.rows(ids, length))
    home = jax.tree.map(lambda leaf: jnp.asarray(leaf[user]), homes)
    return adapt(prepared.method, stage, params, home, own).local[str(stage)], own


def _put(homes: Home, ids: np.ndarray, moved: Home) -> None:
    """Write the moved homes back, in place; rows beyond the ids are padding."""
    for old, new in zip(jax.tree.leaves(homes), jax.tree.leaves(moved)):
        old[ids] = np.asarray(new)[: ids.size]


def _histories(people: People, ids: np.ndarray, length: int) -> Any:
    return jax.tree.map(jnp.asarray, people.histories(ids, length))


_prepare = jax.jit(prepare_batch)
_collect = jax.jit(add_reports)


@partial(jax.jit, static_argnums=1)
def _enter(method: Method, stage: int, homes: Home, owns: Any, allowances: Any) -> Home:
    return enter_batch(method, stage, homes, owns, allowances)


@partial(jax.jit, static_argnums=2)
def _step(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, homes: Home, owns: Any, noise: jax.Array
) -> tuple[Home, Report]:
    return step_batch(method, mechanism, stage, broadcast, homes, owns, noise)
