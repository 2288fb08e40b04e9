"""How fast an organisation trains: an epoch at home against a plain central loop, memory by people, steps of the large model.

python benchmarks/fedseqrec.py [--only epoch,items,memory,step,words] [--repeats 5]

epoch    one local epoch of the small network, as a device runs it, and the loop anybody would write: a compiled step
         for a batch, called from Python, on windows laid out beforehand. Same samples, same batches, same network
items    a step of the published size on MovieData, or a world like it: items made each time they are met, and once
memory   peak memory of a process in which one organisation of so many people makes a few steps
step     samples a second of the published size, by batch, and the share of the accelerator's peak in float32
words    NDCG@10 round by round of FedNewsRec in the published widths at the published rate, on `small`'s MovieData with
         short windows: hashed words as long as standard normal ones of that width, and as they are

What the file of results holds of other parts stays, if it was made on a machine of the same kind.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from harness import RESULTS, machine, peak_memory, race, write

from tacit.core.catalog import Catalog
from tacit.device.method import build
from tacit.device.methods import fedseqrec
from tacit.lab.data import Population
from tacit.lab.data.organisations import FIELDS, organisations
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.buckets import prepare_devices
from tacit.nets.neural.local_sgd import shuffled_batches
from tacit.nets.neural.text import LENGTH, CatalogWithText, hashed_vectors, tokens_of
from tacit.nets.sequence.windows import next_item_samples

PEAK = {"NVIDIA H200": 67e12}  # operations a second in float32, as its maker states them
KEY = jax.random.key(0)


def one_organisation(plan: str, people: int, items: int, **hyper: Any) -> tuple[Any, dict]:
    """The method of a plan's last stage, and what one organisation's log is to it."""
    settings = {f"{len(choose(plan).stages)}.hyper.{name}": value for name, value in hyper.items()}
    held = organisations(movies(2 * people, items, silos=2, activity_gap=0.0))
    method = build(choose(plan, settings).stages[-1], held.catalog)
    own = prepare_devices(method, held, np.arange(1), int(held.lengths[0]))
    return method, jax.tree.map(lambda leaf: leaf[0], own)


def central_loop(method: Any, own: dict, theta: dict) -> Callable[[], Any]:
    """Batches of windows from memory, a compiled step for each, a loop in Python."""
    at = np.flatnonzero(np.asarray(own["place"]) >= 1)
    laid = next_item_samples(
        KEY, own["items"], own["place"], jnp.asarray(at), method.window, (method.negatives, own_items(method))
    )
    laid = jax.tree.map(np.asarray, laid)
    descent = optax.chain(optax.clip(method.clip), optax.sgd(method.rate))

    @jax.jit
    def step(theta: Any, state: Any, some: Any) -> tuple[Any, Any]:
        slope = jax.grad(lambda theta: method._sample_losses(theta, some, KEY).mean())(theta)
        moves, state = descent.update(slope, state)
        return optax.apply_updates(theta, moves), state

    def epoch() -> dict:
        order, now, state = np.random.default_rng(0).permutation(at.size), theta, descent.init(theta)
        for start in range(0, at.size - method.batch + 1, method.batch):
            rows = order[start : start + method.batch]
            now, state = step(now, state, jax.tree.map(lambda leaf: leaf[rows], laid))  # noqa: B023
        return now

    return epoch


def own_items(method: Any) -> int:
    return method.catalog.n_items


def epoch(repeats: int) -> dict[str, Any]:
    """One epoch of one organisation, both ways, in turn."""
    method, own = one_organisation("fedavg-seqrec", 300, 400)
    theta = method._theta(method.init(KEY))
    local = jax.jit(lambda key, theta: method._train(key, theta, own, 1))
    runners = {"central loop": central_loop(method, own, theta), "local epoch": lambda: local(KEY, theta)}
    made = race(runners, repeats)
    ratio = 1 / made["local epoch"]["times_faster"]
    print({name: round(row["ms"]) for name, row in made.items()}, f"local/central {ratio:.2f}", flush=True)
    return {"samples": int((np.asarray(own["place"]) >= 1).sum()), **made, "local over central": ratio}


def items(repeats: int) -> dict[str, Any]:
    """A step with each item of a batch made each time, and once; organisation by organisation, the larger first."""
    from tacit_papers.fedseqrec.logs import logs  # here: `memory` is to hold no more than it needs
    from tacit_papers.fedseqrec.study import plan_of

    log = next(log for log in logs(None, "paper") if log.paper == "MovieData")
    method: Any = build(plan_of("FedSeqRec", log, {"2.hyper.drop": 0.0}).stages[-1], log.organisations.catalog)
    theta = method._theta(method.init(KEY))
    made: dict[str, Any] = {"log": log.label}
    for number in log.by_size[::-1]:
        own = prepare_devices(method, log.organisations, np.array([number]), int(log.organisations.lengths[number]))
        own = jax.tree.map(lambda leaf: leaf[0], own)
        at = shuffled_batches(KEY, own["place"] >= 1, method.batch)[0]
        runners = {name: partial(_step(method, own, at, vectors), theta) for name, vectors in ITEMS.items()}
        made[f"organisation {number + 1}"] = race(runners, repeats)
        print(made[f"organisation {number + 1}"], flush=True)
    return made


def _each(method: Any, theta: dict, sizes: Any, words: Any, some: jax.Array, key: Any = None) -> jax.Array:
    """An item for each place of a batch, as a plain encoder makes them."""
    del sizes, words
    return method._items(theta, some, table=some.size >= own_items(method), key=key)


ITEMS = {"each time": _each, "once": None}


def _step(method: Any, own: dict, at: jax.Array, vectors: Any) -> Any:
    """The slope of a batch as one program, with items made in one way."""
    real = fedseqrec.distinct_vectors

    def slope(theta: dict) -> dict:
        fedseqrec.distinct_vectors = real if vectors is None else partial(vectors, method)
        try:
            return jax.grad(method.loss)(theta, own, at, KEY)
        finally:
            fedseqrec.distinct_vectors = real

    return jax.jit(slope)


def crowd(people: int, events: int = 10, items: int = 1000) -> Population:
    """One organisation of many people, drawn without a world."""
    rng, total = np.random.default_rng(0), people * events
    context = np.stack([np.repeat(np.arange(people), events), np.zeros(total)], axis=1).astype(np.float32)
    drawn = rng.integers(items, size=total).astype(np.int32)
    return Population(Catalog(items, event_fields=FIELDS), np.array([0, total]), drawn, context=context)


def memory_of(people: int, steps: int = 20) -> dict[str, float]:
    """A few steps of an organisation of so many people, in this process."""
    log = crowd(people)
    method = build(choose("fedavg-seqrec", {"hyper.steps": steps}).stages[-1], log.catalog)
    own = jax.tree.map(lambda leaf: leaf[0], prepare_devices(method, log, np.arange(1), int(log.lengths[0])))
    params, before = method.init(KEY), peak_memory()
    local = jax.jit(lambda key: method.local(key, params, method.enter(key, own), own)[1])
    jax.block_until_ready(local(KEY))
    began = time.perf_counter()
    jax.block_until_ready(local(jax.random.key(1)))
    return {"people": people, "GiB": peak_memory(), "GiB before": before, "seconds": time.perf_counter() - began}


def memory() -> list[dict[str, float]]:
    """Each in a process of its own: a peak is a process's."""
    made = []
    for people in (10_000, 100_000, 1_000_000):
        told = subprocess.run(
            [sys.executable, __file__, "--one", str(people)], capture_output=True, text=True, check=True
        )
        made.append(json.loads(told.stdout.splitlines()[-1]))
        print(made[-1], flush=True)
    return made


def step(repeats: int) -> list[dict[str, Any]]:
    """Samples a second of the published network in training."""
    made = []
    for batch in (32, 256, 1024):
        method, own = one_organisation("fedseqrec-paper", 300, 1500, batch=batch)
        theta, at = method._theta(method.init(KEY)), jnp.flatnonzero(own["place"] >= 1)[:batch]
        program = jax.jit(lambda theta, key: jax.grad(method.loss)(theta, own, at, key)).lower(theta, KEY).compile()  # noqa: B023
        operations = float((program.cost_analysis() or {}).get("flops", 0.0))
        row = race({"step": lambda: program(theta, KEY)}, repeats)["step"]  # noqa: B023
        rate = operations / row["ms"] * 1e3
        peak = next((value for name, value in PEAK.items() if name in machine()["device"]), None)
        made.append(
            {"batch": batch, "ms": row["ms"], "samples a second": batch / row["ms"] * 1e3, "operations": operations}
        )
        made[-1]["share of peak"] = None if peak is None else rate / peak
        print(made[-1], flush=True)
    return made


def words(rounds: int = 5) -> dict[str, Any]:
    """The same network, seed and rate, fed with longer and shorter words."""
    from tacit.lab.runs.run import simulate
    from tacit_papers.fedseqrec import study
    from tacit_papers.fedseqrec.logs import SIZES, logs

    log = next(log for log in logs(None, "small") if log.paper == "MovieData")
    short = {"window": 10, "short": 10, "tokens": 8}  # a tenth of the time
    network = {**SIZES["paper"].network, **short}
    log = replace(log, size=log.size._replace(network=network, rounds=rounds))
    made: dict[str, Any] = {"log": log.label}
    plan = study.plan_of("FedNewsRec", log)
    for name, length in {"standard normal": network["width"] ** 0.5, "as they are": LENGTH}.items():
        asked = replace(log, people=_said(log.people, network["width"], length)).questions(plan, 0)
        found = made[name] = {"length": length, "NDCG@10": []}

        def look(run: Any, asked: Any = asked, found: Any = found) -> dict[str, float]:
            found["NDCG@10"].append(study.means(run, asked, 0)["NDCG@10"])
            print(found, flush=True)
            return {}

        simulate(plan, asked.train, seed=0, quiet=True, evaluate=look, every=1)
        found["NDCG@10"].pop()  # the end is looked at twice
    return {**made, "digest": plan.digest}


def _said(log: Population, width: int, length: float) -> Population:
    """A log whose words have hashed vectors of a length."""
    tokens, said = tokens_of(log.catalog, 30)
    return replace(log, catalog=CatalogWithText.of(log.catalog, tokens, hashed_vectors(said, width, length)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="epoch,items,memory,step,words")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return print(json.dumps(memory_of(options.one)))
    parts = {
        "epoch": lambda: epoch(options.repeats),
        "items": lambda: items(options.repeats),
        "memory": memory,
        "step": lambda: step(options.repeats),
        "words": words,
    }
    made = {name: part() for name, part in parts.items() if name in options.only.split(",")}
    name = f"fedseqrec-{machine()['platform']}"
    before = json.loads((RESULTS / f"{name}.json").read_text()) if (RESULTS / f"{name}.json").is_file() else {}
    write(name, {**(before if before.get("machine") == machine() else {}), "machine": machine(), **made})


if __name__ == "__main__":
    main()
