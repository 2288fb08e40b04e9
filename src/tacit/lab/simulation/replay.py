"""Replay: the messages that devices send in a stage of a finished run, by the devices' own code and with their own secrets.

The parameters are those the run ended with. All messages of the stage are unspent again, or the gate would stay closed.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report
from tacit.core.plan import Stage
from tacit.device.method import build
from tacit.device.round import Home
from tacit.lab.simulation.buckets import Bucket, homes_by_id, prepare_devices
from tacit.lab.simulation.engine import Job, step_all
from tacit.lab.simulation.setup import build_job
from tacit.server.round import open_round

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

step_devices = jax.jit(step_all)


class Replay:
    """A stage of a finished run, ready to be played again."""

    def __init__(self, run: "Run", number: int):
        """`number` is the stage, from 0; it must be one that sends messages."""
        self.run, self.number = run, number
        self.stage: Stage = run.plan.stages[number]
        self.method = build(self.stage, run.population.catalog)
        self.job: Job = build_job(self.stage, number, self.method, run.price, run.params, run.buckets[-1].length)

    def broadcast(self, round: Any) -> Broadcast:
        """What the devices receive in a round."""
        return open_round(round, self.run.params, self.run.dials(self.number))

    def buckets(self) -> list[Bucket]:
        """All devices, with their histories prepared for this stage."""
        buckets = self.run.buckets
        if self.number != self.run.stage:  # they are prepared for the last stage
            population = self.run.population
            buckets = [b._replace(own=prepare_devices(self.method, population, b.ids, b.length)) for b in buckets]
        return [bucket._replace(home=self._unspent(bucket.home)) for bucket in buckets]

    def devices(self, ids: np.ndarray, *, budgets: bool = True) -> tuple[Home, Any]:
        """The homes and prepared histories of some devices, stacked; without `budgets`, none limits what they send."""
        lengths = self.run.population.lengths[ids]
        own = prepare_devices(self.method, self.run.population, ids, int(lengths.max(initial=1)))
        homes = self._unspent(homes_by_id(self.run.buckets))
        if not budgets:
            homes = homes._replace(allowance={})
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[ids]), homes), own

    def send(self, round: Any, homes: Home, own: Any) -> tuple[Home, Report]:
        """One round of stacked devices: their homes after it, and their reports."""
        return step_devices(self.job, self.broadcast(round), homes, own)

    def _unspent(self, homes: Home) -> Home:
        spent = {**homes.spent, str(self.number): np.zeros_like(homes.spent[str(self.number)])}
        return homes._replace(spent=spent)
