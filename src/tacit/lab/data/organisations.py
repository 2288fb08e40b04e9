"""Organisations: a log of users as a log of the organisations they belong to.

An organisation is a device whose events are those of all its users, one after another; the event fields `person` and
`sequence` are the number of the user and of the user's sequence that an event belongs to.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from tacit.core.catalog import Field
from tacit.errors import DataError
from tacit.lab.data import Population

FIELDS = (Field("person", "numeric"), Field("sequence", "numeric"))


def organisations(log: Population, sequences: Literal["month", "person"] = "person") -> Population:
    """One device for each organisation of the log. A sequence is all events of a user, or those of one calendar month.

    >>> from tacit.lab.data.synthetic import movies
    >>> log = organisations(movies(40, 100, silos=2))
    >>> len(log), log.users[0], [field.name for field in log.catalog.event_fields]
    (2, 'synthetic organisation 0', ['person', 'sequence'])
    """
    if log.silo is None:
        raise DataError(
            "organisations needs a log whose users belong to organisations; name their column with silo=..."
        )
    names = list(range(log.silo.max() + 1)) if log.silo_names is None else list(log.silo_names)
    users = np.argsort(log.silo, kind="stable")
    lengths = log.lengths[users]
    # events of the users in their new order, user by user
    events = np.repeat(log.offsets[users] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    person = np.repeat(np.arange(users.size), lengths)
    per = np.bincount(log.silo[users][person], minlength=len(names)) if person.size else np.zeros(len(names), int)
    context = np.stack([_within(person, per), _sequence(log, events, person, sequences)], axis=1).astype(np.float32)
    own = np.zeros((events.size, 0), np.float32) if log.context is None else log.context[events]
    return Population(
        replace(log.catalog, event_fields=(*FIELDS, *log.catalog.event_fields), person_fields=()),
        np.concatenate([[0], np.cumsum(per)]),
        log.items[events],
        None if log.times is None else log.times[events],
        None if log.labels is None else log.labels[events],
        np.concatenate([context, own], axis=1),
        never=None if log.never is None else log.never[events],
        users=names,
        item_names=log.item_names,
        notes=log.notes,
        frames=log.frames,
    )


def _sequence(log: Population, events: np.ndarray, person: np.ndarray, sequences: str) -> np.ndarray:
    """A number for each event that changes where a new sequence of the same user begins."""
    if sequences == "person":
        return np.zeros(person.size)
    times = log.require_times("sequences = 'month'")[events]
    months = times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
    return months - months.min(initial=0)


def _within(person: np.ndarray, per: np.ndarray) -> np.ndarray:
    """Users numbered from 0 in each organisation: small numbers are exact in float32 and independent of other organisations."""
    first = np.concatenate([[0], np.cumsum(per)[:-1]])[per > 0]
    return person - np.repeat(person[first], per[per > 0])
