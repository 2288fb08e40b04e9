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
    compared,
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
SURE = 2.0  # standard deviations by which the second round must agree with the first, or what is left goes to counts
LEVEL = 1.1
MOST_COUNTS = 0.45  # the largest share of counts that are followed by steps
ROUNDS = 4


class Progress(NamedTuple):
    """What the server keeps from round to round; all of it follows from what was released."""

    round: jax.Array
    counted: jax.Array  # the share of the whole ε that counts have, or will have after the next round
    table: jax.Array  # V, float32[room²]
    prior: jax.Array  # what is added to V + transpose·Vᵀ where cells are chosen, float32[room²]
    popular: jax.Array  # ρ, how much more of the first steps the counts explain than they surely leave


class GatedSteps(Rule):
    """Four rounds: counts again, then three of steps. What each round costs is asked for after the rounds before.

    An earlier stage has counted items with the share `counted` of ε. Of these counts n₀ stand out of the noise. Where n₀ < 5, all
    that is left goes to counts, and the plan is private popularity. Otherwise counts get 1.2/√n₀ of ε in all, from what they
    had up to .45, and the rest goes to steps between the items of the head.

    V_r = Y_r + carry·V_{r−1}. After the first two rounds of steps devices keep those cells of which V + transpose·Vᵀ is largest,
    with what is expected of a cell added by as much as the noise exceeds what it gets wrong. Expected is a multiple of the product
    of both items' weighted counts, and of what their public `attributes` have in common. At the end each item's row is smoothed
    over the items whose steps stand out of the noise.

    Each round's noise is its own, so a later round tells what the earlier ones are worth. Where the second round of steps does not
    follow the first by more than the counts predict (t < 2), the third is spent on counts, and the plan is popularity from what
    counts have then. Otherwise c·mean(E) times the product of the weighted counts, over its mean, is added to E, with
    c = 8·r·ρ³ + 4·max(r − 2, 0): r = ((t_m + 1)/(t_Z − 1))² says how much better the counts explain the last round than the earlier
    steps do, ρ the same of variances in the first. The larger c, the more the order of items is that of their counts.

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
        table, prior = (
            jnp.zeros_like(params["steps"]) for _ in range(2)
        )  # two arrays: a round takes over the memory of each
        counted = jnp.where(found < GATE, 1.0, share)
        return Progress(jnp.zeros((), jnp.int32), counted, table, prior, popular=jnp.zeros(()))

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
        m = self._product(params, state)
        features = [jnp.ones((room, room))] if self.public is None else self.public.features(params["head"])
        F = predicted(Z, m, features, cells)
        many = jnp.maximum(cells.sum(), 1)
        v = self._noise(state, 0) ** 2 * (1 + recipe.transpose**2)
        least = v * jnp.sqrt(2 / many)  # the deviation of a mean of squares that are noise alone
        wrong = jnp.maximum(_mean_square(Z - F, cells) - v, least)
        prior = recipe.prior * v / jnp.maximum(wrong, 1e-12) * F
        alone = predicted(Z, m, [jnp.ones((room, room))], cells)
        left = jnp.maximum(_mean_square(Z - alone, cells) - v, 0.0) + 8 * least
        popular = _mean_square(alone, cells) / jnp.maximum(left, 1e-12)
        return self._kept(params, state._replace(table=sent, prior=prior.reshape(-1), popular=popular), 0)

    def _steps(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """More steps, on the cells that were kept. Where they do not follow the first ones, counts are asked for next."""
        _, t = self._compared(params, sent, state, 1)
        params, state = self._kept(params, state._replace(table=self._added(params, sent, state)), 1)
        return {**params, "phase": jnp.where(t < SURE, 0, 1).astype(jnp.int32)}, state

    def _last(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """The last round: counts where the steps tell little, or the table that devices recommend with."""
        ends = [partial(end) for end in (self._last_counts, self._last_steps)]  # hashable
        return jax.lax.cond(params["phase"] == 0, *ends, params, sent, state)

    def _last_counts(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """All counts averaged by their share of ε; no head."""
        n = params["counts"].shape[0]
        more = (1 - state.counted) * self.recipe.shares[2]
        counts = (state.counted * params["counts"] + more * sent[:n]) / (state.counted + more)
        return {**params, "counts": counts, "head": jnp.full_like(params["head"], n)}, state

    def _last_steps(self, params: dict, sent: jax.Array, state: Progress) -> tuple[dict, Progress]:
        """E, with as much of the counts as they explain."""
        recipe, room, cells = self.recipe, params["head"].shape[0], self._cells(params)
        t_m, t_Z = self._compared(params, sent, state, 2)
        table = self._added(params, sent, state)
        V, E = table.reshape(room, room), jnp.where(cells, _with_transpose(table, room, recipe.transpose), 0.0)
        Q = jnp.where(cells, jnp.maximum((V + V.T) / 2 - math.sqrt(2) * self._noise(state, 2), 0.0), 0.0)
        Q = Q / jnp.maximum(Q.sum(1, keepdims=True), 1e-9)
        E = jnp.where(cells, E + recipe.smooth * E @ Q.T, 0.0)
        r = ((jnp.maximum(t_m, 0.0) + 1) / jnp.maximum(t_Z - 1, 0.5)) ** 2
        c = jnp.minimum(8 * r * state.popular**3 + 4 * jnp.maximum(r - 2, 0.0), 1000.0)
        m = jnp.where(cells, self._product(params, state), 0.0)
        E = E + c * jnp.maximum(E.sum(), 0.0) * m / jnp.maximum(m.sum(), 1e-12)
        return {**params, "steps": E.reshape(-1)}, state._replace(table=table)

    def _product(self, params: dict, state: Progress) -> jax.Array:
        """m, the product of both items' weighted counts, 1 at most, float32[room, room]."""
        shown = head_counts(params["counts"], params["head"], self.sigma / jnp.sqrt(state.counted)) * params["weights"]
        shown = shown / jnp.maximum(shown.max(), 1e-12)
        return shown[:, None] * shown

    def _compared(self, params: dict, sent: jax.Array, state: Progress, turn: int) -> tuple[jax.Array, jax.Array]:
        """By how many standard deviations the counts, and the steps before, explain a round on the cells sent in it."""
        room = params["head"].shape[0]
        Z = _with_transpose(state.table, room, self.recipe.transpose).reshape(-1)
        return compared(sent, self._product(params, state).reshape(-1), Z, params["kept"], self._noise(state, turn))

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


def _mean_square(values: jax.Array, among: jax.Array) -> jax.Array:
    """Over the cells `among`."""
    return jnp.where(among, values**2, 0.0).sum() / jnp.maximum(among.sum(), 1)
