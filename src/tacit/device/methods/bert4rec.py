"""BERT4Rec: a bidirectional transformer predicts masked items; the last mask is the next item. Trained in the lab on pooled data."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.device.methods._bases.next_item import NextItem
from tacit.errors import PlanError
from tacit.nets.sequence.attention import BLOCKS, new_blocks, transformer
from tacit.nets.sequence.windows import NextItemSamples


class BERT4Rec(NextItem):
    """x_t = q_t + p_t, or p_t alone at a mask; after the blocks, h_t · q_i scores the masked item.

    In training a share `hidden` of a sequence is masked and predicted, at least one event; on the device the mask follows
    the newest event. A mask has a position but no embedding of its own, input and output embeddings are shared, and there is
    no output layer: the simplest layout with the 3,621,248 parameters that Li et al. (2022) count for 30,430 items of size
    100, 4 blocks of 512 and 30 positions.

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
        """A window: any event inside it may be masked."""
        return self.window

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random items, positions and blocks."""
        items, positions, blocks = jax.random.split(key, 3)
        draw = lambda key, rows: 0.02 * jax.random.truncated_normal(key, -2, 2, (rows, self.dim))  # noqa: E731
        made = {"items": draw(items, self.catalog.n_items), "positions": draw(positions, self.window + 1)}
        return made | new_blocks(blocks, self.blocks, self.dim, self.wide)

    def user_vector(self, params: dict, before: jax.Array) -> jax.Array:
        """The encoding of a mask after the last event."""
        line = jnp.append(before, 0)
        return self._encode(params, line, line >= 0, jnp.arange(line.size) == self.window)[-1]

    def losses(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """Cross-entropy of the masked items."""
        hide, drop, draw = jax.random.split(key, 3)
        line = jnp.concatenate([some.before, some.target[:, None]], axis=1)
        at, counts = draw_masks(hide, line >= 0, self.hidden)
        gap = jnp.zeros(line.shape, bool).at[jnp.arange(line.shape[0])[:, None], at].max(counts)
        keys = jax.random.split(drop, line.shape[0])
        h = jax.vmap(self._encode, (None, 0, 0, 0, 0))(params, line, line >= 0, gap, keys)
        asked = jnp.take_along_axis(h, at[:, :, None], axis=1).reshape(-1, self.dim)
        target = jnp.maximum(jnp.take_along_axis(line, at, axis=1).ravel(), 0)
        return self.against_all(params, draw, asked, target), counts.ravel().astype(jnp.float32)

    def _encode(self, params: dict, line: jax.Array, real: jax.Array, gap: jax.Array, key: Any = None) -> jax.Array:
        """The encodings of one sequence, [window + 1, d]."""
        shown = jnp.where((real & ~gap)[:, None], params["items"][jnp.maximum(line, 0)], 0.0)
        return transformer(params, shown + params["positions"], real, self.heads, self.drop, key)


def draw_masks(key: jax.Array, real: jax.Array, share: float) -> tuple[jax.Array, jax.Array]:
    """Positions to mask in each row of [b, T], int32[b, m], and which of them count: a share of the real ones, at least one."""
    steps = real.shape[1]
    most = max(1, round(share * steps))
    drawn = jnp.where(real, jax.random.uniform(key, real.shape), -1.0)
    at = jax.lax.top_k(drawn, most)[1]
    wanted = jnp.maximum(jnp.round(share * real.sum(1)), 1.0)
    return at, (jnp.arange(most) < wanted[:, None]) & jnp.take_along_axis(real, at, axis=1)
