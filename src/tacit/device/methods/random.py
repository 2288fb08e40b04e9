"""Random: uniform scores, the floor that every method must beat. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import AtHome, masked


class Random(AtHome):
    """A score drawn for each device, session state and item.

    Paper: the Random baseline of Saiapin et al., "Federated privacy-preserving collaborative filtering for on-device
    next app prediction" (2023).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> dict:
        """Nothing."""
        del history
        return {}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """The seed of this device's scores."""
        del own
        return {"seed": jax.random.key_data(key)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Uniform on [0, 1), whatever the order of the candidates; the recent events are part of the seed."""
        del params, own
        key = jax.random.wrap_key_data(local["seed"], impl="threefry2x32")
        moment = jnp.sum((recent + 1) * (2 * jnp.arange(recent.shape[0]) + 1))  # padding, -1, adds nothing
        key = jax.random.fold_in(key, moment)
        draw = jax.vmap(lambda item: jax.random.uniform(jax.random.fold_in(key, item)))
        return masked(draw(candidates), candidates)
