"""Low-rank tensor projections of a sequence: how ordered pairs, triples and so on of its steps line up with learned ones.

⟨ℓ₁ ⊗ … ⊗ ℓ_k, Φ_k(x)⟩ = Σ_{i₁ < … < i_k} Π_j ⟨ℓ_j, x_{i_j}⟩, by k running sums instead of L^k products (Toth, Bonnier
and Oberhauser 2021).
"""

import jax
import jax.numpy as jnp


def new_tensor(key: jax.Array, levels: int, inputs: int, rank: int) -> jax.Array:
    """Random functionals [levels, inputs + 1, rank]; the last row of each level is its offset, 0.

    Uniform in ±√(3 v_k), v₁ = 2/(d + r), v_{k+1} = (d^k + r)/(d^{k+1} + r): every level starts equally loud.
    """
    variances = [2.0 / (inputs + rank)]
    for level in range(1, levels):
        variances.append((inputs**level + rank) / (inputs ** (level + 1) + rank))
    reach = jnp.sqrt(3.0 * jnp.asarray(variances))[:, None, None]
    kernel = reach * jax.random.uniform(key, (levels, inputs, rank), minval=-1.0, maxval=1.0)
    return jnp.concatenate([kernel, jnp.zeros((levels, 1, rank))], axis=1)


def project(tensor: jax.Array, steps: jax.Array, real: jax.Array) -> jax.Array:
    """Y [levels, rank] of a sequence [L, inputs]; level k reuses the functionals of the levels below it.

    Steps that are not `real` take part in no pair. O(L · levels · inputs · rank).

    >>> steps = jnp.eye(3)[jnp.array([0, 0, 1])]  # the word "aab", letter by letter
    >>> a_then_b = jnp.array([[[1.0], [0], [0], [0]], [[0.0], [1], [0], [0]]])
    >>> project(a_then_b, steps, jnp.ones(3, bool))[:, 0].tolist()  # how often a; how often a, later b
    [2.0, 2.0]
    """
    # M_k = X ℓ_k + b_k
    m = jnp.einsum("ld,kdr->klr", steps, tensor[:, :-1]) + tensor[:, -1:]
    m = jnp.where(real[:, None], m, 0.0)
    # R₁ = M₁,  R_k[t] = M_k[t] ∘ Σ_{s<t} R_{k−1}[s],  Y_k = Σ_t R_k[t]
    r, sums = m[0], [m[0].sum(axis=0)]
    for level in m[1:]:
        r = level * _before(r)
        sums.append(r.sum(axis=0))
    return jnp.stack(sums)


def _before(x: jax.Array) -> jax.Array:
    """Σ_{s<t} x[s] along the first axis."""
    return jnp.concatenate([jnp.zeros_like(x[:1]), jnp.cumsum(x[:-1], axis=0)])


def with_time(x: jax.Array, real: jax.Array) -> jax.Array:
    """[L, 1 + d]: when each step is, evenly from −1 to 1 over the real steps, before what it is; 0 where not real."""
    place, count = jnp.cumsum(real) - 1, real.sum()
    time = 2.0 * place / jnp.maximum(count - 1, 1) - 1.0
    return jnp.where(real[:, None], jnp.concatenate([time[:, None], x], axis=1), 0.0)


def changes(x: jax.Array) -> jax.Array:
    """x_i − x_{i−1}, and x₀ itself."""
    return x - jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


def standardised(levels: jax.Array, affine: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
    """Levels [..., m, r] as scale · (y − mean)/deviation + shift; `affine` [m, 2], the statistics [..., m]."""
    y = (levels - mean[..., None]) / jnp.sqrt(variance[..., None] + 1e-3)
    return affine[:, :1] * y + affine[:, 1:]
