"""Masked items: self-supervised item vectors from masked sequences. Differences leave; no label and no user id is used."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, held
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.local_sgd import Minibatch, StepSizes, sgd
from tacit.nets.sequence.masked_items import (
    READER,
    ViewShape,
    contrastive_losses,
    encode_sequence,
    masked_views,
    new_reader,
    project_items,
)
from tacit.nets.sequence.windows import newest_places


class MaskedItems(Method):
    """Descend L_SSL = λ_IM L_IM + λ_SM L_SM on masked copies of the newest events for a few steps; Δ = θ − θ₀.

    Later stages start from the item table. A step uses `batch` copies: in each, one item is replaced by a random one and
    predicted among `negatives` random ones, and one segment is replaced by another of the sequence and predicted among
    such. The losses are those of the paper with their sign corrected, and with the positive in the denominator; without
    it they are unbounded below.

    That no user id is used does not make this private: the sequences are users' own.

    Paper: stage 1 of Wang, Yin, Chen, Yu, Zhou and Zhang, "Fast-adapting and privacy-preserving federated recommender
    system" (2021).
    """

    catalog: Catalog
    dim: int = setting(32, at_least=1)
    window: int = setting(50, at_least=3)  # newest events used
    batch: int = setting(4, at_least=1)  # masked copies a step
    steps: int = setting(10, at_least=1)
    rate: float = setting(0.1, above=0.0)
    item_rate: float = setting(1.0, above=0.0)  # of the item table: a step uses few of its rows
    negatives: int = setting(10, at_least=1)
    longest: int = setting(5, at_least=2)  # of segments; the shortest are 2
    spread: float = setting(0.1, at_least=0.0)  # standard deviation of the first vectors
    of_items: float = setting(1.0, at_least=0.0)  # λ_IM
    of_segments: float = setting(1.0, at_least=0.0)  # λ_SM
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", *READER],
        "rounds": 20,
        "server": {"rule": "mean_step", "rate": 1.0},
        "cohort": {"sampler": "fixed", "count": 20},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random item vectors, Σ and Ψ."""
        table, reader = jax.random.split(key)
        items = self.spread * jax.random.normal(table, (self.catalog.n_items, self.dim))
        return {"items": items, **new_reader(reader, self.dim)}

    def prepare(self, history: History) -> jax.Array:
        """X: the newest events, int32[L], padded at the end."""
        return history.items[newest_places(history.items, self.window)]

    def enter(self, key: jax.Array, own: jax.Array) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: jax.Array) -> tuple[dict, dict, jax.Array]:
        """Δ = θ − θ₀ after some steps, each on fresh masked copies."""
        n, shape = self.catalog.n_items, self._shape(own)
        numbers, real = masked_views(key, own, self.steps * self.batch, shape, n)
        index, place = held(numbers.ravel(), real.ravel(), n)
        start = {"items": gather(params["items"], index), **{name: params[name] for name in READER}}
        batches = Minibatch(place.reshape(self.steps, -1), real.reshape(self.steps, self.batch, -1))
        moved = jax.tree.map(jnp.subtract, self._descend(shape, start, batches), start)
        return local, {**moved, "items": Rows(index, moved["items"], n)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: jax.Array) -> dict:
        """Nothing to adapt: no labels are used."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: Any, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Σ(X)·Ψ(v)."""
        del local, recent
        c = encode_sequence(params, gather(params["items"], own), own >= 0)
        return masked(project_items(params, gather(params["items"], candidates)) @ c, candidates)

    def _shape(self, own: jax.Array) -> ViewShape:
        return ViewShape(own.shape[0], self.negatives, self.longest)

    @eqx.filter_jit  # so that a single device compiles its loop once
    def _descend(self, shape: ViewShape, start: dict, batches: Minibatch) -> dict:
        """θ ← θ − α ∇L_SSL, step after step."""

        def loss(theta: dict, real: jax.Array) -> jax.Array:
            x = theta["items"].reshape(*real.shape, self.dim)
            item, segment = contrastive_losses(theta, shape, x, real)
            return self.of_items * item + self.of_segments * segment

        return sgd(loss, start, batches, StepSizes(self.rate, frozenset({"items"}), self.item_rate))
