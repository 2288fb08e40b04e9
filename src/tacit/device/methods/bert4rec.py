"""BERT4Rec: a bidirectional transformer fills gaps in a sequence, and the last gap is the next item. Fitted in the lab."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.device.methods._bases.next_item import NextItem
from tacit.errors import PlanError
from tacit.nets.sequence.attention import BLOCKS, new_blocks, transformer
from tacit.nets.sequence.windows import NextItemSamples


class BERT4Rec(NextItem):
    """x_t = q_t + p_t, or p_t alone in a gap; after the blocks, h_t · q_i says what the gap hides.

    In training a share `hidden` of a sequence is hidden and asked for, at least one event; at home the gap is behind the
    newest event. A gap shows its position and no row of its own, items that go in are those that come out, and no layer
    stands between the last block and them: the plainest layout with the 3,621,248 parameters that Li et al. (2022) count
    for 30,430 items of size 100, 4 blocks of 512 and 30 positions.

    Paper: Sun, Liu, Wu, Pei, Lin, Ou and Jiang, "BERT4Rec: sequential recommendation with bidirectional encoder
    representations from transformer" (CIKM 2019).
    """

    blocks: int = setting(2, at_least=1)
    heads: int = setting(2, at_least=1)
    wide: int = setting(256, at_least=1)  # of the layer inside a block
    hidden: float = setting(0.2, above=0.0, at_most=1.0)
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", "positions", *BLOCKS],
        "hyper": {"dim": 16, "window": 10, "wide": 32, "drop": 0.0, "rate": 0.01, "epochs": 100, "batch": 8},
        "cohort": {"sampler": "pooled"},
    }

    def __check_init__(self):
        if self.dim % self.heads:
            raise PlanError(f"hyper.dim of bert4rec must be a multiple of heads = {self.heads}, got {self.dim}.")

    @property
    def stride(self) -> int:
        """A window: any event inside it may be hidden."""
        return self.window

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random items and positions, blocks that begin by passing on."""
        items, positions, blocks = jax.random.split(key, 3)
        draw = lambda key, rows: 0.02 * jax.random.truncated_normal(key, -2, 2, (rows, self.dim))  # noqa: E731
        made = {"items": draw(items, self.catalog.n_items), "positions": draw(positions, self.window + 1)}
        return made | new_blocks(blocks, self.blocks, self.dim, self.wide)

    def taste(self, params: dict, before: jax.Array) -> jax.Array:
        """What stands in a gap behind the last event."""
        line = jnp.append(before, 0)
        return self._read(params, line, line >= 0, jnp.arange(line.size) == self.window)[-1]

    def lost(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """Of what was hidden."""
        hide, drop, draw = jax.random.split(key, 3)
        line = jnp.concatenate([some.before, some.target[:, None]], axis=1)
        at, counts = draw_gaps(hide, line >= 0, self.hidden)
        gap = jnp.zeros(line.shape, bool).at[jnp.arange(line.shape[0])[:, None], at].max(counts)
        keys = jax.random.split(drop, line.shape[0])
        h = jax.vmap(self._read, (None, 0, 0, 0, 0))(params, line, line >= 0, gap, keys)
        asked = jnp.take_along_axis(h, at[:, :, None], axis=1).reshape(-1, self.dim)
        target = jnp.maximum(jnp.take_along_axis(line, at, axis=1).ravel(), 0)
        return self.against_all(params, draw, asked, target), counts.ravel().astype(jnp.float32)

    def _read(self, params: dict, line: jax.Array, real: jax.Array, gap: jax.Array, key: Any = None) -> jax.Array:
        """Every step of one sequence after the blocks, [window + 1, d]."""
        shown = jnp.where((real & ~gap)[:, None], params["items"][jnp.maximum(line, 0)], 0.0)
        return transformer(params, shown + params["positions"], real, self.heads, self.drop, key)


def draw_gaps(key: jax.Array, real: jax.Array, share: float) -> tuple[jax.Array, jax.Array]:
    """Places to hide in each row of [b, T], int32[b, m], and which of them count: a share of what is real, at least one."""
    steps = real.shape[1]
    most = max(1, round(share * steps))
    luck = jnp.where(real, jax.random.uniform(key, real.shape), -1.0)
    at = jax.lax.top_k(luck, most)[1]
    wanted = jnp.maximum(jnp.round(share * real.sum(1)), 1.0)
    return at, (jnp.arange(most) < wanted[:, None]) & jnp.take_along_axis(real, at, axis=1)
