"""A small deployment without a network: a plan folder, nodes and a session, with the same random keys as the simulator."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from support.toys import ITEMS
from tacit.core.plan import Plan
from tacit.core.run_folder import write_arrays
from tacit.deploy.messages import Reply, Request, from_plain, to_plain
from tacit.device.batching import seeded_noise_keys
from tacit.device.node.node import Node
from tacit.device.node.store import Store
from tacit.device.round import KEYS, Home
from tacit.lab.data import Population, from_events
from tacit.lab.data.organisations import organisations
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.plans.publish import make_bundle
from tacit.lab.simulation.buckets import device_secrets
from tacit.server.round import noise_key
from tacit.server.session.round_policy import RoundPolicy
from tacit.server.session.session import Session

TINY = {
    "hyper.width": 6, "hyper.dim": 8, "hyper.heads": 2, "hyper.hidden": 4, "hyper.window": 6, "hyper.short": 3,
    "hyper.batch": 8, "hyper.group": 4, "hyper.each": 4, "rounds": 2, "hyper.steps": 1, "hyper.optimiser": "sgd",
}  # fmt: skip
RUN = "testrun"


def short_world(devices: int, seed: int = 3) -> Population:
    """Histories of 1 to 8 events: one length of padding, so few programs to compile."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(devices), rng.integers(1, 9, devices))
    return from_events(user, rng.integers(ITEMS, size=user.size), n_items=ITEMS)


def even_world(devices: int, events: int = 5) -> Population:
    """Histories of one length, so that organisations of as many people are padded alike."""
    user = np.repeat(np.arange(devices), events)
    return from_events(user, np.random.default_rng(0).integers(ITEMS, size=user.size), n_items=ITEMS)


def plans() -> dict[str, tuple[Plan, Population, tuple[int, ...]]]:
    """Seven plans, each with a log and the number of people of each node."""
    world, people = short_world(9), (1, 4, 4)
    tiny = {f"2.{path}": value for path, value in TINY.items()}
    held = organisations(replace(even_world(6), silo=np.array([0, 0, 0, 1, 1, 1])))
    return {
        "fcf": (choose("fcf", {"rounds": 2, "hyper.dim": 4}), world, people),
        "seqmf": (choose("seqmf"), world, people),
        "dplcf": (choose("dplcf"), world, people),
        "fpl": (choose("fpl", {"rounds": 2}), world, people),
        "dp-privrec": (choose("dp-privrec", {"2.hyper.dim": 4, "2.hyper.most": 20}), movies(9, 50, seed=0), people),
        "steps": (
            choose("steps", {"1.hyper.most": 20, "2.hyper.most": 20, "2.server.least": 5}, epsilon=60),
            movies(9, 50, seed=0),
            people,
        ),
        "fedseqrec": (choose("fedseqrec", tiny), held, (1,) * len(held)),
    }


class Deployment:
    """The server and the nodes of a deployment, on disk."""

    def __init__(self, folder: Path, plan: Plan, world: Population, people: Sequence[int], seed: int = 0, **policy):
        self.folder, self.world, self.policy = folder, world, RoundPolicy(**policy)
        public = {"names": world.item_names, "began": _began(world), "seed": seed}
        self.bundle = make_bundle(folder / "bundle", plan, world.catalog, len(world), **public)
        root = jax.random.key(seed, impl=KEYS)
        homes, noise = (jax.random.fold_in(root, purpose) for purpose in (1, 2))
        self.seeded = partial(noise_key, noise)
        options = {"run": RUN, "draws": seed, "seeded": self.seeded}
        self.session = Session.begin(folder / "run", self.bundle, self.policy, **options)
        own, first, self.nodes = np.asarray(device_secrets(homes, np.arange(len(world)))), 0, {}
        for number, count in enumerate(people):
            write_history(folder / f"{number}.parquet", world, first, count)
            node = self.new_node(f"home{number}", folder / f"{number}.parquet", own[first : first + count])
            self.nodes[node.store.name] = node
            first += count

    def new_node(self, name: str, history: Path, own: np.ndarray) -> Node:
        store = Store(self.folder / name).create()
        store.install(self.folder / "bundle")
        store.set(history=str(history))
        store.agree(True)
        (store.path / "runs" / RUN).mkdir()
        write_arrays(store.path / "runs" / RUN / "secrets.npz", {"secrets": own})
        return Node(store.path, seeded=seeded_keys)

    def enrol(self) -> "Deployment":
        for node in self.nodes.values():
            self.session.enrol(post(node, self.session.hello()))
        return self

    def play(self, rounds: int = 100) -> "Deployment":
        for _ in range(rounds):
            if self.session.finished:
                break
            self.session.open()
            for name in self.session.missing:
                self.session.receive(post(self.nodes[name], self.session.request(name)))
            assert self.session.close()
        return self

    def restart(self) -> None:
        """Restart the server from its folder."""
        self.session = Session(self.folder / "run", self.bundle, self.policy, self.seeded)


def seeded_keys(request: Request, homes: Home) -> jax.Array:
    """The noise keys of the simulator."""
    return seeded_noise_keys(request.stage, request.round, homes)


def post(node: Node, request: Request) -> Reply:
    """Pass a request to a node and its reply back, as plain values."""
    return from_plain(Reply, to_plain(node.reply_to(from_plain(Request, to_plain(request)))))


def stranger(deployment: Deployment, **values: Any) -> Reply:
    """The reply of a new node to a hello."""
    store = Store(deployment.folder / "stranger").create()
    return store.key(Reply("", nonce=deployment.session.hello().nonce, **values))


def write_history(path: Path, world: Population, first: int, count: int) -> None:
    """The log of some people, with every field the catalog has."""
    begin, end = world.offsets[first], world.offsets[first + count]
    who = np.repeat(np.arange(count), world.lengths[first : first + count])
    columns = {"user_id": [f"{person:06d}" for person in who], "item_id": world.items[begin:end]}
    if world.item_names is not None:
        columns["item_id"] = [str(world.item_names[item]) for item in world.items[begin:end]]
    if world.times is not None:
        columns["datetime"] = world.times[begin:end]
    if world.labels is not None:
        columns["label"] = world.labels[begin:end]
    for values, fields in (
        (None if world.context is None else world.context[begin:end], world.catalog.event_fields),
        (None if world.person is None else world.person[first : first + count][who], world.catalog.person_fields),
    ):
        at = 0
        for field in fields:
            assert values is not None
            names = [f"{field.name}.{n}" for n in range(field.width)] if field.width > 1 else [field.name]
            columns |= {name: values[:, at + n] for n, name in enumerate(names)}
            at += field.width
    table = pl.DataFrame(columns)
    (table if count > 1 else table.drop("user_id")).write_parquet(path)


def _began(world: Population) -> float | None:
    return None if world.times is None else float(world.began)
