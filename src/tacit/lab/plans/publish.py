"""Publishing: a plan and a public catalog as the folder that a server and its devices install. No history goes into it."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.deploy.bundle import Bundle, UpdateSpec, check_settings, write_bundle
from tacit.device.batching import check_sizes, update_shape
from tacit.device.method import Method, build
from tacit.lab.plans.loader import complete
from tacit.lab.simulation.setup import init_key, initial_params
from tacit.privacy.price import price

_LENGTH = 8  # events of a history; the form of an update does not depend on it


def make_bundle(
    path: str | Path,
    plan: Plan,
    catalog: Catalog,
    people: int,
    *,
    names: Sequence[Any] | None = None,
    began: float | None = None,
    server: str = "",
    seed: int | None = None,
) -> Bundle:
    """Write the folder of a plan for so many people.

    Args:
        path: a folder that holds no plan yet.
        plan: what to do.
        catalog: what is public about the items.
        people: the number of users for which the noise is calibrated; no more can take part.
        names: what the items are called.
        began: the time from which times are counted; None: a node's first event.
        server: the public key that signs the server's messages, as hexadecimal.
        seed: of the initial parameters, which are public; from the operating system by default.
    """
    plan = complete(plan)
    price(plan, people)  # a promise that cannot be kept for so many users is refused here
    check_settings(plan)
    check_sizes(plan.stages, catalog)
    methods = [build(stage, catalog) for stage in plan.stages]
    params = initial_params(init_key(secrets.randbits(31) if seed is None else seed), methods)
    update_specs = tuple(_spec(method, params) if stage.rounds else None for stage, method in zip(plan.stages, methods))
    arrays = {name: np.asarray(leaf) for name, leaf in params.items()}
    return write_bundle(path, Bundle(plan, catalog, arrays, people, update_specs, names, began, server))


def _spec(method: Method, params: dict) -> UpdateSpec:
    """The form of an update; nothing is computed."""
    weights, update = update_shape(method, params, _LENGTH)
    dense = jax.eval_shape(dense_tree, update)
    return UpdateSpec(weights, {name: (leaf.shape, str(leaf.dtype)) for name, leaf in dense.items()})
