"""Batching: the functions of one device, applied to a stack of devices. A node and the simulator both batch with these.

Histories are padded to a common length and homes are stacked along a leading axis; `vmap` maps each function over it, so a
device takes the same step in a batch as alone.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.messages import Broadcast, Report
from tacit.core.plan import Stage
from tacit.deploy.bundle import MOST_NUMBERS
from tacit.device.history import plain_history
from tacit.device.method import Method, build
from tacit.device.round import KEYS, Home, enter, new_home, seeded_noise_key, step
from tacit.errors import PlanError, TacitError
from tacit.privacy.mechanism import Mechanism

_SHORT = 8  # events of a history whose sizes are looked at
_MOST_IN_A_STEP = 1 << 31  # numbers of one array; few are in memory at a time


def power_of_two(n: int) -> int:
    """The least power of two that is at least n (and 1)."""
    return 1 << max(0, n - 1).bit_length()


def pad_ids(ids: np.ndarray, size: int) -> np.ndarray:
    """The ids, filled up to `size` with the last one."""
    return np.pad(ids, (0, size - ids.size), mode="edge")


def new_homes(secrets: Any) -> Home:
    """Homes before the first stage for devices with these secrets, uint32[n, 2]."""
    return jax.vmap(new_home)(secrets)


def prepare_batch(method: Method, histories: Any) -> Any:
    """What the method makes of each history."""
    return jax.vmap(method.prepare)(histories)


def enter_batch(method: Method, stage: int, homes: Home, owns: Any, allowances: Any = None) -> Home:
    """The homes after each device has entered a stage; `allowances` int32[n], or None where no device has a budget."""
    # An allowance that is None is no leaf, so vmap passes it on as it is.
    return jax.vmap(lambda home, own, allowance: enter(method, stage, home, own, allowance))(homes, owns, allowances)


def step_batch(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, homes: Home, owns: Any, noise: jax.Array
) -> tuple[Home, Report]:
    """One round of every device, each with its own noise key: their homes after it, and their reports, stacked."""
    return jax.vmap(partial(step, method, mechanism, stage, broadcast))(homes, owns, noise)


def seeded_noise_keys(stage: int, round: Any, homes: Home) -> jax.Array:
    """A simulated noise key for each device."""
    return jax.vmap(lambda home: seeded_noise_key(home, stage, round))(homes)


def in_id_order(stacks: Sequence[Any], ids: Sequence[np.ndarray]) -> Any:
    """Several stacks as one in ascending order of device id; `ids` has the device of each row of each stack."""
    order = np.argsort(np.concatenate(ids))
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[order], *stacks)


def update_shape(method: Method, params: dict, length: int) -> tuple[int, dict]:
    """How many weights a report carries, and the shapes of an update of a history of this length; nothing is computed."""

    def local(items: jax.Array) -> Any:
        key = jax.random.key(0, impl=KEYS)
        own = method.prepare(plain_history(items, method.catalog))
        return method.local(key, params, method.enter(key, own), own)[1:]

    update, weight = jax.eval_shape(local, jax.ShapeDtypeStruct((length,), np.int32))
    return weight.shape[0], update


def check_sizes(stages: Sequence[Stage], catalog: Catalog, params: Mapping[str, Any] | None = None) -> None:
    """Refuse settings with which the parameters, a home or a step would be too large for any device; nothing is computed.

    `params` are those that the settings must fit.
    """
    for number, stage in enumerate(stages, 1):
        try:
            made, home, largest = _shapes(build(stage, catalog))
        except (OverflowError, MemoryError, ValueError, TypeError) as problem:
            if isinstance(problem, TacitError):
                raise
            raise PlanError(
                f"Plan stage {number}: the sizes of {stage.method} cannot be; choose smaller ones."
            ) from None
        sizes = {"parameters": (_numbers_in(made), MOST_NUMBERS), "a home": (_numbers_in(home), MOST_NUMBERS)}
        sizes["a step"] = (largest, _MOST_IN_A_STEP)
        for what, (size, most) in sizes.items():
            if size > most:
                raise PlanError(
                    f"Plan stage {number}: {stage.method} has {size:,} numbers in {what} for {catalog.n_items:,} items, and may "
                    f"have {most:,}; choose smaller sizes, such as hyper.dim."
                )
        for name in made.keys() & (params or {}).keys():
            if params is not None and tuple(made[name].shape) != tuple(np.shape(params[name])):
                raise PlanError(
                    f"Plan stage {number}: {stage.method} has {name!r} in shape {tuple(made[name].shape)}, and the plan folder in "
                    f"{tuple(np.shape(params[name]))}; make the folder anew."
                )


def _numbers_in(tree: Any) -> int:
    """How many numbers the leaves of a tree have."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def _shapes(method: Method) -> tuple[dict, Any, int]:
    """The shapes of the parameters and of a home, and how many numbers the largest array of a round has."""
    key = jax.random.key(0, impl=KEYS)
    params = jax.eval_shape(method.init, key)

    def enter(items: jax.Array) -> Any:
        return method.enter(key, method.prepare(plain_history(items, method.catalog)))

    def local(items: jax.Array, params: dict, home: Any) -> Any:
        return method.local(key, params, home, method.prepare(plain_history(items, method.catalog)))

    items = jax.ShapeDtypeStruct((_SHORT,), np.int32)
    home = jax.eval_shape(enter, items)
    if max(_numbers_in(params), _numbers_in(home)) > MOST_NUMBERS:  # a step is larger still
        return params, home, 0
    return params, home, _largest(jax.make_jaxpr(local)(items, params, home).jaxpr)


def _largest(program: Any) -> int:
    """How many numbers the largest array has that a program computes, with the programs inside it."""
    found = 0
    for operation in program.eqns:
        found = max([found, *(math.prod(getattr(one.aval, "shape", ())) for one in operation.outvars)])
        for part in jax.tree.leaves(list(operation.params.values()), is_leaf=lambda one: hasattr(one, "jaxpr")):
            inner = getattr(part, "jaxpr", part)
            found = max(found, _largest(inner)) if hasattr(inner, "eqns") else found
    return found
