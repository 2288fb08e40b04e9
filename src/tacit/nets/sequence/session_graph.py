"""Session graph: a sequence as a graph of its distinct items, read by one gated step along its edges.

A_out[u, v] is how often v follows u, as a share of what follows u; A_in[v, u] as a share of what comes before v.
a = [A_in (h W_in), A_out (h W_out)],  h ← GRU(h, a)
α_t = q · σ(W₁ h_last + W₂ h_t + c),  taste = W₃ [h_last, Σ α_t h_t]
"""

import jax
import jax.numpy as jnp

from tacit.nets.sequence.gru import cell, new_gru

LAYERS = ("edge_in", "edge_out", "node_input", "node_state", "last_layer", "each_layer", "voice", "mix_layer")


def new_graph(key: jax.Array, size: int) -> dict[str, jax.Array]:
    """All layers, uniform within ±1/√size; offsets are last rows, and start at 0."""
    keys = jax.random.split(key, 7)

    def layer(key: jax.Array, rows: int, offset: bool = True) -> jax.Array:
        made = jax.random.uniform(key, (rows, size), minval=-(size**-0.5), maxval=size**-0.5)
        return jnp.concatenate([made, jnp.zeros((1, size))]) if offset else made

    edges, gates = [layer(keys[0], size), layer(keys[1], size)], new_gru(keys[2], 2 * size, size)
    votes = [layer(keys[3], size, offset=False), layer(keys[4], size), layer(keys[5], 1, offset=False)[0]]
    return dict(zip(LAYERS, (*edges, *gates, *votes, layer(keys[6], 2 * size, offset=False))))


def nodes(items: jax.Array) -> jax.Array:
    """Each event's node, int32[L]: where its item stands first.

    >>> nodes(jnp.array([-1, 5, 7, 5])).tolist()
    [0, 1, 2, 1]
    """
    return jnp.argmax(items[:, None] == items[None, :], axis=1)


def edges(items: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A_in and A_out, [L, L], over nodes; padding in front has no edges.

    >>> into, out = edges(jnp.array([5, 7, 5, 6]))
    >>> out[0].tolist(), into[0].tolist()
    ([0.0, 0.5, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0])
    """
    at, real = nodes(items), (items[:-1] >= 0) & (items[1:] >= 0)
    count = jnp.zeros((items.size, items.size)).at[at[:-1], at[1:]].add(real)
    share = lambda rows: rows / jnp.maximum(rows.sum(1, keepdims=True), 1.0)  # noqa: E731
    return share(count.T), share(count)


def walked(theta: dict, items: jax.Array, x: jax.Array) -> jax.Array:
    """The nodes after one gated step, seen from every event, [L, size], of events whose items are x."""
    into, out = edges(items)
    a = [A @ (x @ theta[name][:-1] + theta[name][-1]) for A, name in ((into, "edge_in"), (out, "edge_out"))]
    gates = jnp.concatenate(a, axis=1) @ theta["node_input"][:-1] + theta["node_input"][-1]
    return cell(gates, theta["node_state"], x)[nodes(items)]


def read_out(theta: dict, h: jax.Array, real: jax.Array) -> jax.Array:
    """One taste, [size], of all events and of the last, which stands at the end; 0 where nothing is real."""
    h = jnp.where(real[:, None], h, 0.0)
    seen = h[-1] @ theta["last_layer"] + h @ theta["each_layer"][:-1] + theta["each_layer"][-1]
    a = jnp.where(real, jax.nn.sigmoid(seen) @ theta["voice"], 0.0)
    return jnp.append(h[-1], a @ h) @ theta["mix_layer"]
