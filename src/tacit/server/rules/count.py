"""count: the exact sum of integer counts."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.server.rule import Estimate, Rule, scaled


class Count(Rule):
    """params + Σ update, exactly: for integer counts."""

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """c ← c + Σ c_u."""
        del n
        return jax.tree.map(lambda p, c: p + _whole(c).astype(p.dtype), params, scaled(estimate, "sum")), state


def _whole(count: jax.Array) -> jax.Array:
    """The nearest whole number, where noise has made it a fraction."""
    return jnp.round(count) if jnp.issubdtype(count.dtype, jnp.floating) else count
