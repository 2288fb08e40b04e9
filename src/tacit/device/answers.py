"""Answers at home: recommendations from the last broadcast and one's own history. Nothing is sent; offline will do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device import shard
from tacit.device.method import build
from tacit.device.node import Node, homes_of
from tacit.device.rank import top
from tacit.device.round import KEYS
from tacit.errors import DeviceError, unknown

RECENT = 64  # the latest events that a score may look at


class Recommended(NamedTuple):
    """One recommendation."""

    item: str
    score: float


def recommend(node: Node, user: str | None = None, k: int = 10, filter_seen: bool = True) -> list[Recommended]:
    """The k best items for one person of the node, best first."""
    kept = node.store.newest()
    kit = node.store.kit(kept.digest)
    people, stage = node.people(kit), len(kit.plan.stages) - 1
    person = _person([str(one) for one in people.users], user)
    if kept.users != [str(one) for one in people.users]:
        raise DeviceError("The people of this home are not those of its last run; take part in another, and ask again.")
    params = jax.tree.map(jnp.asarray, kept.broadcast(kit.params))
    method = build(kit.plan.stages[stage], kit.catalog)
    local, own = shard.adapted(method, stage, params, people, homes_of(kit, kept, people, stage, None), person)
    mine = people.items[people.offsets[person] : people.offsets[person + 1]]
    recent = np.full(RECENT, -1, np.int32)
    recent[RECENT - min(RECENT, mine.size) :] = mine[-RECENT:]
    items = np.arange(kit.catalog.n_items, dtype=np.int32)
    candidates = np.where(np.isin(items, mine), -1, items) if filter_seen else items
    key = jax.random.key(0, impl=KEYS)  # only equal scores are settled by it
    best, scores = top(
        key, method, params, local, own, jnp.asarray(recent), jnp.asarray(candidates), min(k, items.size)
    )
    names = items if kit.names is None else kit.names
    return [
        Recommended(str(names[i]), float(score)) for i, score in zip(np.asarray(best), np.asarray(scores)) if i >= 0
    ]


def _person(users: list[str], user: str | None) -> int:
    if user is None:
        if len(users) > 1:
            raise DeviceError(f"This home holds {len(users)} people; name one, such as --user {users[0]}.")
        return 0
    if user not in users:
        raise DeviceError(unknown("This home", user, users[:20], "person"))
    return users.index(user)
