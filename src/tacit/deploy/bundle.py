"""Bundle: a plan folder, installed on the server and on every device, with everything that both sides must agree on.

plan.toml       the plan, with every default written out
catalog.json    the public items: their number, names and fields
catalog.npz     the attributes of the items
params.npz      the initial parameters
kit.json        the population size that the noise is calibrated for, the shapes of updates, the server's public key, the digest

A device follows its own copy: it takes part only in rounds with the digest of a plan folder that it has installed. A plan
folder contains no data about a person.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, catalog_from_dict, catalog_to_dict
from tacit.core.messages import Schema, pack_tree, schema_of, unpack_tree
from tacit.core.plan import Plan
from tacit.core.run_folder import read_arrays_by_name, write_arrays, write_json, write_text
from tacit.deploy.terminal import printable
from tacit.errors import PlanError, TacitError
from tacit.privacy.mechanism import empty_total
from tacit.privacy.price import Price, price
from tacit.privacy.sampler import Sampler, Volunteers, build_sampler

VERSION = 1
_OVERHEAD = 65_536  # bytes of a message beside its arrays: names, digests, a sentence, Flower's envelope
_FILES = ("plan.toml", "catalog.json", "catalog.npz", "params.npz")
PARTS = (*_FILES, "kit.json")  # all of a plan folder that a device installs
MOST_NUMBERS = 1 << 28  # of the parameters, of an update and of a home: 1 GiB of float32
_MOST = {"kit.json": 1 << 24, "plan.toml": 1 << 20, "catalog.json": 1 << 30}  # bytes


@dataclass(frozen=True)
class UpdateSpec:
    """The form of an update of one stage: its number of weights, and its arrays by name."""

    weights: int
    update: dict[str, tuple[tuple[int, ...], str]]  # name -> shape, type

    @property
    def like(self) -> dict:
        """The shapes of an update."""
        return {name: jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for name, (shape, dtype) in self.update.items()}


@dataclass(frozen=True, eq=False)
class Bundle:
    """A plan folder, read."""

    plan: Plan
    catalog: Catalog
    params: dict[str, np.ndarray]
    people: int  # the population size that the plan is priced for; no more can enrol
    update_specs: tuple[UpdateSpec | None, ...]  # stage by stage; None where nothing is sent
    names: Sequence[Any] | None = None  # the names of the items; None: they go by number
    began: float | None = None  # the origin of all times, in unix seconds; None: a node's first event
    server: str = ""  # the server's public key as hexadecimal; empty: requests need no signature
    digest: str = ""

    def __post_init__(self):
        for number, stage in enumerate(self.plan.stages, 1):
            if (reason := _not_deployable(build_sampler(stage.cohort))) is not None:
                raise PlanError(f"Plan {self.plan.name!r} cannot be deployed: stage {number} {reason}.")

    @cached_property
    def price(self) -> Price:
        """The privacy price of the plan for this population size."""
        return price(self.plan, self.people)

    def mechanism(self, stage: int) -> Any:
        """A stage's mechanism with calibrated noise; identical on both sides, which calibrate it for the same numbers."""
        return self.price.stages[stage].mechanism

    def update_spec(self, stage: int) -> UpdateSpec:
        """The form of an update of this stage."""
        form = self.update_specs[stage]
        assert form is not None
        return form

    def volunteers(self, stage: int) -> int:
        """How many volunteers a stage is priced for; 0 where its cohort is not drawn among volunteers."""
        exposure = self.price.stages[stage].exposure
        return exposure.devices if exposure is not None and exposure.sampler == Volunteers.name else 0

    @cached_property
    def most_volunteers(self) -> int:
        """How many volunteers the plan needs; 0 where no stage needs any."""
        return max(self.volunteers(stage) for stage in range(len(self.plan.stages)))

    @cached_property
    def broadcast(self) -> Schema:
        """The schema of the broadcast parameters."""
        return schema_of(self.params, 0)

    def report(self, stage: int) -> Schema:
        """The schema of one person's report."""
        mechanism, form = self.mechanism(stage), self.update_spec(stage)
        payload = jax.eval_shape(lambda update: mechanism.encode(jax.random.key(0), update, {}), form.like)
        return schema_of(payload, form.weights, mechanism.wire)

    def total(self, stage: int) -> Schema:
        """The schema of the total of several people's reports."""
        mechanism, form = self.mechanism(stage), self.update_spec(stage)
        return schema_of(jax.eval_shape(lambda: empty_total(mechanism, form.like, form.weights)), 0)

    @cached_property
    def largest(self) -> int:
        """An upper bound on the bytes of a message in either direction: a broadcast to all people, a report or a total."""
        stages = [stage for stage, form in enumerate(self.update_specs) if form is not None]
        reports = [schema(stage).bytes() for stage in stages for schema in (self.report, self.total)]
        return int(max([self.broadcast.bytes() + 4 * self.people, *reports])) + _OVERHEAD

    def pack_params(self, params: dict) -> bytes:
        """The bytes of a broadcast's parameters."""
        return pack_tree(self.broadcast, params)

    def unpack_params(self, data: bytes) -> dict:
        """The parameters in these bytes."""
        return unpack_tree(self.broadcast, data)

    def pack_public_state(self, stage: int, public_state: dict) -> bytes:
        """The bytes of a broadcast's public state; empty where the stage has none."""
        return pack_tree(self._public_state(stage), public_state) if public_state else b""

    def unpack_public_state(self, stage: int, data: bytes) -> dict:
        """The public state in these bytes."""
        return unpack_tree(self._public_state(stage), data) if data or self.mechanism(stage).public_state else {}

    def _public_state(self, stage: int) -> Schema:
        return schema_of({name: np.float32(number) for name, number in self.mechanism(stage).public_state.items()}, 0)

    def first_round(self, stage: int) -> int:
        """The number of rounds of all earlier stages."""
        return sum(one.rounds for one in self.plan.stages[:stage])

    @property
    def rounds(self) -> int:
        """The number of rounds of all stages."""
        return self.first_round(len(self.plan.stages))


def _not_deployable(sampler: Sampler) -> str | None:
    """Why a sampler cannot run on real devices; None where it can."""
    if sampler.fitted != "rounds":
        needs = {"pooled": "pools raw histories", "helped": "needs a third party that helps"}
        return f"{needs[sampler.fitted]}, which is for the lab alone"
    if isinstance(sampler, Volunteers) and sampler.because == "public":
        return "reads histories that are public, which no device has to send; select volunteers (cohort.because = 'consent')"
    return None


def write_bundle(path: str | Path, bundle: Bundle) -> Bundle:
    """Write a plan folder, and read it back."""
    folder = Path(path)
    if (folder / "kit.json").exists():
        raise PlanError(f"{folder} holds a plan already, and a plan folder is never changed; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "plan.toml", bundle.plan.to_toml())
    names = None if bundle.names is None else [str(name) for name in bundle.names]
    items = {"n_items": bundle.catalog.n_items, "names": names, **catalog_to_dict(bundle.catalog)}
    write_json(folder / "catalog.json", items)
    write_arrays(folder / "catalog.npz", dict(bundle.catalog.attributes))
    write_arrays(folder / "params.npz", bundle.params)
    stages = [None if spec is None else asdict(spec) for spec in bundle.update_specs]
    facts = {"version": VERSION, "people": bundle.people, "began": bundle.began, "server": bundle.server}
    facts["stages"] = stages
    write_json(
        folder / "kit.json", {**facts, "digest": _digest(folder, facts)}
    )  # last: a folder with this file is complete
    return read_bundle(folder)


def read_bundle(path: str | Path) -> Bundle:
    """The plan folder at this path; refuse one that was altered after it was written, or that Tacit did not write."""
    folder = Path(path)
    try:
        return _read_bundle(folder)
    except PlanError:
        raise
    except (
        TacitError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        RecursionError,
        OverflowError,
    ) as problem:
        reason = str(problem) if isinstance(problem, TacitError) else f"{type(problem).__name__}: {problem}"
        raise PlanError(f"{folder} is not a sound plan folder ({printable(reason)}); copy it anew.") from None
    except OSError as problem:
        raise PlanError(f"{folder} cannot be read ({problem.strerror}); copy the plan folder anew.") from None


def _read_bundle(folder: Path) -> Bundle:
    try:
        for name in ("kit.json", *_FILES):
            if (folder / name).stat().st_size > _MOST.get(name, math.inf):
                raise PlanError(
                    f"{folder / name} has more than {_MOST[name]:,} bytes; it is not part of a plan folder."
                )
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
        arrays = [read_arrays_by_name(folder / name) for name in ("catalog.npz", "params.npz")]
    except FileNotFoundError as problem:
        raise PlanError(
            f"{folder} has no {Path(str(problem.filename)).name}: it is not a plan folder; "
            "`tacit plan NAME --folder DIR` makes one."
        ) from None
    _check_facts(folder, facts, items, plan)
    update_specs = tuple(None if one is None else _update_spec(one) for one in facts["stages"])
    catalog = catalog_from_dict(items, jax.tree.map(jnp.asarray, arrays[0]))
    return Bundle(
        plan, catalog, arrays[1], facts["people"], update_specs, items["names"], facts["began"], facts["server"], digest
    )


def _check_facts(folder: Path, facts: dict[str, Any], items: dict[str, Any], plan: Plan) -> None:
    """Refuse values that no plan folder has, by their type and size, before anything is computed from them."""
    people, began, server, n_items = facts["people"], facts["began"], facts["server"], items["n_items"]
    names, specs = items["names"], [one for one in facts["stages"] if one is not None]
    sizes = [math.prod(shape) for one in specs for shape, _ in one["update"].values()]
    rules = {
        "people must be a whole number from 1 to 2³¹": type(people) is int and 0 < people < 2**31,
        "began must be null or a finite number": began is None or math.isfinite(float(began)),
        "server must be empty or 64 hexadecimal digits": server == "" or len(bytes.fromhex(server)) == 32,
        "n_items must be a whole number from 1 to 2³¹": type(n_items) is int and 0 < n_items < 2**31,
        "names must be null or one text for each item": names is None
        or (len(names) == n_items and all(type(name) is str for name in names)),
        "stages must be those of the plan": len(facts["stages"]) == len(plan.stages),
        "the updates must have at most 2²⁸ numbers": sum(max(size, 0) for size in sizes) <= MOST_NUMBERS
        and all(
            type(side) is int and side >= 0 for one in specs for shape, _ in one["update"].values() for side in shape
        ),
        "an update must be of numbers": all(
            np.dtype(kind).kind in "biuf" for one in specs for _, kind in one["update"].values()
        ),
        "weights must be a whole number from 0 to 64": all(
            type(one["weights"]) is int and 0 <= one["weights"] <= 64 for one in specs
        ),
        "its words must be printable": plan.name.isprintable() and all(name.isprintable() for name in names or ()),
    }
    for rule, kept in rules.items():
        if not kept:
            raise PlanError(f"{folder} is not a sound plan folder: {rule}; copy it anew.")
    check_settings(plan)


def check_settings(plan: Plan) -> None:
    """Refuse a whole number among the settings of a plan's methods that is larger than any size may be."""
    for number, stage in enumerate(plan.stages, 1):
        for name, value in stage.hyper.items():
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, int) and abs(one) > MOST_NUMBERS:
                    raise PlanError(
                        f"Plan {plan.name!r}, stage {number}: hyper.{name} = {printable(str(one)[:30])} is too large, a whole number may be at "
                        "most 2²⁸; choose a smaller one."
                    )


def _digest(folder: Path, facts: dict[str, Any]) -> str:
    state = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in _FILES:
        state.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return state.hexdigest()[:32]


def _update_spec(values: dict[str, Any]) -> UpdateSpec:
    arrays = {name: (tuple(shape), dtype) for name, (shape, dtype) in values["update"].items()}
    return UpdateSpec(values["weights"], arrays)
