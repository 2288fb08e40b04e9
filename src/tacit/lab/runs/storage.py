"""Keep: a run as a folder that reloads to the same recommendations, people and all. For the lab: it holds raw histories."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, Field
from tacit.core.plan import Plan
from tacit.core.run_folder import Folder, plain, write_arrays, write_json
from tacit.device.ledger.population_ledger import Ledgers
from tacit.errors import RunError
from tacit.lab.data import Population
from tacit.lab.data.datasets import as_population
from tacit.lab.simulation.buckets import homes_of, move_homes, move_in
from tacit.lab.simulation.federation import Federation
from tacit.nets.neural.text import CatalogWithText
from tacit.privacy.budget import Budget
from tacit.server import checkpoint
from tacit.server.round import Memory

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

_COLUMNS = ("offsets", "items", "times", "labels", "context", "person", "never", "silo")
_NAMES = ("users", "item_names", "silo_names", "notes", "frames")
_FIELDS = ("item_fields", "person_fields", "event_fields")
_WORDED = ("tokens", "vectors")


class Loaded(NamedTuple):
    """What a folder holds of a run."""

    federation: Federation
    rounds: list[dict[str, Any]]
    environment: dict[str, Any]
    path: Path
    ledgers: Ledgers
    metrics: dict[str, float]


def save(run: "Run", path: str | Path) -> Path:
    """Write a run to a new folder, or complete the folder it was made in."""
    folder = Folder(path)
    if run.folder is None or folder.path.resolve() != run.folder.resolve():
        folder.begin(run.plan.to_toml(), run.environment, run.claim_rows)
        folder.append(run.rounds)
        checkpoint.save(folder, len(run.rounds), run.params, Memory((), {}), homes=homes_of(run.buckets))
        run.write(folder)
    _save_people(run.population, folder.path)
    return folder.path


def load(path: str | Path, log: Any = None) -> Loaded:
    """The run a folder holds; where it was not saved with its people, the log it was trained on."""
    folder = Folder(path)
    plan, words = Plan.from_toml(folder.read("plan.toml")), json.loads(folder.read("environment.json"))
    population = _load_people(folder.path) or (None if log is None else as_population(log, [plan]))
    if population is None:
        raise RunError(f"{folder.path} was not saved with its people; pass the log it learned from, or use run.save.")
    if population.digest != words["population"]["digest"]:
        raise RunError(f"{folder.path} learned from another log: it had {words['population']['devices']} devices.")
    if folder.latest() is None and any(stage.rounds for stage in plan.stages):
        raise RunError(f"{folder.path} has no state yet: the run did not get that far; resume it.")
    federation = _restored(plan, population, words, folder)
    ended = (folder.path / "metrics.json").exists()
    users = population.device_names
    ledgers = Ledgers.load(folder.path, users) if ended else Ledgers(users)
    metrics = json.loads(folder.read("metrics.json"))["metrics"] if ended else {}
    return Loaded(federation, folder.rows(), words, folder.path, ledgers, metrics)


def _restored(plan: Plan, population: Population, words: dict[str, Any], folder: Folder) -> Federation:
    """A federation whose homes and parameters are those of the folder; nothing is trained again."""
    limit = words.get("budget")
    budget = (
        None if limit is None else Budget(float(limit["epsilon"]), float(limit["delta"]), limit["days"], limit["unit"])
    )
    federation = Federation(plan, population, seed=words["seed"], budget=budget, now=words["time"])
    for number, method in enumerate(federation.methods):
        allowed = np.zeros(len(population), np.int32) if _allowed(federation, number) else None
        federation.buckets = [move_in(method, number, population, b, allowed) for b in federation.buckets]
    if folder.latest() is not None:
        params, _ = checkpoint.load(folder, federation.params, Memory((), {}))
        federation.params = jax.tree.map(jnp.asarray, params)
        federation.buckets = move_homes(federation.buckets, folder.restore("homes", homes_of(federation.buckets)))
    return federation


def _allowed(federation: Federation, number: int) -> bool:
    """Whether homes hold an allowance for this stage."""
    return federation.budget is not None and federation.price.stages[number].mechanism is not None


def _save_people(population: Population, folder: Path) -> None:
    columns = {name: getattr(population, name) for name in _COLUMNS}
    arrays = {name: column for name, column in columns.items() if column is not None}
    catalog = population.catalog
    worded = {name: getattr(catalog, name) for name in _WORDED} if isinstance(catalog, CatalogWithText) else {}
    write_arrays(folder / "people.npz", {"columns": arrays, "attributes": dict(catalog.attributes), "words": worded})
    words = {name: plain(getattr(population, name)) for name in _NAMES}
    fields = {name: [asdict(field) for field in getattr(catalog, name)] for name in _FIELDS}
    write_json(folder / "people.json", {**words, "n_items": catalog.n_items, **fields})


def _load_people(folder: Path) -> Population | None:
    if not (folder / "people.json").exists():
        return None
    words = json.loads((folder / "people.json").read_text(encoding="utf-8"))
    with np.load(folder / "people.npz", allow_pickle=False) as saved:
        found = {tuple(part.strip("'") for part in name[1:-1].split("][")): saved[name] for name in saved.files}
    columns, attributes, worded = (
        {name: values for (part, name), values in found.items() if part == kind}
        for kind in ("columns", "attributes", "words")
    )
    fields = {name: tuple(Field(**{**one, "values": tuple(one["values"])}) for one in words[name]) for name in _FIELDS}
    catalog = Catalog(words["n_items"], attributes, **fields)
    if worded:
        tokens, vectors = (jnp.asarray(worded[name]) for name in _WORDED)
        catalog = CatalogWithText(words["n_items"], attributes, **fields, tokens=tokens, vectors=vectors)
    names = {name: words[name] for name in _NAMES if name != "notes"}
    return Population(catalog, notes=tuple(words["notes"]), **columns, **names)
