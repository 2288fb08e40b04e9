"""Answers at home: recommendations from the last broadcast and one's own history. Nothing is sent; offline will do."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import build
from tacit.device.node import batch
from tacit.device.node.node import Node, homes_of
from tacit.device.ranking import RECENT, shuffled_candidates, tie_key, top
from tacit.errors import DeviceError, unknown

_top = partial(jax.jit, static_argnames="k")(top)


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
    homes = homes_of(kit, kept, people, stage, None)
    local, own = batch.adapted(method, stage, params, people, homes, person)
    mine = people.items[people.offsets[person] : people.offsets[person + 1]]
    recent = np.full(RECENT, -1, np.int32)
    recent[RECENT - min(RECENT, mine.size) :] = mine[-RECENT:]
    items = shuffled_candidates(np.arange(kit.catalog.n_items, dtype=np.int32))
    barred = np.isin(items, mine) if filter_seen else np.zeros(items.size, bool)
    key = tie_key(jnp.asarray(homes.secret[person]))
    best, scores = _top(key, method, params, local, own, recent, items, k=k, barred=barred)
    names = range(items.size) if kit.names is None else kit.names
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
