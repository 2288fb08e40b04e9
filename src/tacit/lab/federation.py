"""A federation in memory: everybody's homes, the server's parameters, and the rounds between them.

It knows the plan and the people; it knows no folder, no bar and no clock. `lab/simulate` drives it.
"""

import math
import secrets
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.ledgers import Ledgers
from tacit.device.method import Method, build
from tacit.device.round import KEYS, Home
from tacit.errors import PlanError
from tacit.lab import central, thirdparty
from tacit.lab.buckets import GRID, Bucket, furnish, homes_of, move_homes, move_in, power, worth
from tacit.lab.crew import hands, hire, one_round
from tacit.lab.data import Population
from tacit.lab.debug import debug_round
from tacit.lab.engine import (
    CHUNK,
    Awake,
    Job,
    State,
    Tally,
    chunk_size,
    kind,
    scan_rounds,
    seats,
    shapes,
    wake,
    wire_schema,
)
from tacit.lab.shelf import complete
from tacit.plans import Plan, Stage
from tacit.privacy.budget import Budget, Entry
from tacit.privacy.price import Price, page_of, price
from tacit.privacy.sampler import All, Helped, Pooled, build_sampler
from tacit.rows import dense_tree
from tacit.server.round import Memory, begin, by_rows
from tacit.server.rule import build_rule
from tacit.wire import schema_of

TINY = 64  # cohorts up to this size are scanned, many rounds in one program
LIGHT = 1 << 15  # so are rounds of everybody that read up to so many events: sharing them out would take longer
SCANNED = 256  # rounds in one scanned program
SCANNED_EVENTS = {"cpu": 1 << 23, "gpu": 1 << 28}  # and events in one: about half a second, for the bar and for Ctrl-C
COPIED = 0.02  # what a padded event costs that is copied and not read, against one that is
_INIT, _HOMES, _NOISE = 0, 1, 2  # what a key of the run is for: no two purposes share one

Executor = Literal["fast", "debug"]


class Start(NamedTuple):
    """Where a run begins that goes on from an earlier one."""

    params: dict
    homes: Home  # of the earlier run, in the order of its devices
    place: np.ndarray  # for every device now, its place then; -1: it is new


class Federation:
    """The people and the server of one run."""

    def __init__(
        self,
        plan: Plan,
        population: Population,
        *,
        seed: int = 0,
        executor: Executor = "fast",
        chunk: int = CHUNK,
        grid: Sequence[int] = GRID,
        budget: Budget | None = None,
        ledgers: Ledgers | None = None,
        now: float | None = None,
        start: Start | None = None,
    ):
        if executor not in ("fast", "debug"):
            raise PlanError(f"executor must be 'fast' or 'debug', got {executor!r}.")
        self.plan, self.population, self.seed = complete(plan), population, int(seed)
        self.executor, self.chunk = executor, chunk
        homes, self.noise = run_keys(self.seed)
        self.methods = [build(stage, population.catalog) for stage in self.plan.stages]
        for stage, method in zip(self.plan.stages, self.methods):
            if getattr(method, "needs_times", False):
                population.require_times(stage.method)
        self.start = start
        self.params = start_params(start_key(self.seed), self.methods)
        if start is not None:
            self.params = {name: _grown(leaf, start.params.get(name)) for name, leaf in self.params.items()}
        for stage in self.plan.stages:
            _check_trains(stage, self.params)
        self.price = price(self.plan, len(population))
        names = population.device_names
        self.ledgers = Ledgers(names) if ledgers is None else ledgers.follow(names)
        self.budget, self.now = budget, time.time() if now is None else now
        self.run = secrets.token_hex(8)  # the run's name in the ledgers
        self.sizes: dict[int, int] = {}  # bytes of one message, stage by stage
        # A later run of the same people must not draw the same noise again, at home or at the server, nor the same
        # cohorts, even with the same seed.
        earlier = len(self.ledgers.pages)
        if earlier:
            homes, self.noise = (jax.random.fold_in(key, earlier) for key in (homes, self.noise))
        self.draws = self.seed + (earlier << 64)  # the seed of the cohorts
        self.buckets = furnish(homes, population, grid, *self._layout())
        self.memory = Memory((), {})

    def _layout(self) -> tuple[int, float]:
        """How many hands buckets are cut for, and what one bucket less is worth.

        Scanned rounds are played by one hand. Rounds of a few devices gather those alone: padding costs them nothing.
        """
        plan, people = self.plan, self.population
        if all(_tiny(stage, len(people)) for stage in plan.stages):
            return 1, worth(0.0)
        scanned = all(_block(*one, people) > 1 for one in zip(plan.stages, self.methods))
        read = all(method.reads is None for method in self.methods)
        return 1 if scanned else hands(), worth(_turns(plan, len(people)), 1.0 if read else COPIED)

    def begin(self, number: int) -> "Rounds | None":
        """Everybody enters a stage; its rounds, or None where it has none."""
        stage, method = self.plan.stages[number], self.methods[number]
        allowed = self._allowances(number)
        self.buckets = [move_in(method, number, self.population, bucket, allowed) for bucket in self.buckets]
        self._remember(number)
        rule = build_rule(stage.server)
        self.memory = begin(self.price.stages[number].mechanism, rule, stage.trains, self.params)
        sampler = build_sampler(stage.cohort)
        if isinstance(sampler, Pooled):
            fit = thirdparty.fit if isinstance(sampler, Helped) else central.fit
            self.params = {**self.params, **fit(stage.method, method, self.population)}
            return None
        if stage.rounds == 0:
            return None
        job = job_of(stage, number, method, self.price, self.params, self.buckets[-1])
        return Rounds(self, job, stage)

    def _remember(self, number: int) -> None:
        """People who were there before keep their private state, where it still has the same shape."""
        earlier = None if self.start is None else self.start.homes.local.get(str(number))
        if self.start is None or earlier is None:
            return
        homes, place = homes_of(self.buckets), self.start.place
        local = jax.tree.map(lambda new, old: _kept(new, old, place), homes.local[str(number)], earlier)
        self.buckets = move_homes(self.buckets, homes._replace(local={**homes.local, str(number): local}))

    def _allowances(self, number: int) -> np.ndarray | None:
        """How many messages of a stage each device's budget covers; None where nobody has one."""
        stage = self.price.stages[number]
        if self.budget is None or stage.mechanism is None:
            return None
        return self.ledgers_now(number).allowances(self._page(number, 0), stage.messages, self.budget)

    def ledgers_now(self, stages: int | None = None) -> Ledgers:
        """Everybody's ledgers after so many stages of this run (all, by default)."""
        ledgers, homes = self.ledgers, homes_of(self.buckets)
        for number, size in sorted(self.sizes.items()):
            if stages is None or number < stages:
                sent, allowed = homes.spent[str(number)], homes.allowance.get(str(number))
                absent = ~build_sampler(self.plan.stages[number].cohort).reach(len(self.population))
                absent |= False if allowed is None else np.asarray(allowed) == 0  # who may send nothing is not there
                ledgers = ledgers.write(self._page(number, size), np.where(absent, -1, np.asarray(sent)))
        return ledgers

    def _page(self, number: int, size: int) -> Entry:
        return page_of(self.price.stages[number], self.plan.digest, self.run, number, self.now, size)

    def keep(self, state: State) -> None:
        """Take over what a round left."""
        self.params, self.memory = state.params, state.memory
        self.buckets = [bucket._replace(home=home) for bucket, home in zip(self.buckets, state.homes)]

    @property
    def state(self) -> State:
        """Everything a round changes, as arrays."""
        return State(self.params, self.memory, [bucket.home for bucket in self.buckets])


class Rounds:
    """The rounds of one stage of a federation."""

    def __init__(self, federation: Federation, job: Job, stage: Stage):
        self.federation, self.job, self.stage = federation, job, stage
        self.sampler = build_sampler(stage.cohort)
        devices, buckets = len(federation.population), federation.buckets
        self._bucket_of, self._place_of = seats(buckets, devices)
        self.schema = wire_schema(job, federation.params)
        federation.sizes[job.stage] = math.ceil(self.schema.bytes())
        self.bytes_down = schema_of((federation.params, federation.memory.dials), 0).bytes()
        share = self.sampler.size(devices) / devices
        self._chunks = [self._chunk(bucket, share) for bucket in buckets]
        # Room for the chunks a bucket will need in all but very unlucky rounds: a shape that grows is compiled again.
        self._room = [_room(share * b.ids.size, b.ids.size, chunk) for b, chunk in zip(buckets, self._chunks)]
        fast = federation.executor == "fast"
        self._block = _block(stage, job.method, federation.population) if fast else 1
        self._crew = hire(job, federation.params, buckets) if fast and self._block == 1 else None

    def _chunk(self, bucket: Bucket, share: float) -> int:
        """How many devices of a bucket are stepped at a time; where all are, nobody is copied, and reading is what counts."""
        job, federation, reads = self.job, self.federation, self.job.method.reads
        events = bucket.length if reads is None else min(bucket.length, reads) if share < 1 else 1
        size = _update_bytes(job, federation.params, bucket)
        return chunk_size(share * bucket.ids.size, events, size, federation.chunk, exact=share == 1)

    @property
    def block(self) -> int:
        """How many rounds are played at a time."""
        return self._block

    def play(self, first: int, last: int) -> tuple[list[int], Tally]:
        """Play rounds first .. last − 1 (at most a block): how many devices each asked, and what came of it."""
        federation, job = self.federation, self.job
        ids = [
            self.sampler.draw(federation.draws, job.stage, r, len(federation.population)) for r in range(first, last)
        ]
        owns, noise = [bucket.own for bucket in federation.buckets], federation.noise
        if federation.executor == "debug":
            made = debug_round(job, noise, first, federation.state, federation.buckets, ids[0], federation.population)
        elif self._block > 1:
            awake = self._schedule(ids)
            made = scan_rounds(job, noise, first, len(ids), self._block, awake, federation.state, owns)
        else:
            assert self._crew is not None
            made = one_round(job, noise, first, federation.state, owns, self._wake(ids[0]), self._crew)
        federation.keep(made[0])
        return [one.size for one in ids], made[1]

    def spent(self, rounds: int) -> float:
        """The most that so many rounds cost a device, in steps of a tenth of the stage: accounting takes its time."""
        step = -(-self.stage.rounds // 10)
        return self._spent(min(self.stage.rounds, -(-rounds // step) * step))

    @cache  # noqa: B019
    def _spent(self, rounds: int) -> float:
        exposure = self.sampler.exposure(rounds, len(self.federation.population))
        return max(claim.epsilon for claim in self.job.mechanism.claim(exposure) if claim.per == "run")

    def end(self) -> None:
        """Send the threads home."""
        if self._crew is not None and self._crew.pool is not None:
            self._crew.pool.shutdown()

    def _wake(self, ids: np.ndarray) -> list[Awake]:
        """The devices asked, by bucket and place."""
        awake = []
        everybody = ids.size == len(self.federation.population)
        for b, chunk in enumerate(self._chunks):
            if everybody and chunk == self.federation.buckets[b].ids.size:  # nobody to look up, nothing to copy
                awake.append(Awake(None, np.int32(1)))
                continue
            places = self._place_of[ids[self._bucket_of[ids] == b]]
            self._room[b] = max(self._room[b], power(-(-places.size // chunk)))
            awake.append(wake(places, chunk, self._room[b]))
        return awake

    def _schedule(self, ids: list[np.ndarray]) -> list[Awake]:
        """Whom each round of a block wakes; where that is everybody, once for all rounds."""
        if isinstance(self.sampler, All):
            return self._wake(ids[0])
        turn, who = np.repeat(np.arange(len(ids)), [one.size for one in ids]), np.concatenate(ids)
        awake = []
        for b in range(len(self._chunks)):
            mine = self._bucket_of[who] == b
            awake.append(self._turns_of(b, turn[mine], self._place_of[who[mine]]))
        return awake

    def _turns_of(self, b: int, turn: np.ndarray, places: np.ndarray) -> Awake:
        """Whom of a bucket each round of a block wakes; `turn` says the round, in order."""
        chunk, counts = self._chunks[b], np.bincount(turn, minlength=self._block)
        used = -(-counts // chunk)
        self._room[b] = max(self._room[b], power(int(used.max())))
        slots = np.full((self._block, self._room[b] * chunk), -1, np.int32)
        slots[turn, np.arange(turn.size) - (np.cumsum(counts) - counts)[turn]] = places
        return Awake(slots.reshape(self._block, -1, chunk), used.astype(np.int32))


def _grown(new: jax.Array, old: Any) -> jax.Array:
    """A fresh leaf with the learned one in its corner: what is new starts as it always does."""
    if old is None or old.ndim != new.ndim or any(a > b for a, b in zip(old.shape, new.shape)):
        return new
    return new.at[tuple(slice(0, size) for size in old.shape)].set(jnp.asarray(old, new.dtype))


def _kept(new: np.ndarray, old: np.ndarray, place: np.ndarray) -> np.ndarray:
    if new.shape[1:] != old.shape[1:]:
        return new
    known = (place >= 0).reshape((-1,) + (1,) * (new.ndim - 1))
    return np.where(known, np.asarray(old)[np.maximum(place, 0)], new)


def _tiny(stage: Stage, devices: int) -> bool:
    """Whether the rounds of a stage are so small that many are scanned in one program."""
    return stage.rounds > 1 and build_sampler(stage.cohort).size(devices) <= TINY


def _block(stage: Stage, method: Method, people: Population) -> int:
    """How many rounds of a stage are played in one program."""
    if _tiny(stage, len(people)):
        return SCANNED
    if stage.rounds < 2 or not isinstance(build_sampler(stage.cohort), All):
        return 1
    events = int(np.minimum(people.lengths, method.reads or people.lengths).sum())
    if events > LIGHT and hands() > 1:
        return 1
    return max(1, min(SCANNED, SCANNED_EVENTS[kind()] // max(1, events)))


def _room(expected: float, devices: int, chunk: int) -> int:
    """Chunks for the expected number of devices and five standard deviations more."""
    return power(-(-min(devices, math.ceil(expected + 5 * math.sqrt(expected))) // chunk))


def _turns(plan: Plan, devices: int) -> float:
    """How often a device will be awake over the run, on average."""
    return sum(stage.rounds * build_sampler(stage.cohort).size(devices) / devices for stage in plan.stages)


def start_key(seed: Any) -> jax.Array:
    """The key that a run of this seed makes its start parameters with."""
    return jax.random.fold_in(jax.random.key(seed, impl=KEYS), _INIT)


def run_keys(seed: Any) -> tuple[jax.Array, jax.Array]:
    """The keys of a run of this seed from which homes have their secrets, and the server its noise."""
    root = jax.random.key(seed, impl=KEYS)
    return jax.random.fold_in(root, _HOMES), jax.random.fold_in(root, _NOISE)


def start_params(key: jax.Array, methods: list[Method]) -> dict:
    """Every leaf of every stage; the first stage that has a leaf starts it."""
    params: dict = {}
    for number, method in enumerate(methods):
        made = method.init(jax.random.fold_in(key, number))
        for name in made:
            if name in params and made[name].shape != params[name].shape:
                raise PlanError(
                    f"Plan stage {number + 1} goes on with {name!r} of an earlier stage and must have it in the same shape, "
                    f"{params[name].shape}, got {made[name].shape}; set the same sizes, such as hyper.dim."
                )
        params = {**made, **params}
    return jax.tree.map(jnp.asarray, params)


def _check_trains(stage: Stage, params: dict) -> None:
    for name in stage.trains:
        if name not in params:
            raise PlanError(f"{stage.method}: trains names {name!r}, but the parameters are {sorted(params)}.")


def job_of(stage: Stage, number: int, method: Method, cost: Price, params: dict, bucket: Bucket) -> Job:
    """What the rounds of a stage need that no round changes; the bucket says what an update looks like."""
    rule, mechanism = build_rule(stage.server), cost.stages[number].mechanism
    assert mechanism is not None
    weights, update = shape_of_update(method, number, params, bucket)
    if rule.moves_what_is_sent and set(update) != set(stage.trains):
        raise PlanError(
            f"Plan stage {number + 1} trains {sorted(stage.trains)}, but its method's update has {sorted(update)}; "
            "trains must name exactly those."
        )
    sent = schema_of(jax.eval_shape(dense_tree, update), weights)
    few = by_rows(mechanism, rule, update, build_sampler(stage.cohort).size(cost.devices))
    return Job(method, mechanism, rule, number, stage.trains, weights, sent, few)


def shape_of_update(method: Method, stage: int, params: dict, bucket: Bucket) -> tuple[int, dict]:
    """How many weights a report carries, and the shapes of the update, without running anything."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (bucket.home, bucket.own))
    key = jax.random.key(0, impl=KEYS)
    _, update, weight = jax.eval_shape(lambda home, own: method.local(key, params, home.local[str(stage)], own), *one)
    return weight.shape[0], update


def _update_bytes(job: Job, params: dict, bucket: Bucket) -> int:
    leaves = jax.tree.leaves(shapes(job, params, bucket))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
