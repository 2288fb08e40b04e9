"""Mult-VAE: variational autoencoder of item sets. Trained in the lab on pooled data; one forward pass on the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, distinct
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.autoencoder import decode_latent, encode_sum, new_autoencoder


class MultVAE(AtHome):
    """A softmax over all items from the user's items, by a network of layers N – hidden – latent – hidden – N.

    The lab trains it on pooled item sets, with `dropout` of the input, noise in the latent layer, and a weight of the KL
    divergence that rises to `anneal` over a fifth of the epochs. On the device it is one forward pass, for any user with
    at least one item.

    Paper: Liang, Krishnan, Hoffman and Jebara, "Variational autoencoders for collaborative filtering" (WWW 2018).
    """

    catalog: Catalog
    hidden: int = setting(200, at_least=1)
    latent: int = setting(100, at_least=1)
    rate: float = setting(0.001, above=0.0)  # of Adam, in the lab
    epochs: int = setting(50, at_least=1)
    batch: int = setting(128, at_least=1)
    dropout: float = setting(0.5, at_least=0.0, at_most=0.99)
    anneal: float = setting(0.2, at_least=0.0)
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": [
            *("decoder", "decoder_bias", "encoder", "encoder_bias"),
            *("items", "items_bias", "middle", "middle_bias"),
        ],
        "cohort": {"sampler": "pooled"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random weights."""
        return new_autoencoder(key, self.catalog.n_items, self.hidden, self.latent)

    def prepare(self, history: History) -> Rows:
        """The distinct items, each with weight 1/√n, so that the set has length 1."""
        own = distinct(history.items, self.catalog.n_items)
        return own.with_value(own.value / jnp.sqrt(jnp.maximum(own.value.sum(), 1.0)))

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """A layer of zeros, until the first adaptation."""
        del key, own
        return {"layer": jnp.zeros(self.hidden)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """One forward pass, without noise in the latent layer."""
        del key, local
        mean, _ = encode_sum(params, own.value @ gather(params["encoder"], own.index))
        return {"layer": decode_latent(params, mean)}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The log-odds of each item."""
        del own, recent
        return masked(params["items"][candidates] @ local["layer"] + params["items_bias"][candidates], candidates)
