"""Selection of events, devices and items of a population. Columns stay columns."""

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population


def owners(population: Population) -> np.ndarray:
    """The device of each event."""
    return np.repeat(np.arange(len(population)), population.lengths)


def take(population: Population, keep: np.ndarray) -> Population:
    """The population with only some events; all users stay, even without events."""
    counts = np.add.reduceat(np.append(keep, False).astype(np.int64), population.offsets[:-1])
    counts = np.where(population.lengths > 0, counts, 0)

    def column(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[keep]

    return replace(
        population,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        items=population.items[keep],
        times=column(population.times),
        labels=column(population.labels),
        context=column(population.context),
        never=column(population.never),
    )


def pick(population: Population, devices: np.ndarray) -> Population:
    """Some devices, with all their events, renumbered from 0."""
    keep = np.isin(owners(population), devices)
    shorter = take(population, keep)

    def rows(values: Any) -> Any:
        return None if values is None else np.asarray(values)[devices]

    offsets = np.concatenate([[0], np.cumsum(shorter.lengths[devices])])
    return replace(
        shorter,
        offsets=offsets,
        person=rows(population.person),
        silo=rows(population.silo),
        users=rows(population.users),
    )


def compact(population: Population) -> Population:
    """The same events with a catalog of only the items that occur, renumbered from 0 in the same order."""
    kept = np.unique(population.items)
    old = population.catalog
    attributes = {name: column[kept] for name, column in old.attributes.items()}
    catalog = Catalog(kept.size, attributes, old.item_fields, old.person_fields, old.event_fields)
    names = None if population.item_names is None else np.asarray(population.item_names)[kept]
    items = np.searchsorted(kept, population.items).astype(np.int32)
    return replace(population, catalog=catalog, items=items, item_names=names)


def k_core(population: Population, k: int) -> Population:
    """The users and items with at least k events each, filtered repeatedly until nothing changes."""
    while True:
        frequent = np.bincount(population.items, minlength=population.catalog.n_items) >= k
        active = population.lengths >= k
        keep = frequent[population.items] & active[owners(population)]
        if keep.all():
            break
        population = take(population, keep)
    if not population.items.size:
        raise DataError(f"k_core({k}) leaves no user; choose a smaller number.")
    return compact(pick(population, np.flatnonzero(population.lengths > 0)))
