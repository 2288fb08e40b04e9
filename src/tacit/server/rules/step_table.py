"""step_table: a table of which item follows which, from noisy sums of steps; and which cells devices send in the next round."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled
from tacit.server.rules._steps import cells_of, largest


class StepTable(Rule):
    """`steps` = V + transpose·Vᵀ with V_r = Y_r + carry·V_{r−1}, where Y_r is the sum of round r, on the cells sent in it.

    After round r devices keep the share `keep[r]` of the cells, those with the largest V + transpose·Vᵀ; all, where no share is
    given. This is post-processing of what was released, so it costs no privacy.
    """

    moves_what_is_sent: ClassVar[bool] = False
    transpose: float = setting(0.2, at_least=0.0)
    carry: float = setting(0.3, at_least=0.0)
    keep: tuple = setting(())  # of shares, round by round

    def init(self, params: dict) -> Any:
        """Before the first round: V = 0."""
        return {"round": jnp.zeros((), jnp.int32), "table": jnp.zeros_like(params["steps"])}

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """V, the table of steps, and the cells that are sent next."""
        del n
        room = params["head"].shape[0]
        sent = jnp.where(params["kept"], scaled(estimate, "sum")["steps"], 0.0)
        table = sent + self.carry * state["table"]
        V = table.reshape(room, room)
        steps = jnp.where(jnp.eye(room, dtype=bool), 0.0, V + self.transpose * V.T).reshape(-1)
        kept = params["kept"]
        if self.keep:
            cells = cells_of(params["head"], params["counts"].shape[0]).reshape(-1)
            kept = largest(steps, cells, self._share(state["round"]))
        return {**params, "steps": steps, "kept": kept}, {"round": state["round"] + 1, "table": table}

    def _share(self, round: jax.Array) -> jax.Array:
        """The share of the cells that is kept after a round; the last one stays."""
        return jnp.asarray(self.keep)[jnp.minimum(round, len(self.keep) - 1)]
