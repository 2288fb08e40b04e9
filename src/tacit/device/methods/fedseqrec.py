"""FedSeqRec: organisations train one sequential recommender. Differences of its layers leave, with one or two weights."""

from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tacit.core.catalog import Catalog
from tacit.core.integer_grid import MOST_PEOPLE, from_people_grid, person_on_grid
from tacit.core.settings import setting
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.errors import PlanError
from tacit.nets.neural.chunked import clipped_to_unit, sum_in_chunks
from tacit.nets.neural.local_sgd import shuffled_batches
from tacit.nets.neural.losses import sampled_loss
from tacit.nets.neural.text import text_of, usual_token_count, word_counts
from tacit.nets.sequence.encoder import (
    LevelStatistics,
    Sizes,
    Words,
    distinct_vectors,
    item_vectors,
    new_encoder,
    new_statistics,
    user_vectors,
)
from tacit.nets.sequence.gru import GruForm
from tacit.nets.sequence.segments import closeness, ends, sequence_length_histogram, sequences
from tacit.nets.sequence.windows import NextItemSamples, newest_sequence, next_item_samples, right_aligned

_MANY = 256  # where the catalog is this many times longer than the scored items, only those are encoded
_OPTIMISERS = {
    "sgd": optax.sgd,
    "adam": partial(optax.adam, eps=1e-4),
}  # a larger ε keeps Adam from amplifying rounding


class FedSeqRec(Method):
    """Train the encoder locally for a few epochs, send the difference.

    A device is an organisation that holds many users' sequences, or one user. Event fields named `person` and `sequence`
    name the user and the sequence of each event; without them everything is one sequence. Each event but a sequence's
    first is a sample: the preceding events, the event, and `negatives` random items.

    - The first weight of a report is the number of sequences, n. `second` adds another, γ, which the server's rule
      `reaverage` mixes with it: `lengths` and `taste` are e^−KL of the organisation's own histogram from the total,
      which a stage of method `handshake` has collected; `equal` is 1, `root` is √n.
    - With `bound`, the update is a sum over users instead: one gradient step each, clipped to `bound` and divided by it, and
      the number of users. Mechanism `within_organisation` adds the noise for it.
    - `adapt` trains for `home` local epochs: personalisation to the organisation.

    `long = "attention"` with `encoder = "convolution"` is FedNewsRec's network.

    Paper: Li, Lin, Xiahou, Lin, Wu and Liu, "Federated low-rank tensor projections for sequential recommendation"
    (KBS 2022); the other network is that of Qi et al., "Privacy-preserving news recommendation model
    learning" (EMNLP 2020).
    """

    catalog: Catalog
    width: int = setting(32, at_least=1)  # of hashed word vectors; vectors of a file have their own width
    tokens: int = setting(30, at_least=1)  # most words of an item
    dim: int = setting(32, at_least=2)
    heads: int = setting(4, at_least=1)
    hidden: int = setting(16, at_least=1)
    levels: int = setting(2, at_least=1)  # m; the rank is dim / m
    window: int = setting(30, at_least=1)  # L
    short: int = setting(10, at_least=1)
    encoder: Literal["dense", "convolution"] = setting("dense")
    long: Literal["tensor", "attention", "none"] = setting("tensor")
    gru: GruForm = setting("reset_after")
    norm: Literal["example", "batch"] = setting("example")
    drop: float = setting(0.0, at_least=0.0, at_most=0.9)
    epochs: int = setting(1, at_least=1)  # E
    batch: int = setting(32, at_least=1)
    steps: int = setting(0, at_least=0)  # most batches of an epoch; 0: all
    optimiser: Literal["sgd", "adam"] = setting("adam")
    rate: float = setting(0.003, above=0.0)
    clip: float = setting(0.0, at_least=0.0)  # of each number of a gradient; 0: none
    negatives: int = setting(4, at_least=1)  # K
    second: Literal["none", "lengths", "taste", "equal", "root"] = setting("none")
    longest: int = setting(60, at_least=3)  # sequences as long or longer share a bin
    smoothing: float = setting(0.0, at_least=0.0)  # added to each bin of both histograms
    bound: float | None = setting(None, above=0.0)  # of one user's step, in L2 norm
    each: int = setting(16, at_least=1)  # samples of a user in a bounded step
    group: int = setting(16, at_least=1)  # users processed at a time; memory only
    home: int = setting(0, at_least=0)  # local epochs of adaptation
    about: jax.Array = None  # pyright: ignore[reportAssignmentType]  # int32[n_items, T], the items' words; frozen
    vectors: jax.Array = None  # pyright: ignore[reportAssignmentType]  # float32[V, width]; frozen
    brief: int = eqx.field(default=0, static=True)  # three of four items have no more tokens
    stride: ClassVar[int] = 1  # every event but a sequence's first is a sample
    learns: ClassVar[bool] = True
    for_organisations: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": [
            *("word_layer", "item_attention", "item_vote", "item_voice", "long_tensor", "long_levels"),
            *("short_input", "short_state", "fuse_vote", "fuse_voice"),
        ],
        "hyper": {"epochs": 3, "optimiser": "sgd", "rate": 0.4, "clip": 0.05},
        "rounds": 30,
        "server": {"rule": "mean_step", "rate": 1.0},
    }

    def __post_init__(self):
        self.about, self.vectors = text_of(self.catalog, self.tokens, self.width)
        self.brief = usual_token_count(self.about)

    def __check_init__(self):
        if self.bound is not None and self.second != "none":
            raise PlanError(
                f"hyper.second of fedseqrec = {self.second!r} is a weight without noise, which a bounded sum over users does "
                "not send; leave second or bound out."
            )
        for name in ("heads", "levels"):
            if self.dim % getattr(self, name):
                raise PlanError(
                    f"hyper.dim of fedseqrec must be a multiple of {name} = {getattr(self, name)}, got {self.dim}."
                )

    @property
    def sizes(self) -> Sizes:
        """The hyper-parameters of the network."""
        shape = (self.dim, self.heads, self.hidden, self.levels, self.short)
        return Sizes(self.vectors.shape[1], *shape, self.encoder, self.long, self.gru, self.norm, self.drop)

    @property
    def descent(self) -> optax.GradientTransformation:
        """The optimiser, on a device or in the lab."""
        clip = optax.clip(self.clip) if self.clip else optax.identity()
        return optax.chain(clip, _OPTIMISERS[self.optimiser](self.rate))

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Random layers, and the histogram that a handshake collects."""
        params = new_encoder(key, self.sizes)
        if self.second in ("lengths", "taste"):
            bins = self.longest - 1 if self.second == "lengths" else self.vectors.shape[0]
            params |= {self.second: jnp.zeros(bins), "closeness": jnp.zeros(())}
        return params

    def prepare(self, history: History) -> dict:
        """The items grouped by user, each one's position in its sequence, and its user number."""
        items, whose, place = sequences(self.catalog.event_fields, history.items, history.context)
        return {"items": items, "place": place, "person": whose}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """No private state; with norm `batch`, initial statistics."""
        del key, own
        return new_statistics(self.sizes)._asdict() if self.norm == "batch" else {}

    def local(self, key: jax.Array, params: dict, local: dict, own: dict) -> tuple[dict, dict, jax.Array]:
        """Δ = θ_k − θ after E epochs, or the bounded sum over users; weights n and γ."""
        start = self._theta(params)
        if self.bound is not None:
            return local, self._bounded_sum(key, start, own), jnp.ones(1)
        end = self._train(key, start, own, self.epochs)
        return self._with_statistics(end, own, local), jax.tree.map(jnp.subtract, end, start), self._weight(params, own)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """The same loop for `home` epochs; the result stays on the device."""
        if self.home:
            theta = self._train(key, self._theta(params), own, self.home)
            return {**self._with_statistics(theta, own, local), "model": theta}
        return self._with_statistics(self._theta(params), own, local)

    @eqx.filter_jit
    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """User vector · item; the sequence is `recent`, or the newest one of the device."""
        theta = local.get("model") or self._theta(params)
        shown = right_aligned(recent, self.window)
        own_last = newest_sequence(own["items"], own["place"], self.window)
        before = jnp.where((shown >= 0).any(), shown, own_last)
        few = _MANY * (before.size + candidates.size) < self.catalog.n_items
        vectors = self._items(theta, jnp.concatenate([before, candidates]), table=not few)
        known = LevelStatistics(local["mean"], local["variance"]) if self.norm == "batch" else None
        liked, _ = user_vectors(theta, self.sizes, vectors[None, : before.size], (before >= 0)[None], known)
        return masked(vectors[before.size :] @ liked[0], candidates)

    def _theta(self, params: dict) -> dict:
        return {name: params[name] for name in jax.eval_shape(lambda: new_encoder(jax.random.key(0), self.sizes))}

    def _items(self, theta: dict, items: jax.Array, table: bool, key: Any = None) -> jax.Array:
        """Vectors of some items [..., d], 0 for padding: rows of the whole catalog's table, or encoded one by one."""
        at = jnp.maximum(items, 0)
        words = self.about if table else self.about[at.ravel()]
        made = item_vectors(theta, self.sizes, self.vectors[jnp.maximum(words, 0)], words >= 0, key)
        found = made[at] if table else made.reshape(*items.shape, -1)
        return jnp.where((items >= 0)[..., None], found, 0.0)

    def _batch_items(self, theta: dict, items: jax.Array, key: Any) -> jax.Array:
        """Vectors of a batch's items, each encoded once: the whole catalog where it is the shorter list."""
        if items.size >= self.catalog.n_items:
            return self._items(theta, items, True, key)
        return distinct_vectors(theta, self.sizes, Words(self.about, self.vectors, self.brief), items, key)

    def _sample_losses(self, theta: dict, some: NextItemSamples, key: jax.Array) -> jax.Array:
        """−ln softmax of the target among itself and its negatives, [b]."""
        items = jnp.concatenate([some.before, some.target[:, None], some.rivals], axis=1)
        vectors = self._batch_items(theta, items, key if self.drop else None)
        liked, _ = user_vectors(theta, self.sizes, vectors[:, : self.window], some.before >= 0)
        offered = vectors[:, self.window :]
        return sampled_loss(jnp.einsum("bd,bkd->bk", liked, offered), items[:, self.window :] >= 0)

    def loss(self, theta: dict, own: dict, at: jax.Array, key: jax.Array) -> jax.Array:
        """The mean loss of the samples at some events."""
        draw, drop = jax.random.split(key)
        rivals = (self.negatives, self.catalog.n_items)
        some = next_item_samples(draw, own["items"], own["place"], at, self.window, rivals)
        return jnp.where(some.real, self._sample_losses(theta, some, drop), 0.0).sum() / jnp.maximum(some.real.sum(), 1)

    @eqx.filter_jit  # compiled once where it is called outside a jitted program
    def _train(self, key: jax.Array, theta: dict, own: dict, epochs: int) -> dict:
        """Mini-batch descent over all samples, `epochs` times; batches of padding alone are skipped."""
        descent, real = self.descent, own["place"] >= 1
        batches = -(-real.sum() // self.batch)
        batches = jnp.minimum(batches, self.steps) if self.steps else batches

        def epoch(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
            order, draw = jax.random.split(key)
            at = shuffled_batches(order, real, self.batch)

            def step(turn: jax.Array, carry: tuple) -> tuple:
                theta, state = carry
                slope = jax.grad(self.loss)(theta, own, at[turn], jax.random.fold_in(draw, turn))
                moves, state = descent.update(slope, state)
                return optax.apply_updates(theta, moves), state

            return jax.lax.fori_loop(0, batches, step, carry), None

        return jax.lax.scan(epoch, (theta, descent.init(theta)), jax.random.split(key, epochs))[0][0]

    @eqx.filter_jit
    def _bounded_sum(self, key: jax.Array, theta: dict, own: dict) -> dict:
        """Σ over users of one step each, clipped to norm 1, and the number of users."""
        person, length = own["person"], own["person"].shape[0]
        first = jnp.searchsorted(jnp.where(person >= 0, person, length), jnp.arange(length + 1))

        def one(who: jax.Array) -> dict:
            draw, rest = jax.random.split(jax.random.fold_in(key, who))
            begin, end = first[who], first[jnp.minimum(who + 1, length)]
            at = begin + (jax.random.uniform(draw, (self.each,)) * (end - begin)).astype(jnp.int32)
            slope = jax.grad(self.loss)(theta, own, at, rest)
            step = clipped_to_unit(jax.tree.map(lambda g: -self.rate * g, slope), self.bound or 1.0)
            return person_on_grid(jax.random.fold_in(rest, 1), step)

        people = jnp.minimum(person.max() + 1, MOST_PEOPLE)
        return from_people_grid(sum_in_chunks(one, people, self.group), people)

    def _weight(self, params: dict, own: dict) -> jax.Array:
        """n, and γ if there is a second weight."""
        n = ends(own["place"]).sum().astype(jnp.float32)
        if self.second == "none":
            return n[None]
        if self.second in ("equal", "root"):
            return jnp.stack([n, jnp.sqrt(n) if self.second == "root" else (n > 0).astype(jnp.float32)])
        mine = (
            sequence_length_histogram(own["place"], self.longest)
            if self.second == "lengths"
            else word_counts(self.about, own["items"], self.vectors.shape[0])
        )
        g = closeness(mine, params[self.second], params["closeness"], self.smoothing)
        return jnp.stack([n, jnp.where(n > 0, g, 0.0)])

    def _with_statistics(self, theta: dict, own: dict, local: dict) -> dict:
        """With norm `batch`, the levels' statistics over the device's newest samples; they stay on the device."""
        if self.norm == "example":
            return local
        last = (own["items"] >= 0).sum()
        at = last - 1 - jnp.arange(self.batch)
        some = next_item_samples(jax.random.key(0), own["items"], own["place"], at, self.window, (1, 1))
        vectors = self._items(theta, some.before, some.before.size >= self.catalog.n_items)
        _, seen = user_vectors(theta, self.sizes, vectors, some.before >= 0)
        return {**local, **seen._asdict()}
