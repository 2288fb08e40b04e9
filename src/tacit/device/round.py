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
_METHOD, _NOISE = 0, 1  # the purposes within a round


class Home(NamedTuple):
    """The state of a device, which is never sent."""

    local: dict[str, Any]  # private state, keyed by stage
    spent: dict[str, jax.Array]  # reports sent so far, keyed by stage
    allowance: dict[str, jax.Array]  # reports the device's own budget allows, keyed by stage; where it has a budget
    zeroed: jax.Array  # int32[]: how often an update was not finite and left as zero
    secret: jax.Array  # uint32[2]: the root of all random numbers but a real device's noise; each run has its own


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


def work(method: Method, stage: int, broadcast: Broadcast, home: Home, own: Any) -> tuple[Any, dict, Any]:
    """The method's part of a round: new private state, update and weight."""
    key = jax.random.fold_in(_key(home, stage, _ROUND, broadcast.round), _METHOD)
    return method.local(key, broadcast.params, home.local[str(stage)], own)


def seeded_noise_key(home: Home, stage: int, round: Any) -> jax.Array:
    """The key of a simulated device's noise in a round: as the home's secret, it follows from the seed of the run."""
    return jax.random.fold_in(_key(home, stage, _ROUND, round), _NOISE)


def step(
    method: Method, mechanism: Mechanism, stage: int, broadcast: Broadcast, home: Home, own: Any, noise: jax.Array
) -> tuple[Home, Report]:
    """One round: the method's work, then the gate. The home stays on the device; the report is sent.

    `noise` is the key of the report's noise and is used for nothing else: a real device draws it from the operating
    system for each report, a simulated one has `seeded_noise_key`.
    """
    name = str(stage)
    local, update, weight = work(method, stage, broadcast, home, own)
    report, spent, zeroed = send(
        noise, mechanism, update, weight, broadcast.public_state, home.spent[name], home.allowance.get(name)
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
