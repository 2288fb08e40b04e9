"""gated_steps: counts or steps, as the counts so far suggest; then a table of steps from rounds that keep ever fewer cells."""

import math
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled
from tacit.server.rules._steps import (
    Attributes,
    above_noise,
    cells_of,
    frequent,
    head_counts,
    item_weights,
    largest,
    predicted,
)


class Recipe(NamedTuple):
    """Settings that were chosen together, on people that are not reported."""

    power: float  # of the weights: g = (ĉ / mean)^(−power)
    transpose: float
    carry: float  # V_r = Y_r + carry·V_{r−1}
    shares: tuple[float, float, float]  # of what the counts leave
    kept: tuple[float, float]  # the share of cells that is sent in the second round of steps, and in the third
    prior: float
    smooth: float


WITH_ATTRIBUTES = Recipe(0.3, 0.15, 0.6, (0.25, 0.35, 0.4), (0.3, 0.1), 0.25, 0.3)
WITHOUT = Recipe(0.25, 0.2, 0.5, (0.4, 0.3, 0.3), (0.3, 0.1), 0.1, 0.15)
GATE = 5  # items that must stand out of the noise, or there is nothing but popularity
LEVEL = 1.1
MOST_COUNTS = 0.45  # the largest share of counts that are followed by steps
ROUNDS = 4


class Progress(NamedTuple):
    """What the server keeps from round to round; all of it follows from what was released."""

    round: jax.Array
    counted: jax.Array  # the share of the whole ε that counts have, or will have after the next round
    table: jax.Array  # V, float32[room²]
    prior: jax.Array  # what is added to V + transpose·Vᵀ where cells are chosen, float32[room²]


class GatedSteps(Rule):
    """Four rounds: counts again, then three of steps. What each round costs is asked for after the rounds before.

    An earlier stage has counted items with the share `counted` of ε. Of these counts n₀ stand out of the noise. Where n₀ < 5, all
    that is left goes to counts, and the plan is private popularity. Otherwise counts get 1.2/√n₀ of ε in all, from what they
    had up to .45, and the rest goes to steps between the items of the head.

    V_r = Y_r + carry·V_{r−1}. After the first two rounds of steps devices keep those cells of which V + transpose·Vᵀ is largest,
    with what is expected of a cell added by as much as the noise exceeds what it gets wrong. Expected is a multiple of the product
    of both items' weighted counts, and of what their public `attributes` have in common. At the end each item's row is smoothed
    over the items whose steps stand out of the noise.

    All this is post-processing of what was released, so it costs no privacy; the shares are bounded by the mechanism.
    """

    moves_what_is_sent: ClassVar[bool] = False
    counted: float = setting(0.05, above=0.0, at_most=0.9)
    least: int = setting(20, at_least=1)  # items in the head, where there is one
    attributes: bool = setting(True)  # whether public attributes of the items are used, where the catalog has them
    public: Attributes | None = None

    def settle(self, noise: float, catalog: Catalog) -> "Rule":
        """With the noise of a sum that had all that this stage has of ε, and the attributes of the items."""
        return replace(self, noise=noise, public=Attributes.of(catalog) if self.attributes else None)

    @property
    def recipe(self) -> Recipe:
        """What is best with public attributes of the items, and without."""
        return WITHOUT if self.public is None else WITH_ATTRIBUTES

    @property
    def sigma(self) -> float:
        """σ, the noise of a sum that has the whole ε."""
        return self.noise * math.sqrt(1 - self.counted)

    def init(self, params: dict) -> Progress:
        """From the counts of the earlier stage: what share counts get in all."""
        counts = params["counts"]
        found = (counts >= above_noise(counts.size, 1) * self.sigma / math.sqrt(self.counted)).sum()
        share = jnp.clip(1.2 / jnp.sqrt(jnp.maximum(found, 1)), self.counted, max(MOST_COUNTS, self.counted))
        zeros = [jnp.zeros_like(params["steps"]) for _ in range(2)]
        return Progress(jnp.zeros((), jnp.int32), jnp.where(found < GATE, 1.0, share), *zeros)

    def asks(self, params: dict, state: Progress) -> dict[str, jax.Array]:
        """The next round's share of what this stage has."""
        del params
        of_steps = jnp.asarray(self.recipe.shares)[jnp.clip(state.round - 1, 0, ROUNDS - 2)]
        share = jnp.where(state.round == 0, state.counted - self.counted, (1 - state.counted) * of_steps)
        return {"share": share / (1 - self.counted)}

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """One round: counts and head, or the table of steps."""
        del n
        sent = scaled(estimate, "sum")["steps"]
        turns = [partial(turn) for turn in (self._counts, self._first, self._steps, self._last)]  # hashable
        moved = jax.lax.switch(jnp.minimum(state.round, ROUNDS - 1), turns, params, sent, state)
        return moved[0], moved[1]._replace(round=state.round + 1)

    def _counts(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """Both counts averaged by their share of ε; the head, its weights, and steps from now on."""
        room, n = params["head"].shape[0], params["counts"].shape[0]
        more = state.counted - self.counted
        counts = (self.counted * params["counts"] + more * sent[:n]) / state.counted
        noise = self.sigma / jnp.sqrt(state.counted)
        total = jnp.maximum(counts.sum(), 0.0)
        least = jnp.maximum(LEVEL * total**0.25 * self.sigma**0.75, above_noise(n, 10) * noise)
        head = frequent(counts, least, self.least, room)
        head = jnp.where(state.counted < 1, head, n).astype(jnp.int32)
        weights = item_weights(counts, head, noise, self.recipe.power)
        return {**params, "counts": counts, "head": head, "weights": weights, "phase": jnp.ones((), jnp.int32)}, state

    def _first(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """The first steps: the prior is fitted to them."""
        recipe, room = self.recipe, params["head"].shape[0]
        cells, Z = self._cells(params), _with_transpose(sent, room, recipe.transpose)
        shown = head_counts(params["counts"], params["head"], self.sigma / jnp.sqrt(state.counted)) * params["weights"]
        shown = shown / jnp.maximum(shown.max(), 1e-12)
        features = [jnp.ones((room, room))] if self.public is None else self.public.features(params["head"])
        F = predicted(Z, shown[:, None] * shown, features, cells)
        many = jnp.maximum(cells.sum(), 1)
        v = self._noise(state, 0) ** 2 * (1 + recipe.transpose**2)
        wrong = jnp.where(cells, (Z - F) ** 2, 0.0).sum() / many - v
        wrong = jnp.maximum(wrong, v * jnp.sqrt(2 / many))
        prior = recipe.prior * v / jnp.maximum(wrong, 1e-12) * F
        return self._kept(params, state._replace(table=sent, prior=prior.reshape(-1)), 0)

    def _steps(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """More steps, on the cells that were kept."""
        return self._kept(params, state._replace(table=self._added(params, sent, state)), 1)

    def _last(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """The last steps, and the table that devices recommend with."""
        recipe, room, cells = self.recipe, params["head"].shape[0], self._cells(params)
        table = self._added(params, sent, state)
        V, E = table.reshape(room, room), jnp.where(cells, _with_transpose(table, room, recipe.transpose), 0.0)
        Q = jnp.where(cells, jnp.maximum((V + V.T) / 2 - math.sqrt(2) * self._noise(state, 2), 0.0), 0.0)
        Q = Q / jnp.maximum(Q.sum(1, keepdims=True), 1e-9)
        E = jnp.where(cells, E + recipe.smooth * E @ Q.T, 0.0)
        return {**params, "steps": E.reshape(-1)}, state._replace(table=table)

    def _added(self, params: dict, sent: jax.Array, state: Progress) -> jax.Array:
        """V_r; noise on cells that nobody sent is no part of it."""
        return jnp.where(params["kept"], sent, 0.0) + self.recipe.carry * state.table

    def _kept(self, params: dict, state: Progress, turn: int) -> tuple[dict, Progress]:
        """The table so far, and the cells that are sent next."""
        room, cells = params["head"].shape[0], self._cells(params)
        Z = jnp.where(cells, _with_transpose(state.table, room, self.recipe.transpose), 0.0)
        kept = largest(Z + state.prior.reshape(room, room), cells, self.recipe.kept[turn])
        return {**params, "steps": Z.reshape(-1), "kept": kept.reshape(-1)}, state

    def _noise(self, state: Progress, turn: int) -> jax.Array:
        """The noise of a round of steps, as it had its share of ε."""
        share = (1 - state.counted) * self.recipe.shares[turn]
        return self.sigma / jnp.sqrt(jnp.maximum(share, 1e-9))

    def _cells(self, params: dict) -> jax.Array:
        return cells_of(params["head"], params["counts"].shape[0])


def _with_transpose(table: jax.Array, room: int, transpose: float) -> jax.Array:
    """V + transpose·Vᵀ, float32[room, room]."""
    V = table.reshape(room, room)
    return V + transpose * V.T
