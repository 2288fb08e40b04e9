"""Likes: which events count as positive, and the labelled samples a device trains on."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.sparse_rows import held, lookup
from tacit.device.history import History
from tacit.nets.sequence.masked_items import ViewShape, masked_views
from tacit.nets.sequence.windows import newest_places


def liked_events(history: History, above: float) -> jax.Array:
    """bool[L]: rated above a number; in a history without ratings, whose labels are all 1, every event.

    >>> from tacit.device.history import plain_history
    >>> rated = plain_history([7, 8, -1])._replace(labels=jnp.array([4.0, 2.0, 0.0]))
    >>> liked_events(rated, 3.0).tolist(), liked_events(plain_history([7, -1]), 3.0).tolist()
    ([True, False, False], [True, False])
    """
    exists = history.items >= 0
    rated = jnp.max(jnp.where(exists, history.labels, 0.0)) > 1
    return exists & (history.labels > jnp.where(rated, above, 0.0))


class LabelledSamples(NamedTuple):
    """The training data of a round: the device's events, negatives that are not in its history, and masked copies."""

    items: jax.Array  # int32[n], the items that occur, ascending, each once; padding is the number of items
    place: jax.Array  # int32[m], the position of each sample's item in `items`
    liked: jax.Array  # float32[m], y: 1 where liked, else 0; or the rating
    real: jax.Array  # bool[m]
    event: jax.Array  # int32[m], the event each sample belongs to
    copies: jax.Array  # int32[c, size], positions in `items` of each masked copy's entries; without copies c = 0
    shown: jax.Array  # bool[c, size]: which of them are real
    shape: ViewShape  # of a masked copy


class SamplingOptions(NamedTuple):
    """The number of negatives for each positive, whether dislikes count, and the masked copies to make."""

    items: int
    negatives: int
    dislikes: bool
    copies: int  # 0: none
    window: int  # newest events that are copied
    rivals: int = 10
    longest: int = 5


def labelled_samples(key: jax.Array, own: dict, asked: SamplingOptions) -> LabelledSamples:
    """Every event of `items`, and after each `liked` one its negatives, drawn from items that were never `had`."""
    n, length = asked.items, own["items"].shape[0]
    rivals = (n * jax.random.uniform(key, (length, asked.negatives))).astype(jnp.int32)
    unseen = own["liked"][:, None] & (lookup(own["had"], rivals) == 0)
    items = jnp.concatenate([own["items"][:, None], rivals], axis=1).ravel()
    met = own["items"] >= 0 if asked.dislikes else own["liked"]
    real = jnp.concatenate([met[:, None], unseen], axis=1).ravel()
    y = jnp.concatenate([own["liked"][:, None], jnp.zeros_like(unseen)], axis=1).ravel().astype(jnp.float32)
    event = jnp.repeat(jnp.arange(length), 1 + asked.negatives)
    sequence = own["items"][newest_places(own["items"], asked.window)]
    shape = ViewShape(sequence.shape[0], asked.rivals, asked.longest)
    copies, shown = masked_views(jax.random.fold_in(key, 1), sequence, asked.copies, shape, n)
    index, place = held(jnp.append(items, copies), jnp.append(real, shown), n)
    return LabelledSamples(
        index, place[: items.size], y, real, event, place[items.size :].reshape(copies.shape), shown, shape
    )
