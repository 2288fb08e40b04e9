"""Graph: a person, the items beside them, and unnamed others beside those items; one layer of attention over all.

h_i = e_i + W_n m_i,  where m_i is the mean vector of the others who have item i
a_i = softmax of leakyrelu(a · [W h_i, W e_u]),  h_u = e_u + Σ a_i W h_i,  ŷ_j = h_u · e_j
"""

import jax
import jax.numpy as jnp

LAYERS = ("graph_layer", "graph_voice", "graph_others")  # W, a, W_n


def new_layers(key: jax.Array, dim: int) -> dict[str, jax.Array]:
    """W and W_n near the identity, so that an untrained graph passes on what it is given; a of zeros: all items alike."""
    one, other = jax.random.split(key)
    near = [jnp.eye(dim) * scale + 0.1 * jax.random.normal(k, (dim, dim)) for k, scale in ((one, 1.0), (other, 0.1))]
    return dict(zip(LAYERS, (near[0], jnp.zeros(2 * dim), near[1])))


def person_vector(theta: dict, e: jax.Array, items: jax.Array, others: jax.Array, real: jax.Array) -> jax.Array:
    """h_u of a person e [d] beside items [n, d] with the means of others [n, d]; items that are not real are not there."""
    x = (items + others @ theta["graph_others"]) @ theta["graph_layer"]
    voice, own = jnp.split(theta["graph_voice"], 2)
    heard = jax.nn.leaky_relu(x @ voice + (e @ theta["graph_layer"]) @ own)
    a = jax.nn.softmax(jnp.where(real, heard, -1e30)) * real  # without any item, nothing is added
    return e + a @ x
