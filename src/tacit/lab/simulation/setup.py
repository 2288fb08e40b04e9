"""Setup of a run: its keys, its initial parameters, and the job of each stage, which no round changes."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.core.messages import schema_of
from tacit.core.plan import Stage
from tacit.core.sparse_rows import dense_tree
from tacit.device.batching import update_shape
from tacit.device.method import Method
from tacit.device.round import KEYS
from tacit.errors import PlanError
from tacit.lab.simulation.engine import Job
from tacit.privacy.price import Price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import by_rows
from tacit.server.rule import rule_of

_INIT, _HOMES, _NOISE = 0, 1, 2  # what a key of the run is for: no two purposes share one


def init_key(seed: Any) -> jax.Array:
    """The key of the initial parameters of a run with this seed."""
    return jax.random.fold_in(jax.random.key(seed, impl=KEYS), _INIT)


def run_keys(seed: Any) -> tuple[jax.Array, jax.Array]:
    """The root keys of a run with this seed: of the devices' secrets, and of the server's noise."""
    root = jax.random.key(seed, impl=KEYS)
    return jax.random.fold_in(root, _HOMES), jax.random.fold_in(root, _NOISE)


def initial_params(key: jax.Array, methods: list[Method]) -> dict:
    """Every leaf of every stage; the first stage that has a leaf initialises it."""
    params: dict = {}
    for number, method in enumerate(methods):
        made = method.init(jax.random.fold_in(key, number))
        for name in made:
            if name in params and made[name].shape != params[name].shape:
                raise PlanError(
                    f"Plan stage {number + 1} goes on with {name!r} of an earlier stage and must have it in the same shape, "
                    f"{params[name].shape}, got {made[name].shape}; set the same sizes, such as hyper.dim."
                )
        params = {**made, **params}
    return jax.tree.map(jnp.asarray, params)


def check_trains(stage: Stage, params: dict) -> None:
    """Refuse a stage that trains leaves which do not exist."""
    for name in stage.trains:
        if name not in params:
            raise PlanError(f"{stage.method}: trains names {name!r}, but the parameters are {sorted(params)}.")


def build_job(stage: Stage, number: int, method: Method, cost: Price, params: dict, length: int) -> Job:
    """What the rounds of a stage need that no round changes; `length` is that of the longest padded history."""
    rule, mechanism = rule_of(stage.server, cost.stages[number], method.catalog), cost.stages[number].mechanism
    assert mechanism is not None
    weights, update = update_shape(method, params, length)
    if rule.moves_what_is_sent and set(update) != set(stage.trains):
        raise PlanError(
            f"Plan stage {number + 1} trains {sorted(stage.trains)}, but its method's update has {sorted(update)}; "
            "trains must name exactly those."
        )
    sent = schema_of(jax.eval_shape(dense_tree, update), weights)
    few = by_rows(mechanism, rule, update, build_sampler(stage.cohort).size(cost.devices))
    return Job(method, mechanism, rule, number, stage.trains, weights, sent, few)
