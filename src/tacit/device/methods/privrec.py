"""PrivRec: a small neural network, meta-learned so that a few local steps personalise it. Differences leave the device."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, coalesce
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.device.methods._bases.likes import LabelledSamples, SamplingOptions, labelled_samples, liked_events
from tacit.errors import PlanError, unknown
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.local_sgd import Minibatch, StepSizes, maml_gradient, sgd, shuffled_batches
from tacit.nets.neural.losses import cross_entropy, squared_error
from tacit.nets.neural.two_tower import TOWERS, FieldTowers
from tacit.nets.sequence.masked_items import READER, contrastive_losses, new_reader
from tacit.nets.sequence.windows import newest_places

_BY_ITEM = frozenset({"items", "bias", "popularity"})  # one row for each item: a device gathers the rows it uses
_KINDS = ("categorical", "multi", "numeric", "words")


class PrivRec(Method):
    """Two towers and layers on both, started from what was broadcast, trained at home for a few epochs; Δ = θ − θ₀.

    The server moves θ₀ by the mean of Δ (REPTILE). Inputs are the user's own fields and the items' fields, no user id. An event is liked where its rating is above `above` (all are, in a history without ratings); for each liked
    item, `negatives` items outside the history are drawn once a round. `adapt` is the same loop.

    - `meta = "maml"`: the update is the negative gradient through one step, from the older half of the events to the
      newer; second derivatives included.
    - `sends` and `adapts` name the leaves whose differences leave and those that stay on the device after an
      adaptation; none named, all. A round trains both. By default no item's own row adapts: it would memorise which
      items were drawn.
    - `bias` adds a number for each item to its log-odds.
    - `popular` adds the logarithm of the `counts` that an earlier stage learned.
    - `of_items` (λ_IM) and `of_segments` (λ_SM) add so much of the two losses of the method `masks` to every step in
      which item vectors move, and `of_liking` (λ_DSSM) weighs the loss of liking beside them: the joint training of
      the paper's second stage, L = λ_DSSM L_DSSM + λ_IM L_IM + λ_SM L_SM. `masks` is the older name that sets both;
      a weight given by its own name goes before it. An earlier stage of that method starts the item vectors and the
      reader.
    - `output = "rating"` predicts ratings: the last layer is linear, the loss is the mean of (ŷ − rating)² over the
      events, without negatives, because items outside the history have no rating. The offset of the output starts at
      `above`, the middle of the ratings. Scores are predicted ratings.

    Only the rows of items that occur are gathered and trained; in the message the table is dense.

    Paper: Wang, Yin, Chen, Yu, Zhou and Zhang, "Fast-adapting and privacy-preserving federated recommender system"
    (2021).
    """

    catalog: Catalog
    dim: int = setting(32, at_least=1)  # of every embedding and of both towers
    hidden: tuple = setting((32, 16, 8, 8))  # sizes of the layers on both towers
    kinds: tuple = setting(("categorical", "multi", "numeric"))  # of fields in use; "words" can be added
    epochs: int = setting(10, at_least=1)  # E₂
    rate: float = setting(0.1, above=0.0)  # α₁
    item_rate: float = setting(
        1.0, above=0.0
    )  # α₁ of tables with a row for each item: a row occurs in few samples of a batch
    batch: int = setting(32, at_least=0)  # samples a step; 0: all of them
    negatives: int = setting(4, at_least=0)  # for each liked item
    above: float = setting(3.0)  # a rating above this is liked
    dislikes: bool = setting(True)  # whether events that are not liked are negative samples
    most: int = setting(200, at_least=0)  # newest events trained on; 0: all
    spread: float = setting(0.1, at_least=0.0)  # standard deviation of the first vectors of fields
    item_spread: float = setting(0.1, at_least=0.0)  # and of items; with 0 an untrained item has its fields alone
    bias: bool = setting(False)
    popular: float = setting(0.0, at_least=0.0)  # how much ln(1 + counts/smooth) of an earlier stage adds to log-odds
    smooth: float = setting(10.0, above=0.0)
    of_liking: float | None = setting(None, at_least=0.0)  # λ_DSSM; 1 unless given
    of_items: float | None = setting(None, at_least=0.0)  # λ_IM beside liking; `masks` unless given
    of_segments: float | None = setting(None, at_least=0.0)  # λ_SM beside liking; `masks` unless given
    masks: float = setting(0.0, at_least=0.0)  # λ_IM and λ_SM at once
    copies: int = setting(16, at_least=1)  # masked copies made in a round; a step uses one
    window: int = setting(50, at_least=3)  # newest events that are copied
    output: Literal["liking", "rating"] | None = setting(None)  # what is predicted; liking unless given
    meta: Literal["reptile", "maml"] = setting("reptile")
    sends: tuple = setting(())
    adapts: tuple = setting(TOWERS[1:])
    passes: int = setting(5, at_least=1)  # over pooled data, in the lab
    pace: float = setting(0.002, above=0.0)  # of Adam, in the lab
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", "item_values", "person_values", "item_tower", "person_tower", "head"],
        "rounds": 80,
        "server": {"rule": "mean_step", "rate": 1.0},
        "cohort": {"sampler": "fixed", "count": 20},
    }

    def __check_init__(self):
        for name, known in (("sends", self.leaves), ("adapts", self.leaves), ("kinds", _KINDS)):
            for value in getattr(self, name):
                if value not in known:
                    raise PlanError(unknown(f"hyper.{name} of privrec", value, known, "name"))
        if not all(isinstance(size, int) and size > 0 for size in self.hidden):
            raise PlanError(f"hyper.hidden of privrec must be sizes of layers, at least 1 each, got {self.hidden!r}.")
        if self.joint and self.meta == "maml":
            given = next(name for name in ("of_items", "of_segments", "masks") if getattr(self, name))
            raise PlanError(
                f"hyper.{given} = {getattr(self, given):g} of privrec needs meta = 'reptile', got 'maml'; leave one out."
            )
        if self.popular and self.needs_ratings:
            raise PlanError(
                f"hyper.popular = {self.popular:g} of privrec adds to log-odds, got output = 'rating', which has none; "
                "leave one out."
            )

    @property
    def needs_ratings(self) -> bool:
        """Whether ratings are predicted, so that the log must have them."""
        return self.output == "rating"

    @property
    def weights(self) -> tuple[float, float, float]:
        """(λ_DSSM, λ_IM, λ_SM)."""
        liking = 1.0 if self.of_liking is None else self.of_liking
        items, segments = (self.masks if one is None else one for one in (self.of_items, self.of_segments))
        return liking, items, segments

    @property
    def joint(self) -> bool:
        """Whether masked items are trained jointly."""
        return any(self.weights[1:])

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of the parameter leaves."""
        return (*TOWERS, *(("bias",) if self.bias else ()), *(READER if self.joint else ()))

    @property
    def net(self) -> FieldTowers:
        """The network."""
        return FieldTowers(self.catalog, self.dim, self.hidden, self.kinds)

    @property
    def _pace(self) -> StepSizes:
        return StepSizes(self.rate, _BY_ITEM, self.item_rate)

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """θ₀: small random embeddings, random layers."""
        last = 0.0 if self.popular else 1.0  # initially, counts alone decide
        params, n = self.net.new(key, self.item_spread, self.spread, last), self.catalog.n_items
        if self.needs_ratings:  # from 0, the first errors are as large as ratings, and descent at this rate diverges
            params["head"] = params["head"].at[-1].set(self.above)
        if self.bias:
            params["bias"] = jnp.zeros(n)
        if self.popular:
            params["counts"] = jnp.zeros(n, jnp.int32)
        return {**params, **(new_reader(jax.random.fold_in(key, 1), self.dim) if self.joint else {})}

    def prepare(self, history: History) -> dict:
        """The newest events with their labels or ratings, all items of the history, and the user's own fields."""
        exists = history.items >= 0
        had = coalesce(history.items, exists.astype(jnp.float32), self.catalog.n_items)
        newest = newest_places(history.items, self.most or history.items.shape[0])
        likes = liked_events(history, self.above)[newest]
        own = {"items": history.items[newest], "liked": likes, "had": had, "person": history.person}
        return {**own, "ratings": history.labels[newest]} if self.needs_ratings else own

    def enter(self, key: jax.Array, own: dict) -> dict:
        """No private state: the result of an adaptation is recomputed, so that a device stores little."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: dict) -> tuple[dict, dict, jax.Array]:
        """Δ = θ − θ₀ after E₂ epochs of mini-batch descent."""
        draw, order = jax.random.split(key)
        mine = self._samples(draw, own)
        start = self._gathered(params, mine.items)
        sends, adapts = self.sends or self.leaves, self.adapts or self.leaves
        moving = {name: start[name] for name in self.leaves if name in (*sends, *adapts)}
        if self.meta == "maml":
            update = jax.tree.map(jnp.negative, self._through(start, moving, mine, own))
        else:
            update = jax.tree.map(jnp.subtract, self._descend(order, start, moving, mine, own), moving)
        return local, self._as_rows({name: update[name] for name in sends}, mine.items), jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """The same loop; what it trained stays on the device, with the rows of the items that occurred."""
        del local
        draw, order = jax.random.split(key)
        mine = self._samples(draw, own)
        start = self._gathered(params, mine.items)
        moving = {name: start[name] for name in self.adapts or self.leaves}
        return {"index": mine.items, **self._descend(order, start, moving, mine, own)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The log-odds that a candidate is liked, or the rating it would get."""
        del recent
        at = jnp.maximum(candidates, 0)
        theta = {**self._gathered(params, at), **self._adapted(params, local, at)}
        return masked(self._odds(theta, self.net.about(at), own["person"]), candidates)

    def odds(self, params: dict, person: jax.Array, items: jax.Array) -> jax.Array:
        """The log-odds, or ratings, of some items for a user with these fields, before any adaptation."""
        return self._odds(self._gathered(params, items), self.net.about(items), person)

    def _samples(self, key: jax.Array, own: dict) -> LabelledSamples:
        """Every event, after each liked one its negatives, and masked copies if they are trained on."""
        asked = SamplingOptions(
            self.catalog.n_items, self.negatives, self.dislikes, self.copies * self.joint, self.window
        )
        if not self.needs_ratings:
            return labelled_samples(key, own, asked)
        every = labelled_samples(
            key, own, asked._replace(negatives=0, dislikes=True)
        )  # items outside the history have no rating
        return every._replace(liked=own["ratings"].astype(jnp.float32))

    def _gathered(self, params: dict, index: jax.Array) -> dict:
        """The parameters a device uses: of tables with a row for each item, some rows."""
        held = {name: gather(params[name], index) if name in _BY_ITEM else params[name] for name in self.leaves}
        if self.popular:
            counts = jnp.maximum(gather(params["counts"], index), 0)
            held["popularity"] = self.popular * jnp.log1p(counts / self.smooth)
        return held

    def _adapted(self, params: dict, local: Mapping[str, jax.Array], at: jax.Array) -> dict:
        """The adapted parameters, for these items."""
        moved = {name: local[name] for name in self.leaves if name in local}
        for name in _BY_ITEM & set(moved):
            place = jnp.minimum(jnp.searchsorted(local["index"], at), local["index"].shape[0] - 1)
            mine = (local["index"][place] == at).reshape((-1,) + (1,) * (moved[name].ndim - 1))
            moved[name] = jnp.where(mine, moved[name][place], params[name][at])
        return moved

    def _odds(self, theta: dict, columns: list[jax.Array], person: jax.Array) -> jax.Array:
        """ln(ŷ/(1 − ŷ)) of some items, with their rows in θ and their fields in `columns`."""
        odds = self.net.odds(theta, columns, person)
        return odds + sum(theta[name] for name in ("bias", "popularity") if name in theta)

    def _loss(self, start: dict, mine: LabelledSamples, own: dict, joint: bool = False) -> Any:
        """L(θ, batch): λ_DSSM L_DSSM of some samples, with θ the trained leaves; joint, plus L_SSL."""
        about, error = self.net.about(mine.items), squared_error if self.needs_ratings else cross_entropy
        of_liking, of_items, of_segments = self.weights

        def loss(moving: dict, data: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            rows, real, copy = data
            place, count = mine.place[rows], rows.shape[0]
            still = {name: x[place] if name in _BY_ITEM else x for name, x in start.items() if name not in moving}
            near = {name: x[:count] if name in _BY_ITEM else x for name, x in moving.items()}
            odds = self._odds({**still, **near}, [column[place] for column in about], own["person"])
            lost = of_liking * error(odds, mine.liked[rows], real)
            if not joint:
                return lost
            x = moving["items"][None, count:]
            item, segment = contrastive_losses({**still, **moving}, mine.shape, x, mine.shown[copy][None])
            hidden = of_items * item + of_segments * segment
            return lost + jnp.where(real.sum() > 0, hidden, 0.0)  # padding alone is no step

        return loss

    @eqx.filter_jit  # so that a single device compiles its loop once
    def _descend(self, key: jax.Array, start: dict, moving: dict, mine: LabelledSamples, own: dict) -> dict:
        """θ ← θ − α₁ ∇L, batch after batch, E₂ times over all samples."""
        joint, m = self.joint and "items" in moving, mine.real.shape[0]
        loss = self._loss(start, mine, own, joint)

        def epoch(theta: dict, turn: tuple[jax.Array, jax.Array]) -> tuple[dict, None]:
            number, key = turn
            rows = shuffled_batches(key, mine.real, self.batch or m)
            real = mine.real.at[rows].get(mode="fill", fill_value=False).astype(jnp.float32)
            rows, copy = jnp.minimum(rows, m - 1), (number + jnp.arange(rows.shape[0])) % self.copies
            place = mine.place[rows]
            place = jnp.concatenate([place, mine.copies[copy]], axis=1) if joint else place
            return sgd(loss, theta, Minibatch(place, (rows, real, copy)), self._pace), None

        return jax.lax.scan(epoch, moving, (jnp.arange(self.epochs), jax.random.split(key, self.epochs)))[0]

    @eqx.filter_jit
    def _through(self, start: dict, moving: dict, mine: LabelledSamples, own: dict) -> dict:
        """∇L_query(θ − α₁∇L_support(θ)): the older half of the events is the support set, the newer the query set."""
        half = (own["items"] >= 0).sum() // 2
        older, rows = mine.event < half, jnp.arange(mine.real.shape[0])
        halves = [Minibatch(mine.place, (rows, (mine.real & part).astype(jnp.float32), 0)) for part in (older, ~older)]
        return maml_gradient(self._loss(start, mine, own), moving, halves[0], halves[1], self._pace)

    def _as_rows(self, update: dict, index: jax.Array) -> dict:
        n = self.catalog.n_items
        return {name: Rows(index, x, n) if name in _BY_ITEM else x for name, x in update.items()}
