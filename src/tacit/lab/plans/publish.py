"""Publish: a plan and a public catalog as the folder that a server and its devices install. It contains no history."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.deploy.bundle import Form, Kit, write_kit
from tacit.device.method import Method, build
from tacit.device.round import KEYS
from tacit.lab.data import Population
from tacit.lab.plans.loader import complete
from tacit.lab.simulation.buckets import GRID, furnish, move_in
from tacit.lab.simulation.setup import shape_of_update, start_key, start_params
from tacit.privacy.price import price


def make_kit(
    path: str | Path,
    plan: Plan,
    catalog: Catalog,
    people: int,
    *,
    names: Sequence[Any] | None = None,
    began: float | None = None,
    server: str = "",
    seed: int | None = None,
) -> Kit:
    """Write the folder of a plan for a population of this size.

    Args:
        path: a folder that holds no plan yet.
        plan: the plan to run.
        catalog: the public catalog of the items.
        people: the number of devices the noise is calibrated for; no more can take part.
        names: the names of the items.
        began: the moment times are counted from; None: a node's first event.
        server: the public key of the server, as hexadecimal.
        seed: of the start parameters, which are public; from the operating system by default.
    """
    plan = complete(plan)
    price(plan, people)  # refuses a guarantee that cannot hold for this population
    methods = [build(stage, catalog) for stage in plan.stages]
    params = start_params(start_key(secrets.randbits(31) if seed is None else seed), methods)
    forms = tuple(
        _form(method, number, params, catalog) if stage.rounds else None
        for number, (stage, method) in enumerate(zip(plan.stages, methods))
    )
    arrays = {name: np.asarray(leaf) for name, leaf in params.items()}
    return write_kit(path, Kit(plan, catalog, arrays, people, forms, names, began, server))


def _form(method: Method, number: int, params: dict, catalog: Catalog) -> Form:
    """The shape of an update, from a device with one event; nothing is computed."""
    (bucket,) = furnish(jax.random.key(0, impl=KEYS), _one_device(catalog), GRID, 1, 0.0)
    bucket = move_in(method, number, _one_device(catalog), bucket)
    weights, update = shape_of_update(method, number, params, bucket)
    dense = jax.eval_shape(dense_tree, update)
    return Form(weights, {name: (leaf.shape, str(leaf.dtype)) for name, leaf in dense.items()})


def _one_device(catalog: Catalog) -> Population:
    context, person = (np.zeros((1, width), np.float32) for width in (catalog.event_width, catalog.person_width))
    columns = (np.zeros(1), np.ones(1, np.float32), context, person)
    return Population(catalog, np.array([0, 1]), np.zeros(1, np.int32), *columns)
