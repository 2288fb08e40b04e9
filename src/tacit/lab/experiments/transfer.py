"""Transfer to a new organisation: what a trained model is worth to an organisation that took no part in training."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.batching import power_of_two
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import Split, train_on_organisations
from tacit.lab.plans.loader import complete
from tacit.lab.runs.run import Run


@dataclass(frozen=True)
class TransferGain:
    """1/rank of each test case of an organisation that took no part in training."""

    broadcast: np.ndarray  # with the model as it was broadcast
    adapted: np.ndarray  # ... after some epochs of local training
    alone: np.ndarray  # with a model trained on this organisation alone


def transfer_gain(run: Run, split: Split, epochs: int = 3, alone: int = 10, *, seed: int = 0) -> TransferGain:
    """Evaluate a run's model on an organisation that was not in it; nothing is sent. Ranks are among all items.

    `split` is of the organisation's users only, with a silo column; `epochs` and `alone` are the epochs of local training
    of the broadcast model and of one that starts from initial parameters.
    """
    of_organisation = train_on_organisations(split)
    if len(of_organisation.train) != 1:
        raise DataError(
            f"transfer_gain takes one organisation, got {len(of_organisation.train)}; select its users first."
        )
    fresh = replace(run, params={**run.params, **run.method.init(jax.random.key(seed, impl=KEYS))})
    log = of_organisation.train
    runs = (run, fine_tuned(run, log, 0, epochs, seed), fine_tuned(fresh, log, 0, alone, seed))
    return TransferGain(*(1.0 / ranks(one, of_organisation, seed=seed) for one in runs))


def fine_tuned(run: Run, log: Population, number: int, epochs: int, seed: int = 0) -> Run:
    """The run with its parameters fine-tuned on the data of one organisation for so many epochs."""
    plan = complete(run.plan.with_setting(f"{len(run.plan.stages)}.hyper.home", epochs))
    method = build(plan.stages[-1], log.catalog)
    history = log.histories(np.array([number]), power_of_two(int(log.lengths[number])))
    own = method.prepare(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), history))
    key = jax.random.key(seed, impl=KEYS)
    local = method.adapt(key, run.params, method.enter(key, own), own)
    return replace(run, params={**run.params, **local["model"]})
