"""Total: what reports come to, (payloads, how many); the same sum wherever it is taken, at the server or in a shard."""

from typing import Any

import jax.numpy as jnp

from tacit.core.messages import Report
from tacit.privacy.mechanism import Mechanism


def empty(mechanism: Mechanism, like: dict, weights: int) -> Any:
    """The total before anybody reported; `like` has the shape of an update."""
    return mechanism.zero(like, weights), jnp.zeros((), jnp.int32)


def collect(mechanism: Mechanism, total: Any, reports: Report) -> Any:
    """Fold a chunk of reports [c, ...] into the running total: the payloads, and how many came."""
    payloads, count = total
    payloads = mechanism.add(payloads, reports.payload, reports.weight, reports.sent)
    return payloads, count + reports.sent.sum(dtype=jnp.int32)


def merge(mechanism: Mechanism, one: Any, other: Any) -> Any:
    """The total of two totals."""
    return mechanism.merge(one[0], other[0]), one[1] + other[1]
