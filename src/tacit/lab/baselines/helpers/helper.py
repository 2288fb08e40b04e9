"""The helper: matches people by sealed item names and hands out the mean vector of those who share one.

Devices share a key that the helper does not have; under it, an item has the same sealed name on every device. So the
helper cannot read a name, but it sees which of its guests have how many items in common, and how many guests each sealed
name has. Popular items are known by that alone.
"""

import hashlib
import hmac
from typing import NamedTuple

import numpy as np


class Guest(NamedTuple):
    """What one device tells the helper."""

    names: list[bytes]  # sealed, each once
    vector: np.ndarray  # float32[d]


def seal(key: bytes, items: np.ndarray) -> list[bytes]:
    """The sealed names of some items, in their order.

    >>> seal(b"key", np.array([3]))[0] == seal(b"key", np.array([3]))[0] != seal(b"other", np.array([3]))[0]
    True
    """
    return [hmac.new(key, int(item).to_bytes(8, "big"), hashlib.sha256).digest() for item in items]


def match(guests: list[Guest]) -> dict[bytes, tuple[np.ndarray, int]]:
    """For each sealed name, the sum of the vectors of the guests who have it, and how many they are."""
    found: dict[bytes, tuple[np.ndarray, int]] = {}
    for guest in guests:
        for name in guest.names:
            total, count = found.get(name, (np.zeros_like(guest.vector), 0))
            found[name] = (total + guest.vector, count + 1)
    return found


def matched(people: np.ndarray, items: np.ndarray, vectors: np.ndarray, n_items: int) -> np.ndarray:
    """What `match` comes to for everybody at once, item by item: mean vectors [n_items, d], 0 where nobody is.

    Args:
        people: int[events], whose each event is.
        items: int[events].
        vectors: float32[people, d].
    """
    pairs = np.unique(people.astype(np.int64) * n_items + items)
    who, what = np.divmod(pairs, n_items)
    total = np.zeros((n_items, vectors.shape[1]), np.float32)
    np.add.at(total, what, vectors[who])
    return total / np.maximum(np.bincount(what, minlength=n_items), 1)[:, None]
