"""How a run starts: its keys, every leaf of every stage, and what the rounds of a stage need that no round changes."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.core.messages import schema_of
from tacit.core.plan import Stage
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import Method
from tacit.device.round import KEYS
from tacit.errors import PlanError
from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import Job
from tacit.privacy.price import Price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import by_rows
from tacit.server.rule import build_rule

_INIT, _HOMES, _NOISE = 0, 1, 2  # what a key of the run is for: no two purposes share one


def start_key(seed: Any) -> jax.Array:
    """The key that a run of this seed makes its start parameters with."""
    return jax.random.fold_in(jax.random.key(seed, impl=KEYS), _INIT)


def run_keys(seed: Any) -> tuple[jax.Array, jax.Array]:
    """The keys of a run of this seed from which homes have their secrets, and the server its noise."""
    root = jax.random.key(seed, impl=KEYS)
    return jax.random.fold_in(root, _HOMES), jax.random.fold_in(root, _NOISE)


def start_params(key: jax.Array, methods: list[Method]) -> dict:
    """Every leaf of every stage; the first stage that has a leaf starts it."""
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
    """A stage trains leaves that are there."""
    for name in stage.trains:
        if name not in params:
            raise PlanError(f"{stage.method}: trains names {name!r}, but the parameters are {sorted(params)}.")


def job_of(stage: Stage, number: int, method: Method, cost: Price, params: dict, bucket: Bucket) -> Job:
    """What the rounds of a stage need that no round changes; the bucket says what an update looks like."""
    rule, mechanism = build_rule(stage.server), cost.stages[number].mechanism
    assert mechanism is not None
    weights, update = shape_of_update(method, number, params, bucket)
    if rule.moves_what_is_sent and set(update) != set(stage.trains):
        raise PlanError(
            f"Plan stage {number + 1} trains {sorted(stage.trains)}, but its method's update has {sorted(update)}; "
            "trains must name exactly those."
        )
    sent = schema_of(jax.eval_shape(dense_tree, update), weights)
    few = by_rows(mechanism, rule, update, build_sampler(stage.cohort).size(cost.devices))
    return Job(method, mechanism, rule, number, stage.trains, weights, sent, few)


def shape_of_update(method: Method, stage: int, params: dict, bucket: Bucket) -> tuple[int, dict]:
    """How many weights a report carries, and the shapes of the update, without running anything."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (bucket.home, bucket.own))
    key = jax.random.key(0, impl=KEYS)
    _, update, weight = jax.eval_shape(lambda home, own: method.local(key, params, home.local[str(stage)], own), *one)
    return weight.shape[0], update
