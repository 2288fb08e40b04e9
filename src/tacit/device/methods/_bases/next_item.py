"""Next-item base: a user vector from the preceding events, scored against every item. Trained in the lab, read on the device.

The base of the sequential baselines. A subclass writes `init`, `user_vector` and `losses`; training on pooled data
(`lab/baselines/central/next_item`) calls `loss`, a device calls `score`.
"""

from abc import abstractmethod

import jax
import jax.numpy as jnp
import optax

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.sequence.segments import sequences
from tacit.nets.sequence.windows import NextItemSamples, newest_sequence, next_item_samples, right_aligned


class NextItem(AtHome):
    """ŷ_i = u · q_i + b_i, with u a function of the preceding events; maximises ln softmax of the next item.

    A device is one user, or an organisation whose event fields `person` and `sequence` name the user and sequence of each
    event. A recommendation uses the current session, or without one the newest sequence on the device.
    """

    catalog: Catalog
    dim: int = setting(64, at_least=1)
    window: int = setting(50, at_least=1)  # most events that a user vector uses
    negatives: int = setting(0, at_least=0)  # negatives drawn for each batch; 0: all items
    drop: float = setting(0.2, at_least=0.0, at_most=0.9)
    rate: float = setting(0.001, above=0.0)  # of Adam, in the lab
    penalty: float = setting(0.0, at_least=0.0)
    epochs: int = setting(20, at_least=1)
    batch: int = setting(128, at_least=1)  # samples in a step
    steps: int = setting(0, at_least=0)  # most steps of an epoch; 0: all

    @property
    def stride(self) -> int:
        """Distance between the samples of an epoch in a sequence."""
        return 1

    @property
    def descent(self) -> optax.GradientTransformation:
        """The optimiser of the lab."""
        return optax.chain(optax.add_decayed_weights(self.penalty), optax.adam(self.rate))

    @abstractmethod
    def user_vector(self, params: dict, before: jax.Array) -> jax.Array:
        """u, float32[d], from the preceding events, int32[window], padding in front."""

    @abstractmethod
    def losses(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """The loss of each sample and its weight, of one shape."""

    def prepare(self, history: History) -> dict:
        """The last events of the newest sequence."""
        items, _, place = sequences(self.catalog.event_fields, history.items, history.context)
        return {"newest": newest_sequence(items, place, self.window)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """u · q_i + b_i."""
        del local
        shown = right_aligned(recent, self.window)
        before = jnp.where((shown >= 0).any(), shown, own["newest"])
        bias = params["bias"][candidates] if "bias" in params else 0.0
        return masked(params["items"][candidates] @ self.user_vector(params, before) + bias, candidates)

    def loss(self, params: dict, own: dict, at: jax.Array, key: jax.Array) -> jax.Array:
        """The weighted mean loss of the samples at some events."""
        some = next_item_samples(key, own["items"], own["place"], at, self.window, (0, self.catalog.n_items))
        losses, weights = self.losses(params, key, some)
        return (losses * weights).sum() / jnp.maximum(weights.sum(), 1.0)

    def against_all(self, params: dict, key: jax.Array, users: jax.Array, target: jax.Array) -> jax.Array:
        """−ln softmax of each target [m] by the user vectors [m, d], among all items or the drawn negatives."""
        own, rivals, real = self.negative_scores(params, key, users, target)
        # Each of the drawn negatives stands for n/K items.
        share = jnp.log(self.catalog.n_items / rivals.shape[1])
        rest = jax.nn.logsumexp(jnp.where(real, rivals + share, -jnp.inf), axis=1)
        return jnp.logaddexp(own, rest) - own

    def negative_scores(
        self, params: dict, key: jax.Array, users: jax.Array, target: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Scores of the targets [m] and of negatives [m, K], and which of the latter are not the target itself."""
        n, drawn = self.catalog.n_items, self.negatives
        which = jax.random.randint(key, (drawn,), 0, n) if 0 < drawn < n else jnp.arange(n)
        Q, b = params["items"], params.get("bias", jnp.zeros(n))
        own = (users * Q[target]).sum(-1) + b[target]
        return own, users @ Q[which].T + b[which], which != target[:, None]
