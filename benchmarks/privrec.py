"""How fast does a meta-learning round go? Devices a second, one way against the other, ratios in one process.

    python benchmarks/privrec.py [--devices 30] [--epochs 20] [--repeats 5]

A round as in the paper's tables: 30 people, about 160 samples each (32 liked items and 4 drawn for each), 20 epochs in
batches of 32, the paper's network (64 numbers an embedding, four hidden layers), 3,706 items. The first runner works as
a plain training script does: one device after the other, one compiled step after the other, each moving the whole
table; it is written in torch where torch is there, in JAX where it is not, and the result says which.
"""

import argparse
import importlib.util
import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import machine, race, write

from tacit.core.plan import Plan
from tacit.device.method import Method, build
from tacit.device.methods.privrec import LabelledSamples
from tacit.device.round import KEYS
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.buckets import prepare_devices
from tacit.nets.neural.local_sgd import Minibatch, sgd_step, shuffled_batches

ITEMS, EVENTS, BATCH = 3706, 32, 32
KEY = jax.random.key(0, impl=KEYS)


def meta_learning(epochs: int, settings: dict[str, Any] | None = None) -> Plan:
    """The plan of such a round."""
    hyper = {"dim": 64, "hidden": (64, 32, 16, 8), "epochs": epochs, "batch": BATCH, "above": 0.0, "most": EVENTS}
    return choose("privrec", {**{f"hyper.{name}": value for name, value in hyper.items()}, **(settings or {})})


def everybody(devices: int, epochs: int) -> tuple[Method, dict, Any, jax.Array]:
    """The method, its start, what everybody has, and everybody's keys."""
    world = movies(devices, ITEMS)
    method = build(meta_learning(epochs).stages[0], world.catalog)
    own = prepare_devices(method, world, np.arange(devices), int(world.lengths.max()))
    return method, method.init(KEY), own, jax.random.split(KEY, devices)


def whole_table(mine: LabelledSamples) -> LabelledSamples:
    """The same samples, where a device holds every item."""
    return mine._replace(items=jnp.arange(ITEMS), place=jnp.minimum(mine.items[mine.place], ITEMS - 1))


def whole(method: Any, key: jax.Array, params: dict, own: dict) -> dict:
    """A device's round with the whole table in hand."""
    draw, order = jax.random.split(key)
    mine = whole_table(method._samples(draw, own))
    return jax.tree.map(jnp.subtract, method._descend(order, params, params, mine, own), params)


def script(method: Any, params: dict, own: Any, keys: jax.Array):
    """One device after the other, one compiled step after the other, as a training script in JAX goes."""

    @jax.jit
    def one_step(theta: dict, mine: LabelledSamples, own: dict, rows: jax.Array) -> dict:
        real = mine.real.at[rows].get(mode="fill", fill_value=False).astype(jnp.float32)
        rows = jnp.minimum(rows, mine.real.shape[0] - 1)
        loss = method._loss(theta, mine, own)
        return sgd_step(loss, theta, Minibatch(mine.place[rows], (rows, real, 0)), method._pace)

    ready = jax.jit(lambda key, own: whole_table(method._samples(key, own)))
    order = jax.jit(lambda key, mine: shuffled_batches(key, mine.real, BATCH))

    def turn() -> dict:
        total = jax.tree.map(jnp.zeros_like, params)
        for device in range(keys.shape[0]):
            mine_own = jax.tree.map(lambda leaf: leaf[device], own)  # noqa: B023
            mine, theta = ready(keys[device], mine_own), params
            for epoch in range(method.epochs):
                for rows in order(jax.random.fold_in(keys[device], epoch), mine):
                    theta = one_step(theta, mine, mine_own, rows)
            total = jax.tree.map(lambda t, new, old: t + new - old, total, theta, params)
        return total

    return turn


def torch_script(devices: int, epochs: int):
    """The same sizes as a torch training script: dense embedding, SGD, one device after the other."""
    import torch
    from torch import nn

    rng = np.random.default_rng(0)
    items = torch.tensor(rng.integers(ITEMS, size=(devices, EVENTS * 5)))
    liked = torch.tensor((np.arange(EVENTS * 5) % 5 == 0).astype(np.float32))
    genres = torch.tensor((rng.random((ITEMS, 18)) < 0.1).astype(np.float32))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.items, self.values = nn.Embedding(ITEMS, 64), nn.Linear(18, 64, bias=False)
            self.person, self.item, self.you = nn.Linear(192, 64), nn.Linear(128, 64), nn.Parameter(torch.zeros(192))
            sizes = (128, 64, 32, 16, 8, 1)
            layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
            self.head = nn.Sequential(*layers[:-1])

        def forward(self, at: Any) -> Any:
            v = self.item(torch.cat([self.items(at), self.values(genres[at])], 1)).relu()
            u = self.person(self.you).relu().expand(len(at), -1)
            return self.head(torch.cat([u, v], 1))[:, 0]

    net = Net()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    lost = nn.BCEWithLogitsLoss()

    def turn() -> Any:
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for device in range(devices):
            net.load_state_dict(start)
            descent = torch.optim.SGD(net.parameters(), lr=0.05)
            for _ in range(epochs):
                for rows in torch.randperm(EVENTS * 5).split(BATCH):
                    descent.zero_grad()
                    lost(net(items[device, rows]), liked[rows]).backward()
                    descent.step()
            for name, value in net.state_dict().items():
                total[name] += value - start[name]
        return float(total["items.weight"].abs().sum())

    return turn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    method, params, own, keys = everybody(options.devices, options.epochs)
    torch_there = importlib.util.find_spec("torch") is not None
    first = f"{'torch' if torch_there else 'JAX'}, one step at a time, whole table"
    rows: Any = lambda key, own: method.local(key, params, {}, own)[1]  # noqa: E731
    table = partial(whole, method)
    ways = {
        first: torch_script(options.devices, options.epochs) if torch_there else script(method, params, own, keys),
        "whole table, vmap": partial(jax.jit(jax.vmap(lambda k, o: table(k, params, o))), keys, own),
        "own rows, one after the other (lax.map)": partial(
            jax.jit(lambda k, o: jax.lax.map(lambda x: rows(*x), (k, o))), keys, own
        ),
        "own rows, side by side (vmap)": partial(jax.jit(jax.vmap(rows)), keys, own),
    }
    found = race(ways, options.repeats)
    for numbers in found.values():
        numbers["devices_per_second"] = 1e3 * options.devices / numbers["ms"]
    for name, numbers in found.items():
        print(
            f"{name:<44} {numbers['ms']:10.1f} ms {numbers['devices_per_second']:10.1f} devices/s {numbers['times_faster']:7.2f}"
        )
    size = {"devices": options.devices, "epochs": options.epochs, "samples": EVENTS * 5, "items": ITEMS}
    write(
        f"privrec-{jax.default_backend()}",
        {"machine": machine(), **size, "target": "4 times the script", "race": found},
    )


if __name__ == "__main__":
    main()
