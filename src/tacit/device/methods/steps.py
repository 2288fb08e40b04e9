"""Steps: which item follows which, from one noisy sum of everybody's steps between frequent items."""

import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, coalesce_sorted, distinct
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.errors import PlanError


class Steps(Method):
    """score_j = Σ_k fade^k · E[i_k, j], with i_0 the newest of the device's frequent items, i_1 the one before it.

    A first stage counts items (`sends = "counts"`): each device sends its distinct items over the root of their number. From
    the noisy counts follow the `head`, the items that are frequent enough for what comes, and a weight g_i for each.

    In the next stage a device leaves out the events of other items and adds, for every two events at distance k up to
    `window`, decay^(k − 1)·g_i·g_j to the cell (i, j). It adds up equal cells, then divides by the L2 norm of them all, so
    that the table it sends has norm 1, whatever the history. E is the noisy sum of those tables, after the server's rule. In a
    later round a device sends the cells that are `kept`, which follow from what was released before. With `sends = "as_asked"`
    the server asks for counts or steps round by round, in messages of one form.

    Items that are not in the head come after it, by their counts. A device adds up the rows of its own recent items, which
    averages their noise and reveals nothing.

    Paper: the steps are those of SR in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI
    2018); a noisy sum of bounded tables, as in McSherry and Mironov, "Differentially private recommender systems" (KDD 2009).
    """

    catalog: Catalog
    sends: Literal["steps", "counts", "as_asked"] = setting("steps")
    most: int = setting(2000, at_least=2)  # items in the head, at most: a message has most² numbers
    upload: float | None = setting(None, above=0.0)  # megabytes of a message, at most: as many items as fit
    window: int = setting(10, at_least=1)
    decay: float = setting(0.8, above=0.0, at_most=1.0)
    recent: int = setting(20, at_least=1)
    fade: float = setting(0.75, above=0.0, at_most=1.0)
    work: ClassVar[float] = 10.0
    nonnegative: ClassVar[bool] = True
    private: ClassVar[dict[str, Any]] = {"mechanism": "gaussian", "update_form": "nonnegative"}
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["counts", "head", "kept", "steps"],
        "rounds": 1,
        "server": {"rule": "step_table"},
    }

    def __check_init__(self):
        if self.catalog.n_items > 1 and self.window * (self.room**2 + 1) >= 2**31:
            raise PlanError(
                f"hyper.window times the square of hyper.most must be below 2^31, got {self.window} · {self.room}²; lower one."
            )
        if self.sends == "as_asked" and self.room**2 < self.catalog.n_items:
            raise PlanError(
                f"hyper.most and hyper.upload leave {self.room**2:,} numbers in a message, too few for the counts of "
                f"{self.catalog.n_items:,} items; allow at least {math.ceil(math.sqrt(self.catalog.n_items))} items."
            )

    @property
    def room(self) -> int:
        """How many items fit into the head: of a dense table of numbers of 4 bytes, for positions are private too."""
        fit = self.most if self.upload is None else max(2, math.isqrt(int(self.upload * 1e6 / 4)))
        return min(self.most, fit, self.catalog.n_items)

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No counts and no steps; the head is the first items, all cells are kept."""
        del key
        n, room = self.catalog.n_items, self.room
        return {
            "counts": jnp.zeros(n),
            "head": jnp.arange(room, dtype=jnp.int32),  # item numbers; n is padding
            "weights": jnp.ones(room),
            "kept": jnp.ones(room * room, bool),
            "phase": jnp.zeros((), jnp.int32),  # of `as_asked`: 0 is counts, 1 is steps
            "steps": jnp.zeros(room * room),  # E; the cell (i, j) is at i·room + j
        }

    def prepare(self, history: History) -> jax.Array:
        """The items in order, -1 is padding."""
        return history.items

    def enter(self, key: jax.Array, own: jax.Array) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: jax.Array) -> tuple[dict, dict, jax.Array]:
        """Send the counts, or the steps, with an L2 norm of 1 in all."""
        del key
        if self.sends == "counts":
            update = {"counts": _normalised(distinct(own, self.catalog.n_items))}
        elif self.sends == "steps":
            update = {"steps": self._steps(params, own)}
        else:
            update = {"steps": self._as_asked(params, own)}
        return local, update, jnp.ones(1)

    def _as_asked(self, params: dict, items: jax.Array) -> Rows:
        """The counts or the steps, in the same form; the count of item i is at i."""
        size, length = self.room**2, items.shape[0] * self.window

        def counts() -> Rows:
            own = _normalised(distinct(items, self.catalog.n_items))
            return _longer(Rows(jnp.where(own.index < own.rows, own.index, size), own.value, size), length)

        return jax.lax.cond(params["phase"] == 0, counts, lambda: _longer(self._steps(params, items), length))

    def _steps(self, params: dict, items: jax.Array) -> Rows:
        """The cells between the head items of a history, equal ones added up, with an L2 norm of 1."""
        head, room, window = _only_head(self._places(params), items), self.room, min(self.window, items.shape[0] - 1)
        size = room * room
        if window < 1:
            return Rows(jnp.full(1, size, jnp.int32), jnp.zeros(1), size)
        keys = []
        for k in range(1, window + 1):
            i, j = head[:-k], head[k:]
            cell = jnp.where((i >= 0) & (j >= 0) & (i != j), i * room + j, size)
            real = params["kept"].at[cell].get(mode="fill", fill_value=False)
            keys.append(jnp.where(real, cell, size) * self.window + k - 1)
        # Cell and distance in one integer, for numbers alone are sorted five times as fast as numbers with a value each.
        cell, k = jnp.divmod(jnp.sort(jnp.concatenate(keys)), self.window)
        i, j = jnp.divmod(cell, room)
        g = params["weights"]
        value = jnp.power(self.decay, k) * g.at[i].get(mode="fill", fill_value=0.0) * g[j]
        return _normalised(coalesce_sorted(cell, value, size))

    def adapt(self, key: jax.Array, params: dict, local: dict, own: jax.Array) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: jax.Array, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Σ_k fade^k · E[i_k, ·] in the head; below it, or where no recent item is in it, the counts."""
        del local, own
        places, room = self._places(params), self.room
        latest = jnp.flip(
            _only_head(places, jnp.flip(recent))[: self.recent]
        )  # of no more than the newest, oldest first
        age = jnp.arange(latest.shape[0])[::-1]
        weight = jnp.where(latest >= 0, self.fade**age, 0.0)
        near = weight @ params["steps"].reshape(room, room)[latest]
        place, counts = places[candidates], params["counts"]
        below = near.min() - 1 - (counts.max() - counts[candidates])
        in_head = (place >= 0) & (latest >= 0).any()
        return masked(jnp.where(in_head, near[place], below), candidates)

    def _places(self, params: dict) -> jax.Array:
        """int32[n], where each item is in the head; -1 where it is not."""
        n = self.catalog.n_items
        return jnp.full(n, -1, jnp.int32).at[params["head"]].set(jnp.arange(self.room, dtype=jnp.int32), mode="drop")


def _only_head(places: jax.Array, items: jax.Array) -> jax.Array:
    """The places of the head items of a sequence, in order and without gaps; -1 is padding, at the end."""
    place = jnp.where(items >= 0, places[items], -1)
    real = place >= 0
    at = jnp.where(real, jnp.cumsum(real) - 1, items.shape[0])
    return jnp.full(items.shape, -1, jnp.int32).at[at].set(place, mode="drop")


def _longer(rows: Rows, length: int) -> Rows:
    """The rows with so much room, padded at the end."""
    more = (0, length - rows.index.shape[0])
    return Rows(jnp.pad(rows.index, more, constant_values=rows.rows), jnp.pad(rows.value, more), rows.rows)


def _normalised(rows: Rows) -> Rows:
    """The rows with an L2 norm of 1; none where there are none. Equal positions must have been added up before."""
    return rows.with_value(rows.value / jnp.maximum(jnp.sqrt(jnp.square(rows.value).sum()), 1e-12))
