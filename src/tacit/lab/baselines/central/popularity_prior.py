"""A public chart in the lab: how often everybody goes to each item, as the prior of `seqmf_eb`. A control.

A shop's chart is public and costs no privacy; here the pooled log stands in for it, which is its best case.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from tacit.errors import PlanError
from tacit.lab.data import Population
from tacit.lab.data.selection import owners


def fit(method: Any, population: Population) -> dict:
    """b = log of the share of arrivals; what nobody goes to counts as one arrival in all."""
    if method.rank or method.stays_too:
        raise PlanError(
            f"seqmf_eb: a pooled chart gives b alone, got rank = {method.rank} and stays_too = {method.stays_too}; set "
            "rank = 0 and stays_too = false."
        )
    items, person = population.items, owners(population)
    arrived = np.append(True, (items[1:] != items[:-1]) | (person[1:] != person[:-1]))[: items.size]
    counts = np.bincount(items[arrived], minlength=population.catalog.n_items)
    return {"b": jnp.log(jnp.asarray((counts + 1 / counts.size) / (counts.sum() + 1), jnp.float32))}
