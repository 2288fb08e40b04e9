"""Sample message: what one device sent, by the device's own code and secret, in bytes, and what can be read in it.

Each leaf of the payload becomes a view: plain values, the most prominent first, at most a screenful, compared with the
device's true history. `own` marks what is in the history; only the lab knows that.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata

from tacit.core.messages import pack, unpack
from tacit.lab.data import Population
from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import Job, chunk_size, cohort_slots, device_places, fold, wire_schema
from tacit.lab.simulation.replay import Replay
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.mechanisms._parts import sampled_signs
from tacit.privacy.sampler import build_sampler

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

SHOWN = 24  # bytes of the message written out
BARS, LISTED, FIRST = 60, 14, 5  # rows drawn, rows written out, numbers of a row written out
CLAIMS = 160  # items named


def sample_message(run: "Run") -> dict[str, Any]:
    """What a device with a history of median length sent in the last round in which anything is sent, as plain values.

    The round is replayed with the parameters the run ended with: where a stage has one round, this is exactly the report
    that was sent. The device is anonymous, but its history is a person's: do not publish it.
    """
    senders = [number for number, stage in enumerate(run.price.stages) if stage.mechanism is not None]
    if senders and not run.price.raw:  # beside raw data, a message is nothing new
        return _sent(run, Replay(run, senders[-1]))
    kind, size = ("raw", None) if run.price.raw else ("nothing", 0)
    return {"kind": kind, "bytes": size, **_history(run, _median_device(run, np.arange(len(run.population))))}


def _sent(run: "Run", replay: Replay) -> dict[str, Any]:
    device, stage, job = _median_device(run, _senders(run, replay.number)), replay.stage, replay.job
    round, buckets = stage.rounds - 1, replay.buckets()
    bucket_of, place_of = device_places(buckets, len(run.population))
    bucket, place = buckets[bucket_of[device]], slice(place_of[device], place_of[device] + 1)
    alone = jax.tree.map(lambda leaf: leaf[place], (bucket.home, bucket.own))
    report = jax.tree.map(lambda leaf: leaf[0], replay.send(round, *alone)[1])
    data = pack(schema := wire_schema(job, run.params), report)
    received = unpack(schema, data)
    history = _items(run, device)
    numbers = job.mechanism.to_numbers(received.payload, replay.broadcast(round).public_state)
    return {
        "kind": "report",
        "stage": job.stage + 1,
        "round": round + 1,
        "method": stage.method,
        "mechanism": stage.privacy["mechanism"],
        "sent": bool(received.sent),
        "exact": stage.rounds == 1,
        "bytes": len(data),
        "head": data[:SHOWN].hex(" "),
        "weight": np.asarray(received.weight).tolist() if job.mechanism.shows_weight else None,
        "views": payload_views(job.mechanism, numbers, _like(job), run.population, history),
        "released": _released(run, replay, buckets, history),
        **_history(run, device),
    }


def _like(job: Job) -> dict:
    """What an update is shaped like; a rule may make something else of it."""
    assert job.update is not None
    return job.update.like()


def _senders(run: "Run", stage: int) -> np.ndarray:
    """The devices that sent anything in a stage; all, where none did."""
    ids = np.concatenate([bucket.ids for bucket in run.buckets])
    spent = np.concatenate([np.asarray(bucket.home.spent[str(stage)]) for bucket in run.buckets])
    found = ids[spent > 0]
    return found if found.size else ids


def _median_device(run: "Run", devices: np.ndarray) -> int:
    """The device in the middle by length of history."""
    order = np.lexsort((devices, run.population.lengths[devices]))
    return int(devices[order[devices.size // 2]])


def _items(run: "Run", device: int) -> np.ndarray:
    offsets = run.population.offsets
    return run.population.items[offsets[device] : offsets[device + 1]]


def _history(run: "Run", device: int) -> dict[str, Any]:
    items = _items(run, device)
    return {
        "history": listed_history(run.population, items),
        "events": int(items.size),
        "distinct": int(np.unique(items).size),
    }


def _released(run: "Run", replay: Replay, buckets: list[Bucket], history: np.ndarray) -> dict[str, Any] | None:
    """Where the server adds the noise: the round's sum as it leaves the server, and of how many reports it is."""
    job, round = replay.job, replay.stage.rounds - 1
    if not job.mechanism.always_releases:
        return None
    seed, devices = int(run.environment.get("seed", 0)), len(run.population)
    cohort = build_sampler(replay.stage.cohort).draw(seed, job.stage, round, devices)
    total, n = _total(run, replay, buckets, cohort)
    sums, _ = job.mechanism.estimate(jax.random.key(seed), total, n, run.public_state(job.stage))
    first = jax.tree.map(lambda leaf: leaf[0], sums)  # the sum for the first weight
    return {"reports": int(n), "views": update_views(first, _like(job), run.population, history)}


def _total(run: "Run", replay: Replay, buckets: list[Bucket], cohort: np.ndarray) -> Any:
    bucket_of, place_of = device_places(buckets, len(run.population))
    size = int(wire_schema(replay.job, run.params).bytes())
    slots = []
    for b, bucket in enumerate(buckets):
        places = place_of[cohort[bucket_of[cohort] == b]]
        slots.append(cohort_slots(places, chunk_size(places.size, bucket.length, size)))
    homes, owns = ([getattr(bucket, part) for bucket in buckets] for part in ("home", "own"))
    return jax.jit(fold)(replay.job, replay.broadcast(replay.stage.rounds - 1), homes, owns, slots)[1]


# ---- Views ----


class NamedLeaf(NamedTuple):
    """A leaf with the names of its rows, and which of them are in the history."""

    name: str
    shape: tuple[int, ...]
    noun: str  # what its rows are
    label: Callable[[int], str]
    own: np.ndarray | None  # bool[rows]; None where a row stands for no item

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def name_of(population: Population, item: int) -> str:
    """What the log called an item."""
    return f"item {item}" if population.item_names is None else str(population.item_names[item])


def _leaves(like: dict, population: Population, history: np.ndarray) -> list[NamedLeaf]:
    flat = jax.tree_util.tree_leaves_with_path(like)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in flat]
    return [_leaf(name, tuple(leaf.shape), population, history) for name, (_, leaf) in zip(names, flat)]


def _leaf(name: str, shape: tuple[int, ...], population: Population, history: np.ndarray) -> NamedLeaf:
    """The rows of a leaf are items, steps from one item to the next, or have no names."""
    n, rows = population.catalog.n_items, shape[0] if shape else 1
    own = np.zeros(rows, bool)
    if rows == n:
        own[history] = True
        return NamedLeaf(name, shape, "items", lambda row: name_of(population, row), own)
    if rows == n * n:
        own[history[:-1].astype(np.int64) * n + history[1:]] = True
        words = lambda row: f"{name_of(population, row // n)} → {name_of(population, row % n)}"  # noqa: E731
        return NamedLeaf(name, shape, "steps from item to item", words, own)
    return NamedLeaf(name, shape, "rows", lambda row: f"row {row}", None)


def payload_views(
    mechanism: Mechanism, payload: Any, like: dict, population: Population, history: np.ndarray
) -> list[dict]:
    """A payload, leaf by leaf; `like` is what an update is shaped like."""
    sent = [np.asarray(leaf) for leaf in jax.tree.leaves(payload)]
    leaves = _leaves(like, population, history)
    if mechanism.payload_view == "bits":
        said = [np.unpackbits(part, count=leaf.size).reshape(leaf.shape) for leaf, part in zip(leaves, sent)]
        return [named_rows(leaf, part) for leaf, part in zip(leaves, said)]
    if mechanism.payload_view == "signs":
        return [sign_view(mechanism, payload, leaves)]
    if isinstance(payload, dict) and set(payload) > set(like):  # something is sent in addition to the update
        like = {**payload, **like}
        leaves = _leaves(like, population, history)
    if [part.shape for part in sent] != [leaf.shape for leaf in leaves]:
        return [{"kind": "bits", "bits": "".join(np.binary_repr(byte, 8) for part in sent for byte in part.tobytes())}]
    return update_views(payload, like, population, history)


def update_views(values: Any, like: dict, population: Population, history: np.ndarray) -> list[dict[str, Any]]:
    """Leaves in the update's own form: integers as named rows, other numbers by size."""
    parts = zip(_leaves(like, population, history), map(np.asarray, jax.tree.leaves(values)))
    return [(named_rows if part.dtype.kind in "iu" else row_sizes)(leaf, part) for leaf, part in parts]


def named_rows(leaf: NamedLeaf, values: np.ndarray) -> dict[str, Any]:
    """What is named, how often, and how much of it is true."""
    count = values.reshape(values.shape[0], -1).sum(1)
    said = np.flatnonzero(count)
    shown = said if said.size <= CLAIMS else np.sort(np.random.default_rng(0).choice(said, CLAIMS, replace=False))
    rows = [{"label": leaf.label(int(row)), "count": int(count[row]), **_own(leaf, row)} for row in shown]
    found = {"kind": "claims", "leaf": leaf.name, "noun": leaf.noun, "rows": rows, "said": int(said.size)}
    found |= {"of": int(count.size)}
    if leaf.own is not None:
        found |= {"true": int(leaf.own[said].sum()), "own": int(leaf.own.sum())}
    return found


def row_sizes(leaf: NamedLeaf, values: np.ndarray) -> dict[str, Any]:
    """The most prominent rows, and how well that alone separates the history's rows from the others."""
    flat = values.reshape(values.shape[0], -1) if values.ndim else values.reshape(1, 1)
    size, along = np.linalg.norm(flat, axis=1), main_direction(flat)
    order = np.argsort(-along, kind="stable")
    return {
        "kind": "sizes",
        "leaf": leaf.name,
        "noun": leaf.noun,
        "rows": [_row(leaf, int(row), along, size, flat, place < LISTED) for place, row in enumerate(order[:BARS])],
        "of": int(size.size),
        "width": int(flat.shape[1]),
        "zero": int((flat == 0).all(1).sum()),
        "own": None if leaf.own is None else int(leaf.own.sum()),
        "separation": separation(along, leaf.own),
    }


def main_direction(table: np.ndarray) -> np.ndarray:
    """How far each row lies along the direction that most rows share; the long tail points up.

    This is what an attacker would look at first: the gradient of a factorisation has rows w·p, all along the
    person's own vector p, and w is far from 0 for the items that were used. One column is its own direction.

    >>> main_direction(np.array([[3.0, -3.0], [0.1, -0.1], [-0.1, 0.1]])).round(2).tolist()
    [4.24, 0.14, -0.14]
    """
    table = table.astype(np.float64)
    if table.shape[1] == 1:
        return table[:, 0]
    along = table @ np.linalg.eigh(table.T @ table)[1][:, -1]
    return along if (along**3).sum() >= 0 else -along


def _row(
    leaf: NamedLeaf, row: int, along: np.ndarray, size: np.ndarray, flat: np.ndarray, listed: bool
) -> dict[str, Any]:
    numbers = {"size": _short(size[row]), "numbers": [_short(x) for x in flat[row, :FIRST]]} if listed else {}
    return {"label": leaf.label(row), "along": _short(along[row]), **_own(leaf, row), **numbers}


def separation(size: np.ndarray, own: np.ndarray | None) -> float | None:
    """How often a row of the history stands above one that is not: 1 is perfect separation, ½ is chance.

    >>> separation(np.array([3.0, 1.0, 2.0]), np.array([True, False, False]))
    1.0
    """
    if own is None or not 0 < own.sum() < own.size:
        return None
    mine, others = int(own.sum()), int((~own).sum())
    # Mann and Whitney: (Σ ranks of mine − m(m + 1)/2) / (m·n)
    return float((rankdata(size)[own].sum() - mine * (mine + 1) / 2) / (mine * others))


def sign_view(mechanism: Any, payload: Any, leaves: list[NamedLeaf]) -> dict[str, Any]:
    """The randomly drawn positions, and the sign at each; and the scale, where one is sent."""
    packed = payload["signs"] if isinstance(payload, dict) else payload
    starts = np.concatenate([[0], np.cumsum([leaf.size for leaf in leaves])])
    place, sign = (
        np.asarray(part) for part in sampled_signs.unpack_signs(jnp.asarray(packed), mechanism.parts, int(starts[-1]))
    )
    rows = []
    for at, said in zip(place[:CLAIMS].tolist(), sign.tolist()):
        which = int(np.searchsorted(starts, at, side="right")) - 1
        leaf = leaves[which]
        row, column = divmod(at - int(starts[which]), max(1, math.prod(leaf.shape[1:])))
        rows.append({"label": leaf.label(row), "column": column + 1, "sign": said, **_own(leaf, row)})
    scale = {"scale": _short(payload["scale"])} if isinstance(payload, dict) else {}
    names = ", ".join(leaf.name for leaf in leaves)
    return {"kind": "signs", "leaf": names, "rows": rows, "said": int(place.size), "of": int(starts[-1]), **scale}


def listed_history(population: Population, history: np.ndarray, most: int = 60) -> list[dict[str, Any]]:
    """Distinct items in order of first use, each with how often it was used."""
    items, first, times = np.unique(history, return_index=True, return_counts=True)
    order = np.argsort(first)[:most].tolist()
    return [{"label": name_of(population, int(items[at])), "times": int(times[at])} for at in order]


def _own(leaf: NamedLeaf, row: Any) -> dict[str, bool]:
    return {} if leaf.own is None else {"own": bool(leaf.own[row])}


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")
