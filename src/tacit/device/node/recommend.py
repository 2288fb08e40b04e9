"""Recommendations on a device: from the last broadcast and the person's own history. Nothing is sent; no network is needed."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.node import batch
from tacit.device.node.node import Node
from tacit.device.ranking import RECENT, shuffled_candidates, tie_key, top
from tacit.errors import DeviceError, unknown

_top = partial(jax.jit, static_argnames="k")(top)


class Recommended(NamedTuple):
    """One recommendation."""

    item: str
    score: float


def recommend_on_device(
    node: Node, user: str | None = None, k: int = 10, filter_seen: bool = True
) -> list[Recommended]:
    """The k best items for one person of the node, best first."""
    kept = node.store.newest()
    bundle = node.store.bundle(kept.digest)
    people, stage = node.people(bundle), len(bundle.plan.stages) - 1
    person = _person([str(one) for one in people.users], user)
    if kept.users != [str(one) for one in people.users]:
        raise DeviceError("This device's people are not those of its last run; take part in another run first.")
    params = jax.tree.map(jnp.asarray, kept.broadcast(bundle.params))
    prepared = node.prepared(bundle, stage, people)
    homes = node.homes_in_stage(bundle, kept, people, stage)
    local, own = batch.adapted(stage, params, prepared, homes, person)
    seen = people.items[people.offsets[person] : people.offsets[person + 1]]
    recent = np.full(RECENT, -1, np.int32)
    recent[RECENT - min(RECENT, seen.size) :] = seen[-RECENT:]
    items = shuffled_candidates(np.arange(bundle.catalog.n_items, dtype=np.int32))
    barred = np.isin(items, seen) if filter_seen else np.zeros(items.size, bool)
    key = tie_key(jnp.asarray(homes.secret[person]))
    best, scores = _top(key, prepared.method, params, local, own, recent, items, k=k, barred=barred)
    names = range(items.size) if bundle.names is None else bundle.names
    return [
        Recommended(str(names[i]), float(score)) for i, score in zip(np.asarray(best), np.asarray(scores)) if i >= 0
    ]


def _person(users: list[str], user: str | None) -> int:
    if user is None:
        if len(users) > 1:
            raise DeviceError(f"This device has {len(users)} people; name one, such as --user {users[0]}.")
        return 0
    if user not in users:
        raise DeviceError(unknown("This device", user, users[:20], "person"))
    return users.index(user)
