"""FedGNN: a person's own corner of the graph of people and items, with unnamed others that a helper matched to it."""

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
    """What a device would send, before it is bounded and noised; and what stays."""

    items: jax.Array  # int32[m]: items had, items drawn, pseudo items
    rows: jax.Array  # float32[m, d]
    layers: dict[str, jax.Array]
    person: jax.Array  # float32[d]: stays at home


class FedGNN(AtHome):
    """One layer of attention over what a person likes and the mean vectors of unnamed others who have the same items.

    Half of the liked items make the graph and the other half is asked for among items drawn, so that no item vouches for
    itself. The gradient of the items had is hidden among that of `pseudo` made-up items. Who the others are is matched by
    a third party from sealed item names: `tacit.lab.baselines.helpers` plays it, and says what it sees. Nobody takes part in
    rounds of the library's own: at home, a person's vector is fitted and items are ranked.

    Paper: Wu, Wu, Cao, Huang and Xie, "FedGNN: federated graph neural network for privacy-preserving recommendation"
    (2021).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    above: float = setting(3.0)  # a rating above this is liked
    most: int = setting(50, at_least=2)  # of the newest events are looked at
    negatives: int = setting(4, at_least=1)  # for each item that is asked for
    pseudo: int = setting(100, at_least=0)  # made-up items in a message
    steps: int = setting(10, at_least=1)  # at home, for the person's own vector
    rate: float = setting(0.1, above=0.0)  # of the person's own vector
    turns: int = setting(4, at_least=1)  # how often the helper matches
    rounds_each: int = setting(50, at_least=1)  # rounds after each
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
        """Small random items, no others yet."""
        items, layers = jax.random.split(key)
        table = self.spread * jax.random.normal(items, (self.catalog.n_items, self.dim))
        return {"items": table, "others": jnp.zeros_like(table), **new_graph_attention(layers, self.dim)}

    def prepare(self, history: History) -> dict:
        """The newest liked items, -1 where there is none, and everything ever met."""
        newest = newest_places(history.items, self.most)
        likes = jnp.where(liked_events(history, self.above), history.items, -1)[newest]
        return {"items": likes, "had": distinct(history.items, self.catalog.n_items)}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """e_u = 0: the items speak first."""
        del key, own
        return {"person": jnp.zeros(self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """Some steps on the person's own vector, from 0; nothing leaves."""

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
        """Of the cross-entropy of the asked half against items drawn."""
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
        # What is sent is of the sum over what is asked for, as large as δ: of the mean, noise would leave nothing.
        rows, slopes = jax.tree.map(lambda slope: slope * asked.sum(), shared)
        used = jnp.append(real, fresh)
        made_up, values = self._pseudo(pretend, rows, used)
        index = jnp.append(jnp.where(used, index, n), made_up)
        return GraphGradients(index, jnp.concatenate([rows, values]), slopes, person)

    def _pseudo(self, key: jax.Array, rows: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Random items with gradients drawn from the normal distribution that fits the real ones."""
        which, value = jax.random.split(key)
        weight = used[:, None] / jnp.maximum(used.sum(), 1)
        mean = (weight * rows).sum(0)
        deviation = jnp.sqrt((weight * (rows - mean) ** 2).sum(0))
        index = (self.catalog.n_items * jax.random.uniform(which, (self.pseudo,))).astype(jnp.int32)
        return index, mean + deviation * jax.random.normal(value, (self.pseudo, self.dim))
