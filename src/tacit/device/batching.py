"""Batching: the functions of one device, applied to a stack of devices. A node and the simulator both batch with these.

Histories are padded to a common length and homes are stacked along a leading axis; `vmap` maps each function over it, so a
device takes the same step in a batch as alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from tacit.core.messages import Broadcast, Report
from tacit.device.history import plain_history
from tacit.device.method import Method
from tacit.device.round import KEYS, Home, enter, new_home, seeded_noise_key, step
from tacit.privacy.mechanism import Mechanism


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
