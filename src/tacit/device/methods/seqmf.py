"""SeqMF: matrix factorisation with a sequential term. Item gradients leave the device."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.errors import DataError
from tacit.nets.counts.transitions import (
    Denominator,
    Orientation,
    TransitionCounts,
    apply_transitions,
    apply_transposed,
    relative_transitions,
    transition_counts,
    within_days,
)
from tacit.nets.factor.least_squares import dot, dual_ridge, gather, ridge
from tacit.nets.sequence.windows import latest_events, pool_rows


class NormalEquationTerms(NamedTuple):
    """The parts of Eq. 4 to 12 on the items A_u of one person."""

    rows: jax.Array  # Q_u
    weight: jax.Array  # c, 0 on padding
    rest: jax.Array  # the weight of every other item; 0 as printed
    design: jax.Array | Rows  # S
    carried: jax.Array  # B = S Q_u
    affinity: jax.Array  # h = diag(S Q_u Q_uᵀ)


class SeqMF(Method):
    """Solve the user vector on the device under r = Q p + diag(S Q Qᵀ), send the gradient of the item table.

    S holds the transitions between the user's own items A_u, c = d^γ / Σ d^γ weighs them. As printed, nothing else has
    weight: r = 1 on every own item is then a minimum, and training aligns all rows of Q with one direction. `smoothing`
    α gives every item of the catalogue a weight, c = (d^γ + α)/(Σ d^γ + αN) with target 0 where d = 0, as the authors'
    code does; the update is then dense.

    The paper's Eq. 5 and its worked example Eq. 6 disagree about S. The example is the default, S_ij = how often j
    follows i, divided by the occurrences of i; `orientation` and `denominator` give the other readings.

    `solves` sets when the user vector is recomputed for a new table.

    Paper: Saiapin et al., "Federated privacy-preserving collaborative filtering for on-device next app prediction"
    (UMUAI 2024); without `sequence` it is its matrix factorisation baseline.
    """

    catalog: Catalog
    dim: int = setting(64, at_least=1)
    penalty: float = setting(0.1, above=0.0)  # λ of the user vector; the item table's is the server's decay
    smoothing: float = setting(0.0, at_least=0.0)  # α
    gamma: float = setting(1.0, above=0.0)
    sequence: bool = setting(True)  # without: matrix factorisation
    orientation: Orientation = setting("source")  # row i of S: items that follow i; target: items that precede i
    denominator: Denominator = setting("occurrences")  # what a row of S is divided by; departures: the times i was left
    last: int = setting(1, at_least=0)  # events of the session used in a score; 0: all
    pool: Literal["sum", "mean"] = setting("sum")  # and their pooling
    window: float | None = setting(None, above=0.0)  # days of history before the newest event; by default all
    solves: Literal["always", "rounds", "never"] = setting("always")  # rounds: only in a round
    spread: float = setting(0.06, above=0.0)  # standard deviation of the first item table
    installed: int = setting(128, at_least=1)  # the most items counted: those used most
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "hyper": {"smoothing": 1.0},
        "trains": ["items"],
        "rounds": 10,  # few: more align the rows of Q
        "server": {"rule": "adam", "rate": 0.01, "scale": "mean"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Q from a small normal."""
        return {"items": self.spread * jax.random.normal(key, (self.catalog.n_items, self.dim))}

    @property
    def needs_times(self) -> bool:
        """Whether the log must have times: a window counts days."""
        return self.window is not None

    def prepare(self, history: History) -> TransitionCounts:
        """Counts of items and steps, inside the window."""
        items = history.items
        if self.window is not None:
            _check_times(history, self.window)
            items = within_days(items, history.times, self.window)
        return transition_counts(items, self.catalog.n_items, self.installed)[0]

    def enter(self, key: jax.Array, own: TransitionCounts) -> dict:
        """A small random vector, until the first solve."""
        del own
        return {"vector": 0.01 * jax.random.normal(key, (self.dim,))}

    def local(self, key: jax.Array, params: dict, local: dict, own: TransitionCounts) -> tuple[dict, dict, jax.Array]:
        """Solve p_u, then the exact gradient of the squared error in Q with p_u held."""
        del key
        Q = params["items"]
        terms = self._terms(Q, own)
        p = local["vector"] if self.solves == "never" else self._solve(Q, terms, own)
        return {"vector": p}, {"items": self._gradient(Q, p, terms, own)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: TransitionCounts) -> dict:
        """p_u for the table last received."""
        del key
        if self.solves != "always":
            return local
        return {"vector": self._solve(params["items"], self._terms(params["items"], own), own)}

    def _terms(self, Q: jax.Array, own: TransitionCounts) -> NormalEquationTerms:
        Q_u = gather(Q, own.items)
        # c_ui = (d_ui^γ + α)/(Σ_j d_uj^γ + αN), and 0^γ := 0
        power = jnp.where(own.real, own.uses**self.gamma, 0.0)
        total = jnp.maximum(power.sum() + self.smoothing * self.catalog.n_items, 1e-30)
        c = jnp.where(own.real, power + self.smoothing, 0.0) / total
        rest = jnp.where(own.real.any(), self.smoothing / total, 0.0)  # an empty history contributes nothing
        if not self.sequence:
            nothing = jnp.zeros(())
            return NormalEquationTerms(Q_u, c, rest, nothing, nothing, jnp.zeros(c.shape))
        S = relative_transitions(own, self.orientation, self.denominator)
        B = apply_transitions(S, Q_u)
        return NormalEquationTerms(Q_u, c, rest, S, B, (Q_u * B).sum(axis=1))

    def _solve(self, Q: jax.Array, terms: NormalEquationTerms, own: TransitionCounts) -> jax.Array:
        """p_u = (QᵀC Q + λI)⁻¹ QᵀC (a − h)."""
        Q_u, c, rest, _, _, h = terms
        if self.smoothing == 0:
            return dual_ridge(Q_u, c, 1 - h, self.penalty)
        # QᵀC Q = α' QᵀQ + Q_uᵀ(C_u − α')Q_u, where α' is the weight of the items not used: h and a are 0 there.
        penalty = self.penalty * jnp.eye(self.dim) + rest * dot(Q.T, Q)
        return ridge(Q_u, jnp.where(own.real, c - rest, 0.0), dot(c * (1 - h), Q_u), penalty)

    def _gradient(
        self, Q: jax.Array, p: jax.Array, terms: NormalEquationTerms, own: TransitionCounts
    ) -> jax.Array | Rows:
        Q_u, c, rest, S, B, h = terms
        # w = c∘(r − a), and F = w pᵀ + w∘B + Sᵀ(w∘Q)
        w = c * (dot(Q_u, p) + h - 1)
        F = jnp.outer(w, p)
        if self.sequence:
            F = F + w[:, None] * B + apply_transposed(S, w[:, None] * Q_u)
        if self.smoothing == 0:
            return Rows(own.items, F, self.catalog.n_items)
        return jnp.outer(rest * dot(Q, p), p).at[own.items].set(F, mode="drop")

    def score(
        self, params: dict, local: dict, own: TransitionCounts, recent: jax.Array, candidates: jax.Array
    ) -> jax.Array:
        """q_i·p_u + q_i·Σ q_x over the latest events x."""
        del own
        Q, wanted = params["items"], local["vector"]
        if self.sequence:
            wanted = wanted + pool_rows(Q, latest_events(recent, self.last), self.pool)
        return masked(Q[candidates] @ wanted, candidates)


def _check_times(history: History, window: float) -> None:
    """Refuse a window for a history without times; a traced program cannot check."""
    if isinstance(history.times, Tracer) or bool(history.times.max(initial=0.0) > 0):
        return
    if int((history.items >= 0).sum()) > 1:
        raise DataError(
            f"seqmf: window = {window:g} days needs times, and this history has none; leave window out, or load the log "
            "with its times."
        )
