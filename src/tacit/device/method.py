"""Method: what a device computes, written for one device; it reads like the paper's "on each client".

A method is a file in `device/methods` that defines one Method; the file name is the method's name, and nothing else
needs an edit. Its settings are the fields of the class.
"""

import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import tacit.device.methods
from tacit.core.catalog import Catalog
from tacit.core.plan import Stage
from tacit.core.plugins import Plugins
from tacit.core.settings import fill, known_settings
from tacit.core.sparse_rows import Rows, distinct
from tacit.device.history import History


class Method(eqx.Module):
    """Six functions of one device. Passed into jit as an argument, never closed over."""

    catalog: eqx.AbstractVar[Catalog]

    former_names: ClassVar[tuple[str, ...]] = ()  # its names in earlier versions, which plans may still use
    former_settings: ClassVar[dict[str, str]] = {}  # former names of settings, and today's
    reads: ClassVar[int | None] = None  # events a round reads, however long the history; None: all. Speed only
    work: ClassVar[float] = 1.0  # about how many times the usual time a round takes for an event. Speed only
    learns: ClassVar[bool]  # whether it learns a user's preference for items not in their history
    item_by_item: ClassVar[bool] = False  # whether one interaction changes one position of an update at most
    nonnegative: ClassVar[bool] = False  # whether no number of an update is ever below 0
    outer_products: ClassVar[bool] = (
        False  # whether every matrix [..., K, K] of an update is x xᵀ, and it has nothing else
    )
    scores: ClassVar[bool] = True  # whether it ranks items; a first stage alone may not
    for_organisations: ClassVar[bool] = False  # whether a device that trains is an organisation rather than one user
    withholds: ClassVar[bool] = False  # whether it uses `History.share`, the share of items that a user discloses
    pairwise: ClassVar[bool] = False  # whether an update is the steps of pairwise comparisons, which attacks can read
    private: ClassVar[dict[str, Any]] = {"mechanism": "gaussian"}  # what a plan without noise takes to promise an ε
    suggested: ClassVar[dict[str, Any]]  # a Stage that works, as data; a plan may say otherwise

    @abstractmethod
    def init(self, key: jax.Array) -> dict[str, Any]:
        """Public initial value of every parameter leaf."""

    @abstractmethod
    def prepare(self, history: History) -> Any:
        """The prepared history (`own`); recomputed only when the history changes."""

    @abstractmethod
    def enter(self, key: jax.Array, own: Any) -> Any:
        """Initial private state (`local`), which never leaves the device."""

    @abstractmethod
    def local(self, key: jax.Array, params: dict, local: Any, own: Any) -> tuple[Any, dict, jax.Array]:
        """One round of work: the new private state, the update, and its weight float32[k]."""

    @abstractmethod
    def adapt(self, key: jax.Array, params: dict, local: Any, own: Any) -> Any:
        """Personalise on the device with the broadcast parameters; nothing is sent."""

    @abstractmethod
    def score(self, params: dict, local: Any, own: Any, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The score of each candidate, computed on the device.

        Args:
            recent: int32[r], the latest events of the current session, newest last, -1 is padding.
            candidates: int32[c]; -1 is padding and scores -inf.
        """


class AtHome(Method):
    """A method that sends nothing: it recommends from the device's own history."""

    def init(self, key: jax.Array) -> dict[str, Any]:
        """No parameters."""
        del key
        return {}

    def enter(self, key: jax.Array, own: Any) -> Any:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: Any, own: Any) -> tuple[Any, dict, jax.Array]:
        """No work, nothing to send."""
        del key, params, own
        return local, {}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: Any, own: Any) -> Any:
        """Nothing to adapt."""
        del key, params, own
        return local


class OfItems(Method):
    """A method that uses a history as the set of its items, and keeps no other private state."""

    def prepare(self, history: History) -> Rows:
        """The distinct items, each with a 1."""
        return distinct(history.items, self.catalog.n_items, jnp.int32)

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """No private state."""
        del key, own
        return {}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local


def masked(scores: jax.Array, candidates: jax.Array) -> jax.Array:
    """Scores with -inf where the candidate is padding."""
    return jnp.where(candidates >= 0, scores, -jnp.inf)


def last_event(recent: jax.Array) -> jax.Array:
    """The newest event, or -1 where there is none."""
    newest = jnp.max(jnp.where(recent >= 0, jnp.arange(recent.shape[0]), -1))
    return jnp.where(newest >= 0, recent[newest], -1)


def keeps_unit(method: Method, unit: str) -> bool:
    """Whether a promise for this unit holds for what the method sends.

    A promise for one interaction is one for each position of an update: it needs a method whose interactions have a
    position each. A promise for a user covers whatever the method computes.
    """
    return unit != "interaction" or method.item_by_item


def breaks_form(method: Method, form: str | None) -> str:
    """Why what the method sends has not the form that a mechanism counts on, and would be lost in part; empty where it has."""
    if form == "nonnegative" and not method.nonnegative:
        return "its updates may be negative, and negative numbers would count as 0"
    if form == "outer_products" and not method.outer_products:
        return "its updates are not outer products x xᵀ, and only one of each matrix would be left"
    return ""


_METHODS = Plugins(tacit.device.methods, Method, "method")


def methods_from(folder: str | Path) -> None:
    """Look for methods in a folder of your own as well."""
    _METHODS.add_folder(folder)


def method_names() -> list[str]:
    """Every method: the files of `device/methods`."""
    return _METHODS.names()


def method_class(name: str) -> type[Method]:
    """The Method of this name."""
    return _METHODS.load(name)


def current_method(name: str) -> str:
    """Today's name of a method that had this name in an earlier version; any other name as it is."""
    return _METHODS.current(name)


def build(stage: Stage, catalog: Catalog) -> Method:
    """The method a stage names, for this catalog."""
    return fill(method_class(stage.method), stage.hyper, f"{stage.method}: hyper", catalog=catalog)


def revealed(name: str) -> dict[str, Any] | None:
    """The measured disclosure of a method at each share: the JSON file beside the method's own, if there is one."""
    for folder in tacit.device.methods.__path__:
        path = Path(folder) / f"{name}.json"
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    return None


class PersonField(NamedTuple):
    """A person field that a setting names, and the range of its values."""

    setting: str
    name: str
    low: float
    high: float


def person_fields(stage: Stage) -> list[PersonField]:
    """The person fields that the settings of a stage name.

    >>> from tacit.core.plan import Stage
    >>> person_fields(Stage("fpl", {"own_pi": "openness"}))
    [PersonField(setting='hyper.own_pi', name='openness', low=0.0, high=1.0)]
    """
    ranges = {
        name: field.metadata["setting"]["of_person"]
        for name, field in known_settings(method_class(stage.method)).items()
    }
    return [
        PersonField(f"hyper.{name}", stage.hyper[name], *between)
        for name, between in ranges.items()
        if between is not None and stage.hyper.get(name) is not None
    ]
