"""The server's part of a round: open, collect, close. It sees a broadcast go out and payloads come in, nothing else."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.messages import Broadcast, Report, Schema
from tacit.core.sparse_rows import is_rows
from tacit.privacy.mechanism import Mechanism, add_reports, empty_total, merge_totals
from tacit.privacy.mechanisms._parts.summed import sum_rows
from tacit.server.rule import Rule

__all__ = [
    "Memory",
    "add_reports",
    "begin",
    "by_rows",
    "close",
    "close_rows",
    "merge_totals",
    "nothing",
    "open_round",
    "trained",
]


class Memory(NamedTuple):
    """What a server remembers from round to round beside the parameters."""

    rule: Any  # the rule's own state
    dials: dict[str, Any]  # the public numbers that the next round is opened with, by name


def begin(mechanism: Mechanism | None, rule: Rule, trains: tuple[str, ...], params: dict) -> Memory:
    """The memory before a stage's first round; a stage that sends nothing has no mechanism."""
    dials = {} if mechanism is None else mechanism.dials
    return Memory(rule.init(trained(params, trains)), {name: jnp.float32(dial) for name, dial in dials.items()})


def open_round(round: Any, params: dict, dials: dict | None = None) -> Broadcast:
    """What every device asked in this round is told."""
    return Broadcast(jnp.asarray(round, jnp.int32), params, dials or {})


def trained(params: dict, trains: tuple[str, ...]) -> dict:
    """The leaves a stage moves."""
    return {name: params[name] for name in trains}


def nothing(
    mechanism: Mechanism, params: dict, trains: tuple[str, ...], weights: int, update: Schema | None = None
) -> Any:
    """The total before anybody reported; `update` says what an update looks like where that is not what is trained."""
    like = trained(params, trains) if update is None else update.like()
    return empty_total(mechanism, like, weights)


def by_rows(mechanism: Mechanism, rule: Rule, update: Any, reports: float) -> bool:
    """Whether a round of so many reports is best closed by reading and writing the rows alone that somebody sent.

    It is where the rule and the mechanism allow it, and where those rows are few against the tables they belong to:
    sorting them has its price.
    """
    leaves = jax.tree.leaves(update, is_leaf=is_rows)
    few = (is_rows(leaf) and reports * leaf.index.shape[0] * 4 <= leaf.rows for leaf in leaves)
    return mechanism.as_sent and rule.moves_rows and bool(leaves) and all(few)


def close_rows(
    rule: Rule, trains: tuple[str, ...], params: dict, reports: list[Report], memory: Memory
) -> tuple[dict, Memory, jax.Array]:
    """`close` of a few reports, stack by stack, where `by_rows` holds: the same rule, on the rows that were sent.

    A round that nobody reported in names no row, so nothing moves.
    """
    rows, weight = sum_rows([(*stack,) for stack in reports])
    n = jnp.stack([stack.sent.sum(dtype=jnp.int32) for stack in reports]).sum()
    before = {name: params[name].at[rows[name].index].get(mode="clip") for name in trains}
    sums = {name: jnp.moveaxis(rows[name].value, 1, 0) for name in trains}
    after, state = rule.finish(before, (sums, weight), n, memory.rule)
    moved = {name: params[name].at[rows[name].index].set(after[name], mode="drop") for name in trains}
    return {**params, **moved}, memory._replace(rule=state), n


def close(
    key: jax.Array,
    mechanism: Mechanism,
    rule: Rule,
    trains: tuple[str, ...],
    params: dict,
    total: Any,
    memory: Memory,
) -> tuple[dict, Memory, jax.Array]:
    """Parameters and memory after the round, and how many reported.

    If nobody did, nothing moves; unless the mechanism adds noise here, for then that nobody did must not show.
    """
    payloads, n = total
    estimate = mechanism.estimate(key, payloads, n, memory.dials)
    before = trained(params, trains)
    after, state = rule.finish(before, estimate, n, memory.rule)
    then = Memory(state, mechanism.turn(key, payloads, memory.dials))
    moves = (n > 0) | mechanism.always_releases
    after, then = jax.tree.map(lambda new, old: jnp.where(moves, new, old), (after, then), (before, memory))
    return {**params, **after}, then, n
