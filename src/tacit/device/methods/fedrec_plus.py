"""FedRec++: factors of ratings; rated items are hidden among sampled ones, whose gradients a helper removes. Trained in the lab."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import distinct, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.local_sgd import AdamOnNegatives, adam_on_negatives
from tacit.nets.sequence.windows import newest_places

_NEGATIVES = 32  # drawn in each local step; the same number for every history


class RatingGradients(NamedTuple):
    """The gradients of a device: rows of the item table, which of them are made up, and the user's, which stays on the device."""

    items: jax.Array  # int32[m]; the number of items where there is nothing
    rows: jax.Array  # float32[m, d]
    counts: jax.Array  # float32[m]: 1 where a row counts as a rating
    made_up: jax.Array  # bool[m]: sent to a denoising client alone
    person: jax.Array  # float32[d]


class FedRecPlus(AtHome):
    """r̂_ui = p_u·q_i, minimising Σ ½(r_ui − p_u·q_i)² + ½α(|p_u|² + |q_i|²).

    An ordinary client sends the server the gradients of the items it rated and of `pretend` times as many others, rated
    at its own mean; a denoising client gathers those of its guests that are made up and sends their sum, which the server
    subtracts. What is left is the gradient over all pooled ratings. `tacit.lab.baselines.helpers` simulates the three roles,
    and states what each sees. No device takes part in rounds of the library.

    With `zeros`, that many unrated items for each rated one are drawn and count as rated 0, so that a log without ratings
    can be learned; 0 is as printed.

    Paper: Liang, Pan and Ming, "FedRec++: lossless federated recommendation with explicit feedback" (AAAI 2021).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    most: int = setting(100, at_least=1)  # newest events used
    pretend: float = setting(1.0, at_least=0.0)  # ρ
    zeros: float = setting(1.0, at_least=0.0)
    penalty: float = setting(0.01, at_least=0.0)  # α
    denoisers: float = setting(0.1, above=0.0, at_most=1.0)  # the share of clients that are denoising ones
    turns: int = setting(300, at_least=1)  # rounds
    cohort: int = setting(256, at_least=1)
    inner: int = setting(5, at_least=1)  # steps of the user vector in a round
    rate: float = setting(0.3, above=0.0)  # of those
    pace: float = setting(0.03, above=0.0)  # of Adam at the server
    steps: int = setting(50, at_least=1)  # of Adam on the device, for the user vector
    spread: float = setting(0.1, at_least=0.0)
    helper: ClassVar[str] = "denoiser"
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items"],
        "hyper": {"dim": 4},
        "cohort": {"sampler": "helped", "helper": "denoiser"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random items."""
        return {"items": self.spread * jax.random.normal(key, (self.catalog.n_items, self.dim))}

    def prepare(self, history: History) -> dict:
        """The newest events with their ratings, item -1 where there is none, and all items of the history."""
        newest = newest_places(history.items, self.most)
        items = jnp.full(self.most, -1, jnp.int32).at[: newest.size].set(history.items.at[newest].get(mode="clip"))
        ratings = jnp.zeros(self.most).at[: newest.size].set(history.labels.at[newest].get(mode="clip"))
        return {
            "items": items,
            "ratings": jnp.where(items >= 0, ratings, 0.0),
            "had": distinct(history.items, self.catalog.n_items),
        }

    def enter(self, key: jax.Array, own: dict) -> dict:
        """A vector of zeros, until the first adaptation."""
        del key, own
        return {"person": jnp.zeros(self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """p_u by Adam on the same squared error; nothing is sent."""
        del local
        Q, real = gather(params["items"], jnp.maximum(own["items"], 0)), own["items"] >= 0

        def loss(p: jax.Array, rivals: jax.Array) -> jax.Array:
            # ½(r − p·q)² of what is rated, ½(p·q)² of what is not, each the mean, and ½α|p|²
            rated = jnp.where(real, (own["ratings"] - Q @ p) ** 2, 0.0).sum() / jnp.maximum(real.sum(), 1)
            fresh = 1.0 - lookup(own["had"], rivals)
            unrated = (fresh * (params["items"][rivals] @ p) ** 2).sum() / jnp.maximum(fresh.sum(), 1.0)
            return 0.5 * (rated + self.zeros * unrated + self.penalty * p @ p)

        rivals = AdamOnNegatives(_NEGATIVES, self.catalog.n_items, self.steps, 0.1)
        return {"person": adam_on_negatives(key, loss, jnp.zeros(self.dim), rivals)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """p_u·q_i."""
        del own, recent
        return masked(params["items"][candidates] @ local["person"], candidates)

    def gradients(self, key: jax.Array, params: dict, p: jax.Array, own: dict) -> RatingGradients:
        """Gradients of ratings, of unrated items that count as rated 0, and of made-up ratings."""
        n, rated = self.catalog.n_items, own["items"] >= 0
        mean = own["ratings"].sum() / jnp.maximum(rated.sum(), 1)
        one, other = jax.random.split(key)
        items, used, ratings = [own["items"]], [rated], [own["ratings"]]
        for key, times, rating in ((one, self.zeros, 0.0), (other, self.pretend, mean)):
            drawn = jax.random.randint(key, (math.ceil(times * self.most),), 0, n)
            among = jnp.arange(drawn.size) < jnp.round(times * rated.sum())
            items, ratings = [*items, drawn], [*ratings, jnp.full(drawn.size, rating)]
            used.append(among & (lookup(own["had"], drawn) == 0))
        index, real, r = jnp.concatenate(items), jnp.concatenate(used), jnp.concatenate(ratings)
        made_up = real & (jnp.arange(index.size) >= index.size - items[-1].size)
        Q = params["items"][jnp.maximum(index, 0)]
        # (p·q − r) p + α q of an item, (p·q − r) q of the person
        error = Q @ p - r
        rows = jnp.where(real[:, None], error[:, None] * p + self.penalty * Q, 0.0)
        sent = real & ~made_up
        person = (sent * error) @ Q / jnp.maximum(sent.sum(), 1) + self.penalty * p
        return RatingGradients(jnp.where(real, index, n), rows, real.astype(jnp.float32), made_up, person)
