"""Storage: a run as a folder that reloads to the same recommendations. For the lab only: it contains raw histories."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, catalog_from_dict, catalog_to_dict
from tacit.core.plan import Plan, Stage
from tacit.core.plugins import RenamedWarning, plugin_name
from tacit.core.run_folder import RUN_FORMAT, Folder, plain, read_arrays_by_name, write_arrays, write_json
from tacit.device.ledger.population_ledger import Ledgers
from tacit.device.method import method_class
from tacit.errors import RunError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.simulation.buckets import enter_stage, homes_by_id, with_homes
from tacit.lab.simulation.federation import Federation
from tacit.nets.neural.text import CatalogWithText
from tacit.privacy.budget import Budget
from tacit.privacy.mechanism import mechanism_class
from tacit.server.checkpoint import load_checkpoint, save_checkpoint
from tacit.server.round import Memory
from tacit.server.rule import rule_class

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

_COLUMNS = ("offsets", "items", "times", "labels", "context", "person", "never", "silo")
_NAMES = ("users", "item_names", "silo_names", "notes", "frames")
_WORDED = ("tokens", "vectors")


class Loaded(NamedTuple):
    """The contents of a run folder."""

    federation: Federation
    rounds: list[dict[str, Any]]
    environment: dict[str, Any]
    path: Path
    ledgers: Ledgers
    metrics: dict[str, float]


def save_run(run: "Run", path: str | Path) -> Path:
    """Write a run to a new folder, or complete the folder it was played in."""
    folder = Folder(path)
    if run.folder is None or folder.path.resolve() != run.folder.resolve():
        folder.begin(run.plan.to_toml(), run.environment, run.claim_rows)
        folder.append(run.rounds)
        save_checkpoint(folder, len(run.rounds), run.params, Memory((), {}), homes=homes_by_id(run.buckets))
        run.write(folder)
    _save_people(run.population, folder.path)
    return folder.path


def read_run_folder(path: str | Path, log: Log | None = None) -> Loaded:
    """The run of a folder; `log` is the log it learned from, if it was not saved with its histories."""
    folder = Folder(path)
    plan, words = saved_plan(folder), json.loads(folder.read("environment.json"))
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


def saved_plan(folder: Folder) -> Plan:
    """The plan of a run folder; in a folder of an earlier format, former names become the names of today."""
    plan = Plan.from_toml(folder.read("plan.toml"))
    if folder.format == RUN_FORMAT:
        return plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RenamedWarning)
        return replace(plan, stages=tuple(_with_names_of_today(stage) for stage in plan.stages))


def _with_names_of_today(stage: Stage) -> Stage:
    """A stage in which the method, the mechanism and the rule have their present names."""
    privacy = {**stage.privacy, "mechanism": plugin_name(mechanism_class(stage.privacy["mechanism"]))}
    server = {**stage.server, "rule": plugin_name(rule_class(stage.server["rule"]))}
    return replace(stage, method=plugin_name(method_class(stage.method)), privacy=privacy, server=server)


def _restored(plan: Plan, population: Population, words: dict[str, Any], folder: Folder) -> Federation:
    """A federation with the homes and parameters of the folder; nothing is trained again."""
    limit = words.get("budget")
    budget = (
        None if limit is None else Budget(float(limit["epsilon"]), float(limit["delta"]), limit["days"], limit["unit"])
    )
    federation = Federation(plan, population, seed=words["seed"], budget=budget, now=words["time"])
    for number, method in enumerate(federation.methods):
        allowed = np.zeros(len(population), np.int32) if _allowed(federation, number) else None
        federation.buckets = [enter_stage(method, number, population, b, allowed) for b in federation.buckets]
    if folder.latest() is not None:
        params, _ = load_checkpoint(folder, federation.params, Memory((), {}))
        federation.params = jax.tree.map(jnp.asarray, params)
        federation.buckets = with_homes(federation.buckets, folder.restore("homes", homes_by_id(federation.buckets)))
    return federation


def _allowed(federation: Federation, number: int) -> bool:
    """Whether homes have an allowance for this stage."""
    return federation.budget is not None and federation.price.stages[number].mechanism is not None


def _save_people(population: Population, folder: Path) -> None:
    columns = {name: getattr(population, name) for name in _COLUMNS}
    arrays = {name: column for name, column in columns.items() if column is not None}
    catalog = population.catalog
    worded = {name: getattr(catalog, name) for name in _WORDED} if isinstance(catalog, CatalogWithText) else {}
    write_arrays(folder / "people.npz", {"columns": arrays, "attributes": dict(catalog.attributes), "words": worded})
    names = {name: plain(getattr(population, name)) for name in _NAMES}
    write_json(folder / "people.json", {**names, **catalog_to_dict(catalog)})


def _load_people(folder: Path) -> Population | None:
    if not (folder / "people.json").exists():
        return None
    values = json.loads((folder / "people.json").read_text(encoding="utf-8"))
    arrays = read_arrays_by_name(folder / "people.npz")
    worded = {name: jnp.asarray(column) for name, column in arrays.get("words", {}).items()}
    kind = CatalogWithText if worded else Catalog
    catalog = catalog_from_dict(values, arrays.get("attributes", {}), kind, **worded)
    names = {name: values[name] for name in _NAMES if name != "notes"}
    return Population(catalog, notes=tuple(values["notes"]), **arrays["columns"], **names)
