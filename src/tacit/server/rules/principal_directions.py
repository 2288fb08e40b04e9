"""principal_directions: the main directions in which users differ, from a noisy co-occurrence matrix."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.server.rule import Estimate, Rule


class PrincipalDirections(Rule):
    """`vectors` float32[K, dim], from G, the noisy sum over users of x̂x̂ᵀ.

    G·1 is what all users have in common; orthogonal to it, the eigenvectors of G are tastes. This is post-processing of
    what was released, so it costs no privacy. A later round replaces an earlier one.
    """

    former_names: ClassVar[tuple[str, ...]] = ("directions",)
    moves_what_is_sent: ClassVar[bool] = False

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """V ← the eigenvectors of (G + Gᵀ)/2, shrunk by their reliability."""
        del n
        gram = estimate[0]["together"][0]
        return {"vectors": directions((gram + gram.T) / 2, params["vectors"].shape[1])}, state


def directions(gram: jax.Array, dim: int) -> jax.Array:
    """float32[K, dim]: the eigenvectors of a noisy G orthogonal to G·1, each scaled by its reliability.

    G has no negative eigenvalue, so those that appear measure the noise: the lowest is −2s, the edge of its spectrum.
    An eigenvalue θ without noise appears at λ = θ + s²/θ if θ > s, and its eigenvector has cos² = 1 − s²/θ² with the true
    one (Benaych-Georges and Nadakuditi 2011). That is its squared length here; below the noise the length is 0.
    """
    shared = gram.sum(axis=1) / jnp.maximum(jnp.linalg.norm(gram.sum(axis=1)), 1e-12)
    across = jnp.eye(gram.shape[0]) - jnp.outer(shared, shared)
    value, vector = jnp.linalg.eigh(across @ gram @ across)
    s = jnp.maximum(-value[0], 0.0) / 2
    value, vector = (jnp.flip(part, -1)[..., :dim] for part in (value, vector))
    theta = (value + jnp.sqrt(jnp.maximum(value**2 - 4 * s**2, 0.0))) / 2
    trust = jnp.where(value > 2 * s, 1 - (s / jnp.maximum(theta, 1e-12)) ** 2, 0.0)
    found = vector * jnp.sqrt(trust)
    return jnp.pad(found, ((0, 0), (0, dim - found.shape[1])))
