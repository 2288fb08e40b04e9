"""Next item: a taste made of the events before, held against every item. Fitted in the lab; read at home.

The base of the sequential baselines. One that inherits writes `init`, `taste` and `lost`; a fit of pooled data
(`lab/central/next_item`) calls `loss`, a device calls `score`.
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
    """ŷ_i = taste(what came before) · q_i + b_i, with ln softmax of what came next as large as it gets.

    A device is one person, or an organisation whose event fields `person` and `sequence` say whose each event is. A
    question is answered from the session that it shows; where it shows none, from the newest sequence at home.
    """

    catalog: Catalog
    dim: int = setting(64, at_least=1)
    window: int = setting(50, at_least=1)  # most events that a taste is made of
    negatives: int = setting(0, at_least=0)  # items drawn for each batch to stand for all; 0: all of them
    drop: float = setting(0.2, at_least=0.0, at_most=0.9)
    rate: float = setting(0.001, above=0.0)  # of Adam, in the lab
    penalty: float = setting(0.0, at_least=0.0)
    epochs: int = setting(20, at_least=1)
    batch: int = setting(128, at_least=1)  # questions in a step
    steps: int = setting(0, at_least=0)  # most steps of an epoch; 0: all

    @property
    def stride(self) -> int:
        """How far apart the questions of an epoch stand in a sequence."""
        return 1

    @property
    def descent(self) -> optax.GradientTransformation:
        """How the lab moves the parameters."""
        return optax.chain(optax.add_decayed_weights(self.penalty), optax.adam(self.rate))

    @abstractmethod
    def taste(self, params: dict, before: jax.Array) -> jax.Array:
        """The taste of one person, float32[d], from the events before, int32[window], padding in front."""

    @abstractmethod
    def lost(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """What is lost at each of some places, and how much each of them counts; of one shape."""

    def prepare(self, history: History) -> dict:
        """The last events of the newest sequence."""
        items, _, place = sequences(self.catalog.event_fields, history.items, history.context)
        return {"newest": newest_sequence(items, place, self.window)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Taste · item, and how liked an item is by everybody."""
        del local
        shown = right_aligned(recent, self.window)
        before = jnp.where((shown >= 0).any(), shown, own["newest"])
        bias = params["bias"][candidates] if "bias" in params else 0.0
        return masked(params["items"][candidates] @ self.taste(params, before) + bias, candidates)

    def loss(self, params: dict, own: dict, at: jax.Array, key: jax.Array) -> jax.Array:
        """The mean over the places that the questions at some events ask for."""
        some = next_item_samples(key, own["items"], own["place"], at, self.window, (0, self.catalog.n_items))
        lost, counts = self.lost(params, key, some)
        return (lost * counts).sum() / jnp.maximum(counts.sum(), 1.0)

    def against_all(self, params: dict, key: jax.Array, tastes: jax.Array, target: jax.Array) -> jax.Array:
        """−ln softmax of each target [m] by the tastes [m, d], among all items or those that stand for them."""
        own, rivals, real = self.rivals(params, key, tastes, target)
        # Few drawn from many count for all: each as often as it would have to be drawn.
        share = jnp.log(self.catalog.n_items / rivals.shape[1])
        rest = jax.nn.logsumexp(jnp.where(real, rivals + share, -jnp.inf), axis=1)
        return jnp.logaddexp(own, rest) - own

    def rivals(
        self, params: dict, key: jax.Array, tastes: jax.Array, target: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Scores of the targets [m], of their rivals [m, K], and which of those are rivals, not the target itself."""
        n, drawn = self.catalog.n_items, self.negatives
        which = jax.random.randint(key, (drawn,), 0, n) if 0 < drawn < n else jnp.arange(n)
        Q, b = params["items"], params.get("bias", jnp.zeros(n))
        own = (tastes * Q[target]).sum(-1) + b[target]
        return own, tastes @ Q[which].T + b[which], which != target[:, None]
