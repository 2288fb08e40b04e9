"""The gate: the one function by which anything leaves a device.

It bounds and randomises (the mechanism's `encode`), counts against the allowance, or sends nothing. Whether a report is
sent depends on the allowance alone, never on private data: an update that is empty or not finite is sent as the zero
update, in the same form as any other.
"""

from functools import reduce

import jax
import jax.numpy as jnp

from tacit.core.messages import Report
from tacit.core.sparse_rows import all_finite, zero_unless
from tacit.privacy.mechanism import Mechanism


def send(
    key: jax.Array,
    mechanism: Mechanism,
    update: dict,
    weight: jax.Array,
    public_state: dict,
    spent: jax.Array,
    allowance: jax.Array | None = None,
) -> tuple[Report, jax.Array, jax.Array]:
    """The report, the messages spent after it, and whether the update had to be replaced by zero.

    The device stops sending after the messages that the plan, or its own budget, allows in this stage, whichever is
    fewer. It sends nothing in a round whose public state has a number that is not positive and finite: the state is public, so this reveals nothing.
    """
    finite = all_finite(update)
    update = zero_unless(finite, update)
    payload = mechanism.encode(key, update, public_state)
    # A weight is private: it is sent only where the mechanism declares so (`shows_weight`), and it must not reveal that the
    # update was replaced.
    weight = jnp.where(jnp.isfinite(weight), weight, 0.0) if mechanism.shows_weight else jnp.ones_like(weight)
    if mechanism.messages is None and allowance is None and not public_state:
        return Report(payload, weight, jnp.asarray(True)), spent + 1, ~finite
    allowed = (spent < _fewer(mechanism.messages, allowance)) & _sound(public_state)
    payload, weight = zero_unless(allowed, (payload, weight))
    return Report(payload, weight, allowed), spent + allowed.astype(spent.dtype), ~finite


def _fewer(messages: int | None, allowance: jax.Array | None) -> jax.Array:
    limits = [jnp.asarray(limit, jnp.int32) for limit in (messages, allowance) if limit is not None]
    return reduce(jnp.minimum, limits, jnp.asarray(jnp.iinfo(jnp.int32).max))


def _sound(public_state: dict) -> jax.Array:
    return reduce(
        jnp.logical_and, ((number > 0) & jnp.isfinite(number) for number in public_state.values()), jnp.asarray(True)
    )
