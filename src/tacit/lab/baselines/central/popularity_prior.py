"""Popularity prior: how often each item is reached in the pooled log, as the prior of `seqmf_eb`. A control.

A shop's popularity chart is public and costs no privacy; the pooled log stands in for it, as its best case.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tacit.errors import PlanError
from tacit.lab.baselines.baseline import Baseline
from tacit.lab.data import Population
from tacit.lab.data.selection import owners


class PooledPopularityPrior(Baseline):
    """The popularity prior from pooled counts."""

    methods = ("seqmf_eb",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """b = log of the share of arrivals; items without arrivals count as one arrival in all."""
        if method.rank or method.stays_too:
            raise PlanError(
                f"seqmf_eb: a pooled chart gives b alone, got rank = {method.rank} and stays_too = {method.stays_too}; set "
                "rank = 0 and stays_too = false."
            )
        items, person = population.items, owners(population)
        arrived = np.append(True, (items[1:] != items[:-1]) | (person[1:] != person[:-1]))[: items.size]
        counts = np.bincount(items[arrived], minlength=population.catalog.n_items)
        return {"b": jnp.log(jnp.asarray((counts + 1 / counts.size) / (counts.sum() + 1), jnp.float32))}
