"""Sample message: what one device sent, by the device's own code and secret, in bytes, and what can be read in it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report, pack, schema_of, unpack
from tacit.core.plan import Stage
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import build
from tacit.device.round import Home, step
from tacit.lab.analysis.payload_views import listed_history, payload_views, update_views
from tacit.lab.simulation.buckets import Bucket, prepare
from tacit.lab.simulation.engine import Job, chunk_size, fold, seats, wake, wire_schema
from tacit.privacy.sampler import build_sampler
from tacit.server.round import open_round
from tacit.server.rule import build_rule

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

SHOWN = 24  # bytes of the message written out


class _Turn(NamedTuple):
    """One round of one stage, to be played again."""

    job: Job
    stage: Stage
    round: int
    buckets: list[Bucket]


def sample_message(run: "Run") -> dict[str, Any]:
    """What the device of median history sent in the last round that had reports, as plain values.

    The round is replayed with the parameters the run ended with: where a stage has one round, this is exactly the report
    that was sent. The device is anonymous, but its history is a person's: do not publish it.
    """
    senders = [number for number, stage in enumerate(run.price.stages) if stage.mechanism is not None]
    if senders and not run.price.raw:  # where raw data is seen, a message reveals nothing more
        return _sent(run, _turn(run, senders[-1]))
    kind, size = ("raw", None) if run.price.raw else ("nothing", 0)
    return {"kind": kind, "bytes": size, **_history(run, _median_device(run, np.arange(len(run.population))))}


def _turn(run: "Run", number: int) -> _Turn:
    stage, mechanism = run.plan.stages[number], run.price.stages[number].mechanism
    assert mechanism is not None
    method = build(stage, run.population.catalog)
    buckets = run.buckets
    if number != run.stage:  # what a later stage made of the histories is not what this one needs
        buckets = [b._replace(own=prepare(method, run.population, b.ids, b.length)) for b in buckets]
    first = jax.tree.map(lambda leaf: leaf[0], (buckets[0].home.local[str(number)], buckets[0].own))
    _, update, weight = jax.eval_shape(method.local, jax.random.key(0), run.params, *first)
    sent = schema_of(jax.eval_shape(dense_tree, update), weight.shape[0])
    job = Job(method, mechanism, build_rule(stage.server), number, stage.trains, weight.shape[0], sent)
    return _Turn(job, stage, stage.rounds - 1, [b._replace(home=_rewound(b.home, number)) for b in buckets])


def _rewound(home: Home, number: int) -> Home:
    """As before its messages were spent, or the gate would stay shut."""
    spent = {**home.spent, str(number): jnp.zeros_like(home.spent[str(number)])}
    return home._replace(spent=spent)


def _sent(run: "Run", turn: _Turn) -> dict[str, Any]:
    device = _median_device(run, _senders(run, turn.job.stage))
    bucket_of, place_of = seats(turn.buckets, len(run.population))
    bucket = turn.buckets[bucket_of[device]]
    home, own = jax.tree.map(lambda leaf: leaf[place_of[device]], (bucket.home, bucket.own))
    _, report = _step(turn.job, _opened(run, turn), home, own)
    schema = wire_schema(turn.job, run.params)
    data = pack(schema, report)
    heard, like = unpack(schema, data), _like(turn.job)
    history = _items(run, device)
    return {
        "kind": "report",
        "stage": turn.job.stage + 1,
        "round": turn.round + 1,
        "method": turn.stage.method,
        "mechanism": turn.stage.privacy["mechanism"],
        "sent": bool(heard.sent),
        "exact": turn.stage.rounds == 1,
        "bytes": len(data),
        "head": data[:SHOWN].hex(" "),
        "weight": np.asarray(heard.weight).tolist() if turn.job.mechanism.shows_weight else None,
        "views": payload_views(turn.job.mechanism, heard.payload, like, run.population, history),
        "released": _released(run, turn, history),
        **_history(run, device),
    }


def _like(job: Job) -> dict:
    """What an update is shaped like; a rule may make something else of it."""
    assert job.update is not None
    return job.update.like()


@jax.jit
def _step(job: Job, broadcast: Any, home: Home, own: Any) -> tuple[Home, Report]:
    return step(job.method, job.mechanism, job.stage, broadcast, home, own)


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


def _released(run: "Run", turn: _Turn, history: np.ndarray) -> dict[str, Any] | None:
    """Where the server adds the noise: the round's sum as it leaves the server, and of how many reports it is."""
    mechanism = turn.job.mechanism
    if not mechanism.always_releases:
        return None
    seed, devices = int(run.environment.get("seed", 0)), len(run.population)
    asked = build_sampler(turn.stage.cohort).draw(seed, turn.job.stage, turn.round, devices)
    total, n = _total(run, turn, asked)
    sums, _ = mechanism.estimate(jax.random.key(seed), total, n, run.dials(turn.job.stage))
    like = _like(turn.job)
    first = jax.tree.map(lambda leaf: leaf[0], sums)  # the sum for the first weight
    return {"reports": int(n), "views": update_views(first, like, run.population, history)}


def _total(run: "Run", turn: _Turn, asked: np.ndarray) -> Any:
    bucket_of, place_of = seats(turn.buckets, len(run.population))
    size = int(wire_schema(turn.job, run.params).bytes())
    awake = []
    for b, bucket in enumerate(turn.buckets):
        places = place_of[asked[bucket_of[asked] == b]]
        awake.append(wake(places, chunk_size(places.size, bucket.length, size)))
    homes, owns = ([getattr(bucket, part) for bucket in turn.buckets] for part in ("home", "own"))
    return jax.jit(fold)(turn.job, _opened(run, turn), homes, owns, awake)[1]


def _opened(run: "Run", turn: _Turn) -> Broadcast:
    return open_round(turn.round, run.params, run.dials(turn.job.stage))
