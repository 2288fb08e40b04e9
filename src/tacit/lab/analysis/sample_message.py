"""Sample message: what one device sent, by the device's own code and secret, in bytes, and what can be read in it."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tacit.core.messages import pack, unpack
from tacit.lab.analysis.payload_views import listed_history, payload_views, update_views
from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import Job, chunk_size, cohort_slots, device_places, fold, wire_schema
from tacit.lab.simulation.replay import Replay
from tacit.privacy.sampler import build_sampler

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

SHOWN = 24  # bytes of the message written out


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
