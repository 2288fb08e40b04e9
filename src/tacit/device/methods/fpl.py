"""FPL: pairwise learning in which a device decides the share of its own items that it discloses. Item rows leave the device."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, coalesce, distinct
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.errors import PlanError, unknown
from tacit.nets.factor.bpr import BprGradients, OwnedItems, Penalties, bpr_gradients, draw_bpr_pair, owned_items


class OwnedAndShare(NamedTuple):
    """The user's items, and the share of them that may be disclosed."""

    had: OwnedItems
    pi: jax.Array  # float32[], the user's own π


class SentTriple(NamedTuple):
    """The rows of one triple: of the owned item and of the negative, in order; padding where a row is withheld."""

    rows: jax.Array  # int32[2]
    items: jax.Array  # float32[2, d]
    bias: jax.Array  # float32[2]


class FPL(Method):
    """x_ui = b_i + p_u·q_i; for `triples` pairs of an owned item i and an unowned item j, ascend ln σ(x_ui − x_uj).

    p_u stays on the device and is updated at once. The update of the negative j is always sent; that of the owned item
    only with probability `pi`, triple by triple, or, with `pi_memo`, by one memoised coin for each item and run. The server
    sums the reports. `own_pi` names a field of the user that holds the user's own π instead; a share chosen on the device
    (`History.share`) overrides both.

    π is withholding, not noise: one message reveals the user vector and the withheld item exactly, for any π.

    Penalties that are not given are rate/20, rate/20 and rate/200, as in the paper; a bias has none. `order` sets
    whether item gradients are taken before the user's own step or after it.

    Paper: Anelli, Deldjoo, Di Noia, Ferrara and Narducci, "How to put users in control of their data in federated top-N
    recommendation with learning to rank" (SAC 2021).
    """

    catalog: Catalog
    dim: int = setting(20, at_least=1)
    rate: float = setting(0.05, above=0.0)  # α of the local step; the server has its own
    triples: int = setting(1, at_least=1)  # T
    pi: float = setting(0.5, at_least=0.0, at_most=1.0)
    own_pi: str | None = setting(None, of_person=(0.0, 1.0))
    pi_memo: bool = setting(False)
    penalty_person: float | None = setting(None, at_least=0.0)
    penalty_had: float | None = setting(None, at_least=0.0)
    penalty_rival: float | None = setting(None, at_least=0.0)
    penalty_bias: float = setting(0.0, at_least=0.0)
    order: Literal["together", "person_first"] = setting("together")
    spread: float = setting(0.1, above=0.0)  # standard deviation of every first value
    steps: int = setting(300, at_least=1)  # local, for a user who did not take part
    reads: ClassVar[int | None] = 4  # two events, and the tree that finds them
    learns: ClassVar[bool] = True
    withholds: ClassVar[bool] = True
    pairwise: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", "bias"],
        "rounds": 1000,
        "privacy": {"mechanism": "none", "wire": "rows"},
        "server": {"rule": "mean_step", "rate": 0.05, "scale": "sum"},
    }

    @property
    def penalties(self) -> Penalties:
        """λ of each part, derived from the rate where not given."""
        given = (self.penalty_person, self.penalty_had, self.penalty_rival)
        person, had, rival = (self.rate / d if one is None else one for one, d in zip(given, (20, 20, 200)))
        return Penalties(person, had, rival, self.penalty_bias)

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Q and b from a small normal."""
        n = self.catalog.n_items
        drawn = self.spread * jax.random.normal(key, (n, self.dim + 1))
        return {"items": drawn[:, 1:], "bias": drawn[:, 0]}

    def prepare(self, history: History) -> OwnedAndShare:
        """The distinct items, in order, and the user's own π."""
        own = distinct(history.items, self.catalog.n_items, jnp.int32)
        return OwnedAndShare(owned_items(own.index, own.value.sum(), self.catalog.n_items), self._choice(history))

    def _choice(self, history: History) -> jax.Array:
        """π: the user's choice on the device, else the user's field, else the plan's value."""
        planned = self._planned(history)
        return planned if history.share is None else jnp.where(jnp.isnan(history.share), planned, history.share)

    def _planned(self, history: History) -> jax.Array:
        if self.own_pi is None:
            return jnp.asarray(self.pi, jnp.float32)
        fields, at = self.catalog.person_fields, 0
        for field in fields:
            if field.name == self.own_pi:
                return history.person[at].astype(jnp.float32)
            at += field.width
        raise PlanError(unknown("hyper.own_pi", self.own_pi, [field.name for field in fields], "field of a person"))

    def enter(self, key: jax.Array, own: OwnedAndShare) -> dict:
        """p_u from a small normal, not trained; with `pi_memo` also the key of the memoised coins."""
        del own
        start, coins = jax.random.split(key)
        local = {"person": self.spread * jax.random.normal(start, (self.dim,)), "learned": jnp.zeros((), jnp.int32)}
        return {**local, "coins": jax.random.key_data(coins)} if self.pi_memo else local

    def local(self, key: jax.Array, params: dict, local: dict, own: OwnedAndShare) -> tuple[dict, dict, jax.Array]:
        """T triples: p_u moves after each, Q and b stay as they were broadcast."""

        def one(p: jax.Array, key: jax.Array) -> tuple[jax.Array, SentTriple]:
            return self._triple(key, params, p, own, local.get("coins"))

        if self.triples == 1:
            p, made = one(local["person"], key)
        else:
            p, made = jax.lax.scan(one, local["person"], jax.random.split(key, self.triples))
        learned = local["learned"] + self._has_pairs(own)
        return {**local, "person": p, "learned": learned}, self._tables(made), jnp.ones(1)

    def _triple(
        self, key: jax.Array, params: dict, p: jax.Array, own: OwnedAndShare, coins: Any
    ) -> tuple[jax.Array, SentTriple]:
        """One pair: the person's step, and what is sent of the items'."""
        i, j, coin = draw_bpr_pair(key, own.had, self.catalog.n_items)
        possible = self._has_pairs(own)
        made = self._slopes(params, p, i, j)
        p_next = jnp.where(possible, p + self.rate * made.person, p)
        if self.order == "person_first":  # g of before, p of after
            moved = made.g * (p_next - p)
            made = made._replace(had=made.had + moved, rival=made.rival - moved)
        coin = coin if coins is None else _memoised_coin(coins, i)
        return p_next, self._rows(i, j, made, (coin < own.pi) & possible, possible)

    def _rows(
        self, i: jax.Array, j: jax.Array, made: BprGradients, shown: jax.Array, possible: jax.Array
    ) -> SentTriple:
        """The rows sent for a pair, the lower index first; withheld rows are padding, and come last."""
        n, first = self.catalog.n_items, shown & (i < j)

        def ordered(had: jax.Array, rival: jax.Array, nothing: float) -> jax.Array:
            had, rival = jnp.where(shown, had, nothing), jnp.where(possible, rival, nothing)
            return jnp.stack([jnp.where(first, had, rival), jnp.where(first, rival, had)])

        return SentTriple(
            ordered(i, j, n), ordered(made.had, made.rival, 0), ordered(made.bias_had, made.bias_rival, 0)
        )

    def _slopes(self, params: dict, p: jax.Array, i: jax.Array, j: jax.Array) -> BprGradients:
        Q, b = params["items"], params["bias"]
        return bpr_gradients(p, Q[i], Q[j], b[i], b[j], self.penalties)

    def _has_pairs(self, own: OwnedAndShare) -> jax.Array:
        """False for a user with no item, or with all of them: there is no pair."""
        return (own.had.size > 0) & (own.had.size < self.catalog.n_items)

    def _tables(self, made: SentTriple) -> dict[str, Rows]:
        """All triples as rows of the two tables; an item's rows are summed."""
        n = self.catalog.n_items
        if self.triples == 1:
            return {"items": Rows(made.rows, made.items, n), "bias": Rows(made.rows, made.bias, n)}
        index = made.rows.reshape(-1)
        return {
            "items": coalesce(index, made.items.reshape(-1, self.dim), n),
            "bias": coalesce(index, made.bias.reshape(-1), n),
        }

    def adapt(self, key: jax.Array, params: dict, local: dict, own: OwnedAndShare) -> dict:
        """A participant keeps p_u; a new user fits it by `steps` triples with Q and b frozen."""
        new = (local["learned"] == 0) & self._has_pairs(own)

        def step(number: jax.Array, p: jax.Array) -> jax.Array:
            i, j, _ = draw_bpr_pair(jax.random.fold_in(key, number), own.had, self.catalog.n_items)
            return p + self.rate * self._slopes(params, p, i, j).person

        # A loop of no steps costs nothing, so participants do not pay for new users.
        return {**local, "person": jax.lax.fori_loop(0, jnp.where(new, self.steps, 0), step, local["person"])}

    def score(
        self, params: dict, local: dict, own: OwnedAndShare, recent: jax.Array, candidates: jax.Array
    ) -> jax.Array:
        """b_i + p_u·q_i."""
        del own, recent
        return masked(params["items"][candidates] @ local["person"] + params["bias"][candidates], candidates)


def _memoised_coin(coins: jax.Array, item: jax.Array) -> jax.Array:
    """The same number for the same item, in every round."""
    return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(coins), item))
