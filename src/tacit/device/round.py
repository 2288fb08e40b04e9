"""A device's part of a round: what it keeps (`Home`), and the one step it takes.

The same `step` runs under `vmap` in the simulator and alone on a real device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.messages import Broadcast, Report
from tacit.device.gate import send
from tacit.device.method import Method
from tacit.privacy.mechanism import Mechanism

KEYS = "threefry2x32"  # explicit, so that a home does not depend on JAX's default
_ENTER, _ADAPT, _ROUND = 0, 1, 2  # the purposes of keys: no two share one


class Home(NamedTuple):
    """The state of a device, which is never sent."""

    local: dict[str, Any]  # private state, keyed by stage
    spent: dict[str, jax.Array]  # reports sent so far, keyed by stage
    allowance: dict[str, jax.Array]  # reports the device's own budget allows, keyed by stage; where it has a budget
    zeroed: jax.Array  # int32[]: how often an update was not finite and left as zero
    secret: jax.Array  # uint32[2]: the root of this device's randomness; from the operating system on a real device


def new_home(secret: jax.Array) -> Home:
    """A home before its first stage."""
    return Home({}, {}, {}, jnp.zeros((), jnp.int32), secret)


def enter(method: Method, stage: int, home: Home, own: Any, allowance: jax.Array | None = None) -> Home:
    """Enter a stage: initial private state, nothing sent yet, and the number of reports that the device's budget allows."""
    local = method.enter(_key(home, stage, _ENTER), own)
    allowed = {} if allowance is None else {str(stage): jnp.asarray(allowance, jnp.int32)}
    return home._replace(
        local={**home.local, str(stage): local},
        spent={**home.spent, str(stage): jnp.zeros((), jnp.int32)},
        allowance={**home.allowance, **allowed},
    )


def work(method: Method, stage: int, broadcast: Broadcast, home: Home, own: Any) -> tuple[Any, dict, Any, jax.Array]:
    """The method's part of a round: new private state, update and weight; and the key for the noise."""
    mine, noise = _apart(_key(home, stage, _ROUND, broadcast.round))
    return *method.local(mine, broadcast.params, home.local[str(stage)], own), noise


def _apart(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A key for the method and one for the noise, equal to those of `split`; a key that is not used is not computed."""
    return jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)


def step(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, home: Home, own: Any
) -> tuple[Home, Report]:
    """One round: the method's work, then the gate. The home stays on the device; the report is sent."""
    name = str(stage)
    local, update, weight, noise = work(method, stage, broadcast, home, own)
    report, spent, zeroed = send(
        noise, mechanism, update, weight, broadcast.dials, home.spent[name], home.allowance.get(name)
    )
    kept = home._replace(
        local={**home.local, name: local},
        spent={**home.spent, name: spent},
        zeroed=home.zeroed + zeroed.astype(jnp.int32),
    )
    return kept, report


def adapt(method: Method, stage: int, params: dict, home: Home, own: Any) -> Home:
    """Personalise on the device; nothing is sent."""
    local = method.adapt(_key(home, stage, _ADAPT), params, home.local[str(stage)], own)
    return home._replace(local={**home.local, str(stage): local})


def _key(home: Home, stage: int, purpose: int, round: Any = 0) -> jax.Array:
    key = jax.random.wrap_key_data(home.secret, impl=KEYS)
    for number in (stage, purpose, round):
        key = jax.random.fold_in(key, number)
    return key
