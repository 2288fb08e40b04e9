"""The server's part of a round: open, collect, close. It sees the broadcast it sends and the payloads it receives, nothing else.

The simulator and a deployed session run the same functions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.messages import Broadcast, Report, Schema
from tacit.core.sparse_rows import all_finite, is_rows
from tacit.privacy.mechanism import Mechanism, add_reports, empty_total, merge_totals
from tacit.privacy.mechanisms._parts.summed import sum_rows
from tacit.server.rule import Rule

__all__ = [
    "Memory",
    "add_reports",
    "begin",
    "by_rows",
    "checked_close",
    "close",
    "close_rows",
    "merge_totals",
    "noise_key",
    "open_round",
    "trained",
    "zero_total",
]


class Memory(NamedTuple):
    """What a server keeps from round to round beside the parameters."""

    rule: Any  # the rule's own state
    public_state: dict[str, Any]  # the public numbers that the next round is opened with, by name
    noise: Any = ()  # what a mechanism keeps of its noise; in memory only


def begin(
    mechanism: Mechanism | None, rule: Rule, trains: tuple[str, ...], params: dict, update: dict | None = None
) -> Memory:
    """The memory before a stage's first round; a stage that sends nothing has no mechanism.

    `update` has the shape of an update where that is not what is trained.
    """
    if not trains:
        return Memory((), {})
    before = trained(params, trains)
    state, noise = (
        rule.init(before),
        () if mechanism is None else mechanism.noise_state(before if update is None else update),
    )
    public_state = {} if mechanism is None else mechanism.public_state
    public_state = {name: jnp.float32(number) for name, number in public_state.items()}
    if mechanism is not None:
        public_state = mechanism.grant(rule.asks(before, state), public_state)
    return Memory(state, public_state, noise)


def open_round(round: Any, params: dict, public_state: dict | None = None) -> Broadcast:
    """What every device of the round's cohort receives."""
    return Broadcast(jnp.asarray(round, jnp.int32), params, public_state or {})


def trained(params: dict, trains: tuple[str, ...]) -> dict:
    """The leaves a stage moves."""
    return {name: params[name] for name in trains}


def zero_total(
    mechanism: Mechanism, params: dict, trains: tuple[str, ...], weights: int, update: Schema | None = None
) -> Any:
    """The total of no reports; `update` is the form of an update where that is not what is trained."""
    like = trained(params, trains) if update is None else update.like()
    return empty_total(mechanism, like, weights)


def by_rows(mechanism: Mechanism, rule: Rule, update: Any, reports: float) -> bool:
    """Whether a round of so many reports is closed faster by reading and writing only the rows that were sent.

    True where the rule and the mechanism allow it, and those rows are few compared with the tables they belong to:
    sorting them takes time.
    """
    leaves = jax.tree.leaves(update, is_leaf=is_rows)
    few = (is_rows(leaf) and reports * leaf.index.shape[0] * 4 <= leaf.rows for leaf in leaves)
    return mechanism.as_sent and rule.moves_rows and bool(leaves) and all(few)


def close_rows(
    rule: Rule, trains: tuple[str, ...], params: dict, reports: list[Report], memory: Memory
) -> tuple[dict, Memory, jax.Array]:
    """`close` of a few reports, stack by stack, where `by_rows` holds: the same rule, on the rows that were sent.

    A round without reports names no row, so no parameter changes.
    """
    rows, weight = sum_rows([(*stack,) for stack in reports])
    n = jnp.stack([stack.sent.sum(dtype=jnp.int32) for stack in reports]).sum()
    before = {name: params[name].at[rows[name].index].get(mode="clip") for name in trains}
    sums = {name: jnp.moveaxis(rows[name].value, 1, 0) for name in trains}
    after, state = rule.finish(before, (sums, weight), n, memory.rule)
    moved = {name: params[name].at[rows[name].index].set(after[name], mode="drop") for name in trains}
    return {**params, **moved}, memory._replace(rule=state), n


def noise_key(root: jax.Array, stage: Any, round: Any) -> jax.Array:
    """The key of the server's noise in one round of one stage, from the root key of the run; no two rounds share one."""
    return jax.random.fold_in(jax.random.fold_in(root, stage), round)


def close(
    key: jax.Array,
    mechanism: Mechanism,
    rule: Rule,
    trains: tuple[str, ...],
    params: dict,
    total: Any,
    memory: Memory,
) -> tuple[dict, Memory, jax.Array]:
    """Parameters and memory after the round, and the number of reports.

    Without reports nothing changes, unless the mechanism adds noise here: then it must not show that there were none.
    """
    return checked_close(key, mechanism, rule, trains, params, total, memory)[:3]


def checked_close(
    key: jax.Array,
    mechanism: Mechanism,
    rule: Rule,
    trains: tuple[str, ...],
    params: dict,
    total: Any,
    memory: Memory,
) -> tuple[dict, Memory, jax.Array, jax.Array]:
    """`close`, and whether the estimate and all that follows from it are finite numbers."""
    payloads, n = total
    estimate, noise = mechanism.release(key, payloads, n, memory.public_state, memory.noise)
    before = trained(params, trains)
    after, state = rule.finish(before, estimate, n, memory.rule)
    public_state = mechanism.next_public_state(key, payloads, memory.public_state)
    then = Memory(state, mechanism.grant(rule.asks(after, state), public_state), noise)
    moves = (n > 0) | mechanism.always_releases
    after, then = jax.tree.map(lambda new, old: jnp.where(moves, new, old), (after, then), (before, memory))
    return {**params, **after}, then, n, all_finite((after, then)) & (all_finite(estimate) | ~moves)
