"""Kit: a plan folder, the same on the server and on every device: what will be done, to what, and from where it starts.

plan.toml       the plan, every default written out
catalog.json    the public items: how many, what they are called, their fields
catalog.npz     their attributes
params.npz      the start parameters
kit.json        for how many people the noise was found, what an update looks like, whose signature counts; the digest

A device obeys its own copy: it takes part in rounds of this digest, and of no other. Nothing in it came from a person.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, Field
from tacit.core.messages import Schema, pack_tree, schema_of, unpack_tree
from tacit.core.plan import Plan
from tacit.core.run_folder import write_arrays, write_json, write_text
from tacit.errors import PlanError
from tacit.privacy.mechanism import empty_total
from tacit.privacy.price import Price, price
from tacit.privacy.sampler import Sampler, Volunteers, build_sampler

VERSION = 1
WORDS = 65_536  # bytes of a letter beside its arrays: names, digests, a sentence, Flower's envelope
_FILES = ("plan.toml", "catalog.json", "catalog.npz", "params.npz")
_FIELDS = ("item_fields", "person_fields", "event_fields")


@dataclass(frozen=True)
class Form:
    """What an update of one stage looks like: how many weights it carries, and its arrays, by name."""

    weights: int
    update: dict[str, tuple[tuple[int, ...], str]]  # name -> shape, type

    @property
    def like(self) -> dict:
        """The shapes of an update."""
        return {name: jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for name, (shape, dtype) in self.update.items()}


@dataclass(frozen=True, eq=False)
class Kit:
    """A plan folder, read."""

    plan: Plan
    catalog: Catalog
    params: dict[str, np.ndarray]
    people: int  # how many the plan was priced for; nobody beyond them can enrol
    forms: tuple[Form | None, ...]  # stage by stage; None where nothing is sent
    names: Sequence[Any] | None = None  # what the items are called
    began: float | None = None  # the moment times are counted from, in unix seconds; None: a node's first event
    server: str = ""  # the public key whose signature a device asks for, as hexadecimal; none: any server's word counts
    digest: str = ""

    def __post_init__(self):
        for number, stage in enumerate(self.plan.stages, 1):
            if (reason := _for_the_lab(build_sampler(stage.cohort))) is not None:
                raise PlanError(f"Plan {self.plan.name!r} cannot be deployed: stage {number} {reason}.")

    @cached_property
    def price(self) -> Price:
        """What the plan costs each of so many people."""
        return price(self.plan, self.people)

    def mechanism(self, stage: int) -> Any:
        """A stage's mechanism, its noise found; the same on both sides, since both find it for the same numbers."""
        return self.price.stages[stage].mechanism

    def form(self, stage: int) -> Form:
        """What a report of this stage is made of."""
        form = self.forms[stage]
        assert form is not None
        return form

    def volunteers(self, stage: int) -> int:
        """How many volunteers a stage is priced for; 0 where it asks anybody."""
        exposure = self.price.stages[stage].exposure
        return exposure.devices if exposure is not None and exposure.sampler == Volunteers.name else 0

    @cached_property
    def most_volunteers(self) -> int:
        """How many volunteers there must be; 0 where no stage asks for any."""
        return max(self.volunteers(stage) for stage in range(len(self.plan.stages)))

    @cached_property
    def broadcast(self) -> Schema:
        """How the parameters are written."""
        return schema_of(self.params, 0)

    def report(self, stage: int) -> Schema:
        """How one person's report is written."""
        mechanism, form = self.mechanism(stage), self.form(stage)
        payload = jax.eval_shape(lambda update: mechanism.encode(jax.random.key(0), update, {}), form.like)
        return schema_of(payload, form.weights, mechanism.wire)

    def total(self, stage: int) -> Schema:
        """How a shard's total is written."""
        mechanism, form = self.mechanism(stage), self.form(stage)
        return schema_of(jax.eval_shape(lambda: empty_total(mechanism, form.like, form.weights)), 0)

    @cached_property
    def largest(self) -> int:
        """The most bytes of a letter, either way: a broadcast that names everybody, a report or a total, and some words."""
        stages = [stage for stage, form in enumerate(self.forms) if form is not None]
        reports = [schema(stage).bytes() for stage in stages for schema in (self.report, self.total)]
        return int(max([self.broadcast.bytes() + 4 * self.people, *reports])) + WORDS

    def pack_params(self, params: dict) -> bytes:
        """The bytes of a broadcast's parameters."""
        return pack_tree(self.broadcast, params)

    def unpack_params(self, data: bytes) -> dict:
        """The parameters in these bytes."""
        return unpack_tree(self.broadcast, data)

    def pack_dials(self, stage: int, dials: dict) -> bytes:
        """The bytes of a broadcast's dials; none, where the stage has none."""
        return pack_tree(self._dials(stage), dials) if dials else b""

    def unpack_dials(self, stage: int, data: bytes) -> dict:
        """The dials in these bytes."""
        return unpack_tree(self._dials(stage), data) if data or self.mechanism(stage).dials else {}

    def _dials(self, stage: int) -> Schema:
        return schema_of({name: np.float32(dial) for name, dial in self.mechanism(stage).dials.items()}, 0)

    def first_round(self, stage: int) -> int:
        """How many rounds all earlier stages have."""
        return sum(one.rounds for one in self.plan.stages[:stage])

    @property
    def rounds(self) -> int:
        """Rounds of all stages."""
        return self.first_round(len(self.plan.stages))


def _for_the_lab(sampler: Sampler) -> str | None:
    """Why a sampler has no place on real devices."""
    if sampler.fitted != "rounds":
        needs = {"pooled": "pools raw histories", "helped": "needs a third party that helps"}
        return f"{needs[sampler.fitted]}, which is for the lab alone"
    if isinstance(sampler, Volunteers) and sampler.because == "public":
        return (
            "reads histories that are public, which no device has to send; ask volunteers (cohort.because = 'consent')"
        )
    return None


def write_kit(path: str | Path, kit: Kit) -> Kit:
    """Write a plan folder, and read it back."""
    folder = Path(path)
    if (folder / "kit.json").exists():
        raise PlanError(f"{folder} holds a plan already; a plan folder never changes, so choose another.")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "plan.toml", kit.plan.to_toml())
    described = {name: [asdict(field) for field in getattr(kit.catalog, name)] for name in _FIELDS}
    names = None if kit.names is None else [str(name) for name in kit.names]
    write_json(folder / "catalog.json", {"n_items": kit.catalog.n_items, "names": names, **described})
    write_arrays(folder / "catalog.npz", dict(kit.catalog.attributes))
    write_arrays(folder / "params.npz", kit.params)
    forms = [None if form is None else asdict(form) for form in kit.forms]
    facts = {"version": VERSION, "people": kit.people, "began": kit.began, "server": kit.server, "stages": forms}
    write_json(folder / "kit.json", {**facts, "digest": _digest(folder, facts)})  # last: its presence says it is whole
    return read_kit(folder)


def read_kit(path: str | Path) -> Kit:
    """The plan folder at this path; one that was altered after it was written is refused."""
    folder = Path(path)
    try:
        facts = json.loads((folder / "kit.json").read_text(encoding="utf-8"))
        digest, version = facts.pop("digest"), facts["version"]
        if version != VERSION:
            raise PlanError(
                f"{folder} is a plan folder of version {version}, this Tacit reads {VERSION}; make it anew."
            )
        if _digest(folder, facts) != digest:
            raise PlanError(
                f"{folder} does not match its digest {digest}: it was altered or is half copied; copy it anew."
            )
        items = json.loads((folder / "catalog.json").read_text(encoding="utf-8"))
        plan = Plan.from_toml((folder / "plan.toml").read_text(encoding="utf-8"))
        arrays = [_arrays(folder / name) for name in ("catalog.npz", "params.npz")]
    except FileNotFoundError as problem:
        raise PlanError(
            f"{folder} has no {Path(str(problem.filename)).name}: it is not a plan folder; "
            "`tacit plan NAME --folder DIR` makes one."
        ) from None
    forms = tuple(None if one is None else Form(one["weights"], _update(one["update"])) for one in facts["stages"])
    attributes = jax.tree.map(jnp.asarray, arrays[0])
    catalog = Catalog(items["n_items"], attributes, *(_fields(items[name]) for name in _FIELDS))
    return Kit(
        plan, catalog, arrays[1], facts["people"], forms, items["names"], facts["began"], facts["server"], digest
    )


def _digest(folder: Path, facts: dict[str, Any]) -> str:
    state = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in _FILES:
        state.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return state.hexdigest()[:32]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name; `write_arrays` wrote the names as paths, ['name']."""
    with np.load(path, allow_pickle=False) as saved:
        return {name[2:-2]: saved[name] for name in saved.files}


def _fields(values: list[dict[str, Any]]) -> tuple[Field, ...]:
    return tuple(Field(**{**one, "values": tuple(one["values"])}) for one in values)


def _update(values: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(shape), dtype) for name, (shape, dtype) in values.items()}
