"""Autoencoder of item sets: from the items a user has, through a latent layer, to the log-odds of every item."""

import jax
import jax.numpy as jnp


def new_autoencoder(key: jax.Array, items: int, hidden: int, latent: int) -> dict[str, jax.Array]:
    """Glorot initialisation for tanh: uniform within √(6 / (in + out)); biases 0."""
    shapes = {"encoder": (items, hidden), "middle": (hidden, 2 * latent), "decoder": (latent, hidden)}
    made = {name: _uniform(jax.random.fold_in(key, at), shape) for at, (name, shape) in enumerate(shapes.items())}
    made["items"] = _uniform(jax.random.fold_in(key, 3), (hidden, items)).T
    widths = {"encoder": hidden, "middle": 2 * latent, "decoder": hidden, "items": items}
    return {**made, **{f"{name}_bias": jnp.zeros(width) for name, width in widths.items()}}


def _uniform(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    bound = (6 / sum(shape)) ** 0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def encode_sum(params: dict, summed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log-variance [..., latent], from the weighted sum of the encoder's rows [..., hidden]."""
    h = jnp.tanh(summed + params["encoder_bias"])
    mean, log_variance = jnp.split(h @ params["middle"] + params["middle_bias"], 2, axis=-1)
    return mean, log_variance


def decode_latent(params: dict, middle: jax.Array) -> jax.Array:
    """The last hidden layer [..., hidden]; an item's log-odds are its row of `items` times it, plus its bias."""
    return jnp.tanh(middle @ params["decoder"] + params["decoder_bias"])
