"""Graph layers: attention over a user's item neighbourhood, and a gated step on the graph of a session."""

import jax
import jax.numpy as jnp

from tacit.nets.sequence.gru import gru_cell, new_gru

# ---- attention over a user's neighbourhood ----


ATTENTION_LAYERS = ("graph_layer", "graph_voice", "graph_others")  # W, a, W_n


def new_graph_attention(key: jax.Array, dim: int) -> dict[str, jax.Array]:
    """W and W_n near the identity, so that an untrained layer passes its input on; a of zeros: equal attention.

    h_i = e_i + W_n m_i,  where m_i is the mean vector of the other users who have item i
    a_i = softmax of leakyrelu(a · [W h_i, W e_u]),  h_u = e_u + Σ a_i W h_i,  ŷ_j = h_u · e_j
    """
    one, other = jax.random.split(key)
    near = [jnp.eye(dim) * scale + 0.1 * jax.random.normal(k, (dim, dim)) for k, scale in ((one, 1.0), (other, 0.1))]
    return dict(zip(ATTENTION_LAYERS, (near[0], jnp.zeros(2 * dim), near[1])))


def user_vector(theta: dict, e: jax.Array, items: jax.Array, others: jax.Array, real: jax.Array) -> jax.Array:
    """h_u of a user e [d] with items [n, d] and the means of other users [n, d]; items that are not real are ignored."""
    x = (items + others @ theta["graph_others"]) @ theta["graph_layer"]
    voice, own = jnp.split(theta["graph_voice"], 2)
    logits = jax.nn.leaky_relu(x @ voice + (e @ theta["graph_layer"]) @ own)
    a = jax.nn.softmax(jnp.where(real, logits, -1e30)) * real  # without any item, nothing is added
    return e + a @ x


# ---- a session's graph ----


SESSION_LAYERS = ("edge_in", "edge_out", "node_input", "node_state", "last_layer", "each_layer", "voice", "mix_layer")


def new_session_graph(key: jax.Array, size: int) -> dict[str, jax.Array]:
    """All layers, uniform within ±1/√size; biases are last rows, and start at 0.

    A_out[u, v] is how often v follows u, as a share of what follows u; A_in[v, u] as a share of what precedes v.
    a = [A_in (h W_in), A_out (h W_out)],  h ← GRU(h, a)
    α_t = q · σ(W₁ h_last + W₂ h_t + c),  user vector = W₃ [h_last, Σ α_t h_t]
    """
    keys = jax.random.split(key, 7)

    def layer(key: jax.Array, rows: int, offset: bool = True) -> jax.Array:
        made = jax.random.uniform(key, (rows, size), minval=-(size**-0.5), maxval=size**-0.5)
        return jnp.concatenate([made, jnp.zeros((1, size))]) if offset else made

    edges, gates = [layer(keys[0], size), layer(keys[1], size)], new_gru(keys[2], 2 * size, size)
    votes = [layer(keys[3], size, offset=False), layer(keys[4], size), layer(keys[5], 1, offset=False)[0]]
    return dict(zip(SESSION_LAYERS, (*edges, *gates, *votes, layer(keys[6], 2 * size, offset=False))))


def graph_nodes(items: jax.Array) -> jax.Array:
    """Each event's node, int32[L]: the position of its item's first occurrence.

    >>> graph_nodes(jnp.array([-1, 5, 7, 5])).tolist()
    [0, 1, 2, 1]
    """
    return jnp.argmax(items[:, None] == items[None, :], axis=1)


def graph_edges(items: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A_in and A_out, [L, L], over nodes; padding in front has no edges.

    >>> into, out = graph_edges(jnp.array([5, 7, 5, 6]))
    >>> out[0].tolist(), into[0].tolist()
    ([0.0, 0.5, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0])
    """
    at, real = graph_nodes(items), (items[:-1] >= 0) & (items[1:] >= 0)
    count = jnp.zeros((items.size, items.size)).at[at[:-1], at[1:]].add(real)
    share = lambda rows: rows / jnp.maximum(rows.sum(1, keepdims=True), 1.0)  # noqa: E731
    return share(count.T), share(count)


def graph_step(theta: dict, items: jax.Array, x: jax.Array) -> jax.Array:
    """The node states after one gated step, one row per event, [L, size], of events whose items are x."""
    into, out = graph_edges(items)
    a = [A @ (x @ theta[name][:-1] + theta[name][-1]) for A, name in ((into, "edge_in"), (out, "edge_out"))]
    gates = jnp.concatenate(a, axis=1) @ theta["node_input"][:-1] + theta["node_input"][-1]
    return gru_cell(gates, theta["node_state"], x)[graph_nodes(items)]


def read_out(theta: dict, h: jax.Array, real: jax.Array) -> jax.Array:
    """The user vector [size] from all events and the last one, which stands at the end; 0 where nothing is real."""
    h = jnp.where(real[:, None], h, 0.0)
    seen = h[-1] @ theta["last_layer"] + h @ theta["each_layer"][:-1] + theta["each_layer"][-1]
    a = jnp.where(real, jax.nn.sigmoid(seen) @ theta["voice"], 0.0)
    return jnp.append(h[-1], a @ h) @ theta["mix_layer"]
