"""Organisations: a log of people as a log of the organisations that hold them, and questions to the people all the same.

An organisation is a device whose events are those of all its people, one after another; the event fields `person` and
`sequence` say whose each is and which of the person's sequences it belongs to.
"""

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Field
from tacit.device.batching import power_of_two
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import Split
from tacit.lab.plans.loader import complete
from tacit.lab.runs.run import Run

FIELDS = (Field("person", "numeric"), Field("sequence", "numeric"))


def organisations(log: Population, sequences: Literal["month", "person"] = "person") -> Population:
    """One device for each organisation of the log. A sequence is all of a person, or one calendar month of them.

    >>> from tacit.lab.data.synthetic import movies
    >>> held = organisations(movies(40, 100, silos=2))
    >>> len(held), held.users[0], [field.name for field in held.catalog.event_fields]
    (2, 'synthetic organisation 0', ['person', 'sequence'])
    """
    if log.silo is None:
        raise DataError("organisations needs a log whose people belong to some; name their column with silo=...")
    names = list(range(log.silo.max() + 1)) if log.silo_names is None else list(log.silo_names)
    people = np.argsort(log.silo, kind="stable")
    lengths = log.lengths[people]
    # events of the people in their new order, person by person
    events = np.repeat(log.offsets[people] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    person = np.repeat(np.arange(people.size), lengths)
    per = np.bincount(log.silo[people][person], minlength=len(names)) if person.size else np.zeros(len(names), int)
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
    """A number for each event that changes where a new sequence of the same person begins."""
    if sequences == "person":
        return np.zeros(person.size)
    times = log.require_times("sequences = 'month'")[events]
    months = times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
    return months - months.min(initial=0)


def _within(person: np.ndarray, per: np.ndarray) -> np.ndarray:
    """People numbered from 0 in each organisation: small numbers are exact in float32, and tell nothing of the others."""
    first = np.concatenate([[0], np.cumsum(per)[:-1]])[per > 0]
    return person - np.repeat(person[first], per[per > 0])


def held(split: Split, sequences: Literal["month", "person"] = "person") -> Split:
    """The same questions to the same people, whose organisations learn.

    A person answers with the organisation's model and their own history.
    """
    return replace(split, train=organisations(split.train, sequences), people=split.asked)


@dataclass(frozen=True)
class Gain:
    """What an organisation that took no part would have of a model, by one metric, over its people's questions."""

    broadcast: np.ndarray  # each question's value with the model as it was broadcast
    adapted: np.ndarray  # ... after some epochs at home
    alone: np.ndarray  # ... with a model that only ever saw this organisation


def gain(run: Run, split: Split, epochs: int = 3, alone: int = 10, *, seed: int = 0) -> Gain:
    """Try a run's model on an organisation that was not in it: nothing is sent.

    `split` is of the organisation's people alone, with a silo column; `epochs` and `alone` are how long the broadcast
    model, and one that starts from nothing, are trained at home. Values are 1/rank among all items.
    """
    questions = held(split)
    if len(questions.train) != 1:
        raise DataError(f"gain asks one organisation, got {len(questions.train)}; pick its people first.")
    fresh = replace(run, params={**run.params, **run.method.init(jax.random.key(seed, impl=KEYS))})
    runs = (run, at_home(run, questions.train, 0, epochs, seed), at_home(fresh, questions.train, 0, alone, seed))
    return Gain(*(1.0 / ranks(one, questions, seed=seed) for one in runs))


def at_home(run: Run, world: Population, number: int, epochs: int, seed: int = 0) -> Run:
    """The run with the parameters that one organisation makes of its own, in so many epochs on its data."""
    plan = complete(run.plan.with_setting(f"{len(run.plan.stages)}.hyper.home", epochs))
    method = build(plan.stages[-1], world.catalog)
    history = world.histories(np.array([number]), power_of_two(int(world.lengths[number])))
    own = method.prepare(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), history))
    key = jax.random.key(seed, impl=KEYS)
    local = method.adapt(key, run.params, method.enter(key, own), own)
    return replace(run, params={**run.params, **local["model"]})
