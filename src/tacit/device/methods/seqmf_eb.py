"""SeqMF-EB: an empirical Bayes prior, learned from all users, under the user's own counts. Gradients of the prior leave the device."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows
from tacit.device.history import History
from tacit.device.method import masked
from tacit.device.methods._bases.stay_or_switch import StayOrSwitch
from tacit.errors import PlanError
from tacit.nets.counts.stay_or_leave import (
    arrival_distribution,
    arrivals,
    leave_distribution,
    next_item_context,
    next_item_log_odds,
    stay_probability,
    step_cross_entropy,
)
from tacit.nets.counts.transitions import SECONDS_PER_DAY, TransitionCounts, pair_of, scatter_count, transition_counts
from tacit.nets.factor.least_squares import dot, gather
from tacit.nets.factor.softmax_fit import fit_softmax, masked_softmax
from tacit.nets.sequence.windows import latest_events


class Days(NamedTuple):
    """Each transition with its day, numbered by the user's own active days."""

    pair: jax.Array  # int32[L − 1], as `pair_of` numbers transitions
    day: jax.Array  # int32[L − 1], from 0
    total: jax.Array  # int32[]


class CountsAndDays(NamedTuple):
    """Transition counts, and their days where these are used."""

    habits: TransitionCounts
    days: Days | None


class SeqMFEmpiricalBayes(StayOrSwitch):
    """The user's own transition counts under a prior that all users learn together.

    b is the log-popularity of arriving at an item, a the log-odds of staying with it; with a `rank`, T and S add user
    preferences (t_j·p_u) and transitions (t_j·s_i). The user's own counts soon outweigh the prior: it matters to new users.

    Two gradients:

    - `day`: of the cross-entropy of one day's transitions given the days before it, a day drawn in each round. A day is 24
      hours of the log's clock; in a log without times, a history counts as two days, its halves.
    - `empty`: of b alone, for a user without history, over the whole catalogue: N·(softmax(b) − shares of arrivals),
      each entry clipped to ±1. The bound is public and the same for every catalogue, which suits a single private report;
      clipped, it shows which items a user has rather than how much each is used.

    Paper: a hierarchy of counts as in MacKay and Bauman Peto, "A hierarchical Dirichlet language model" (NLE 1995),
    with shared tables in the place of Q in Saiapin et al. (2024).
    """

    at: Literal["day", "empty"] = setting("day")
    stays_too: bool = setting(True)  # whether a is learned
    rank: int = setting(0, at_least=0)  # columns of T and S; 0: none
    penalty: float = setting(1.0, above=0.0)  # λ of the user vector
    newton: int = setting(4, at_least=1)  # Newton steps for it
    heard: float = setting(50.0, above=0.0)  # most events it is fitted to
    spread: float = setting(0.1, above=0.0)  # standard deviation of the first T and S
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["a", "b"],
        "rounds": 30,
        "server": {"rule": "adam", "rate": 0.1, "decay": 1e-4, "scale": "mean"},
    }

    def __check_init__(self):
        if self.at == "empty" and (self.rank or self.stays_too):
            raise PlanError(
                f"seqmf_eb: at = 'empty' learns b alone, got rank = {self.rank} and stays_too = {self.stays_too}; set "
                "rank = 0 and stays_too = false, or at = 'day'."
            )

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """b and a are 0, T and S small."""
        n = self.catalog.n_items
        params = {"b": jnp.zeros(n)}
        if self.stays_too:
            params["a"] = jnp.zeros(n)
        if self.rank:
            T, S = self.spread * jax.random.normal(key, (2, n, self.rank))
            params |= {"T": T, "S": S}
        return params

    def prepare(self, history: History) -> CountsAndDays:
        """Counts of items and steps, and the day of each step."""
        own, place = transition_counts(history.items, self.catalog.n_items, self.installed)
        if self.at == "empty":
            return CountsAndDays(own, None)
        day = _days(history)
        total = jnp.where(history.items >= 0, day, -1).max(initial=-1) + 1
        return CountsAndDays(own, Days(pair_of(place, own.items.shape[0]), day[1:], total))

    def enter(self, key: jax.Array, own: CountsAndDays) -> dict:
        """A vector of zeros; without a rank, no private state."""
        del key, own
        return {"vector": jnp.zeros(self.rank)} if self.rank else {}

    def local(self, key: jax.Array, params: dict, local: dict, own: CountsAndDays) -> tuple[dict, dict, jax.Array]:
        """The gradient of the prior; the user vector follows in `adapt`."""
        if own.days is None:
            return local, {"b": self._at_empty(params["b"], own.habits)}, jnp.ones(1)
        before, today = draw_day(key, own.days, own.habits.items.shape[0])
        prior = {name: gather(leaf, own.habits.items) for name, leaf in params.items()}
        p = self._vector(prior, arrivals(before), own.habits.real)
        gradient = jax.grad(self._loss)(prior, p, before, today, own.habits.real)

        def rows(leaf: jax.Array) -> Rows:
            real = own.habits.real.reshape((-1,) + (1,) * (leaf.ndim - 1))
            return Rows(own.habits.items, jnp.where(real, leaf, 0.0), self.catalog.n_items)

        return local, {name: rows(leaf) for name, leaf in gradient.items()}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: CountsAndDays) -> dict:
        """p_u from the user's arrivals so far."""
        del key
        if not self.rank:
            return local
        prior = {name: gather(leaf, own.habits.items) for name, leaf in params.items()}
        return {"vector": self._vector(prior, arrivals(own.habits.table), own.habits.real)}

    def _vector(self, prior: dict, gone: jax.Array, real: jax.Array) -> jax.Array:
        """p = argmax Σ_j Ẽ_j log softmax_j(b_j + t_j·p) − λ/2 |p|²."""
        if not self.rank:
            return jnp.zeros(0)
        total = gone.sum()
        scaled = gone * jnp.minimum(total, self.heard) / jnp.maximum(total, 1.0)
        return fit_softmax(prior["T"], prior["b"][None], scaled[None], real, self.penalty, self.newton)

    def _loss(self, prior: dict, p: jax.Array, before: jax.Array, today: jax.Array, real: jax.Array) -> jax.Array:
        """Cross-entropy of a day's transitions given the counts before it."""
        b, a = prior["b"], prior.get("a", jnp.zeros(()))
        T, S = (prior.get(name, jnp.zeros((b.shape[0], 0))) for name in "TS")
        # e = softmax(b + T p),  m = (E + κ₁ e)/(ΣE + κ₁),  g_ij = softmax_{j≠i}(log m_j + t_j·s_i)
        m = arrival_distribution(arrivals(before), masked_softmax(b + dot(T, p), real), self.arrivals)
        logits = jnp.log(jnp.maximum(m, 1e-30)) + dot(S, T.T)
        others = real & ~jnp.eye(b.shape[0], dtype=bool)
        to = jax.vmap(leave_distribution, (0, 0, 0, None))(before, logits, others, self.steps)
        stays = stay_probability(jnp.diagonal(before), before.sum(axis=1), self.stay + a, self.stays)
        return step_cross_entropy(today, to, stays)

    def _at_empty(self, b: jax.Array, own: TransitionCounts) -> jax.Array:
        """N (softmax(b) − E/ΣE), cut: the gradient of N times the cross-entropy; 0 for a user without transitions."""
        gone = arrivals(own.table)
        share = jnp.zeros(b.shape).at[own.items].add(gone / jnp.maximum(gone.sum(), 1.0), mode="drop")
        F = self.catalog.n_items * (jax.nn.softmax(b) - share)
        return jnp.where(gone.sum() > 0, jnp.clip(F, -1.0, 1.0), 0.0)

    def score(
        self, params: dict, local: dict, own: CountsAndDays, recent: jax.Array, candidates: jax.Array
    ) -> jax.Array:
        """log π over the candidates."""
        T, S = (params.get(name, jnp.zeros((self.catalog.n_items, 0))) for name in "TS")
        last = latest_events(recent, 1)[0]
        prior = masked_softmax(
            params["b"][candidates] + dot(T[candidates], local.get("vector", jnp.zeros(0))), candidates >= 0
        )
        link, lean = dot(T[candidates], S[last]), params["a"][last] if self.stays_too else jnp.zeros(())
        return masked(
            next_item_log_odds(next_item_context(own.habits, recent, candidates), self.counts, prior, link, lean),
            candidates,
        )


def draw_day(key: jax.Array, days: Days, n: int) -> tuple[jax.Array, jax.Array]:
    """n_ij before a day that chance draws, and on it, float[n, n] each."""
    pair, day, total = days
    today = jax.random.randint(key, (), 0, jnp.maximum(total, 1))
    # One count for both: what fell on the day stands n² places further, what came later nowhere.
    place = jnp.where((day <= today) & (pair < n * n), pair + n * n * (day == today), 2 * n * n)
    before, on = scatter_count(place, jnp.ones(place.shape), 2 * n * n).reshape(2, n, n)
    return before, on


def _days(history: History) -> jax.Array:
    """The number of each event's day among the person's own; without times, 0 and 1 for the halves."""
    real, place = history.items >= 0, jnp.arange(history.items.shape[0])
    calendar = jnp.floor(history.times / SECONDS_PER_DAY)
    new = jnp.concatenate([jnp.zeros(1, bool), calendar[1:] != calendar[:-1]]) & real
    halves = (2 * place >= real.sum()) & real
    return jnp.where(history.times.max(initial=0.0) > 0, jnp.cumsum(new), halves).astype(jnp.int32)
