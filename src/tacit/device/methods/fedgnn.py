"""FedGNN: graph attention over a user's items and anonymous neighbours, matched by a helper. Trained in the lab."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import distinct, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.device.methods._bases.likes import liked_events
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.graph import ATTENTION_LAYERS, new_graph_attention, user_vector
from tacit.nets.neural.losses import cross_entropy
from tacit.nets.sequence.windows import newest_places


class GraphGradients(NamedTuple):
    """The gradients of a device before clipping and noise."""

    items: jax.Array  # int32[m]: own items, negatives, pseudo items
    rows: jax.Array  # float32[m, d]
    layers: dict[str, jax.Array]
    person: jax.Array  # float32[d]: stays on the device


class FedGNN(AtHome):
    """One layer of attention over a user's liked items and the mean vectors of anonymous other users who have the same items.

    Half of the liked items form the graph, and the other half is predicted against negatives, so that no item predicts
    itself. The gradient of own items is hidden among that of `pseudo` random items. A third party matches neighbours from
    encrypted item names: `tacit.lab.baselines.helpers` simulates it, and states what it sees. No device takes part in
    rounds of the library: on the device, the user vector is fitted and items are ranked.

    Paper: Wu, Wu, Cao, Huang and Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation"
    (2021).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    above: float = setting(3.0)  # a rating above this is liked
    most: int = setting(50, at_least=2)  # newest events used
    negatives: int = setting(4, at_least=1)  # for each predicted item
    pseudo: int = setting(100, at_least=0)  # pseudo items in a message
    steps: int = setting(10, at_least=1)  # on the device, for the user vector
    rate: float = setting(0.1, above=0.0)  # of the user vector
    turns: int = setting(4, at_least=1)  # number of matchings by the helper
    rounds_each: int = setting(50, at_least=1)  # rounds after each matching
    cohort: int = setting(128, at_least=1)
    pace: float = setting(0.02, above=0.0)  # of Adam at the server
    clip: float = setting(0.1, above=0.0)  # δ: every number sent is within ±δ
    noise: float = setting(0.2, at_least=0.0)  # λ of Laplace noise on every number sent
    spread: float = setting(0.1, at_least=0.0)
    helper: ClassVar[str] = "matcher"
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", "others", *ATTENTION_LAYERS],
        "cohort": {"sampler": "helped"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random items; the means of other users are 0."""
        items, layers = jax.random.split(key)
        table = self.spread * jax.random.normal(items, (self.catalog.n_items, self.dim))
        return {"items": table, "others": jnp.zeros_like(table), **new_graph_attention(layers, self.dim)}

    def prepare(self, history: History) -> dict:
        """The newest liked items, -1 where there is none, and all items of the history."""
        newest = newest_places(history.items, self.most)
        likes = jnp.where(liked_events(history, self.above), history.items, -1)[newest]
        return {"items": likes, "had": distinct(history.items, self.catalog.n_items)}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """e_u = 0."""
        del key, own
        return {"person": jnp.zeros(self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """Some steps on the user vector, from 0; nothing is sent."""

        def step(e: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            return e - self.rate * self.gradients(key, params, e, own).person, None

        keys = jax.random.split(key, self.steps)
        return {"person": jax.lax.scan(step, jnp.zeros_like(local["person"]), keys)[0]}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """h_u · e_j, with all liked items in the graph."""
        del recent
        at = jnp.maximum(own["items"], 0)
        h = user_vector(params, local["person"], params["items"][at], params["others"][at], own["items"] >= 0)
        return masked(gather(params["items"], jnp.maximum(candidates, 0)) @ h, candidates)

    def gradients(self, key: jax.Array, params: dict, e: jax.Array, own: dict) -> GraphGradients:
        """Gradients of the cross-entropy of the predicted half against negatives."""
        halve, draw, pretend = jax.random.split(key, 3)
        n, count = self.catalog.n_items, own["items"].shape[0]
        real = own["items"] >= 0
        beside = real & (jax.random.uniform(halve, (count,)) < 0.5)
        drawn = (n * jax.random.uniform(draw, (count, self.negatives))).astype(jnp.int32)
        fresh = (real & ~beside)[:, None] & (lookup(own["had"], drawn) == 0)
        index = jnp.append(jnp.maximum(own["items"], 0), drawn)
        y = jnp.append(jnp.ones(count), jnp.zeros(drawn.size))
        asked = jnp.append(real & ~beside, fresh).astype(jnp.float32)
        others = params["others"][index[:count]]

        def loss(e: jax.Array, items: jax.Array, layers: dict) -> jax.Array:
            h = user_vector(layers, e, items[:count], others, beside)
            return cross_entropy(items @ h, y, asked)

        layers = {name: params[name] for name in ATTENTION_LAYERS}
        person, *shared = jax.grad(loss, (0, 1, 2))(e, params["items"][index], layers)
        # The gradient of the sum over predicted items is sent, as large as δ: that of the mean would be far below the noise.
        rows, slopes = jax.tree.map(lambda slope: slope * asked.sum(), shared)
        used = jnp.append(real, fresh)
        pseudo, values = self._pseudo(pretend, rows, used)
        index = jnp.append(jnp.where(used, index, n), pseudo)
        return GraphGradients(index, jnp.concatenate([rows, values]), slopes, person)

    def _pseudo(self, key: jax.Array, rows: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Random items with gradients drawn from a normal distribution fitted to the real ones."""
        which, value = jax.random.split(key)
        weight = used[:, None] / jnp.maximum(used.sum(), 1)
        mean = (weight * rows).sum(0)
        deviation = jnp.sqrt((weight * (rows - mean) ** 2).sum(0))
        index = (self.catalog.n_items * jax.random.uniform(which, (self.pseudo,))).astype(jnp.int32)
        return index, mean + deviation * jax.random.normal(value, (self.pseudo, self.dim))
