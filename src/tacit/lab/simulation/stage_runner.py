"""The rounds of one stage: the cohort of each, how many devices are stepped at a time, and which executor plays them."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from tacit.core.messages import Report, schema_of
from tacit.core.plan import Stage
from tacit.device.batching import power_of_two
from tacit.device.method import Method
from tacit.device.round import Home, seeded_noise_key, step
from tacit.lab.data import Population
from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.debug import debug_round
from tacit.lab.simulation.engine import (
    CHUNK,
    CohortSlots,
    Job,
    RoundTally,
    State,
    backend,
    chunk_size,
    cohort_slots,
    device_places,
    scan_rounds,
    wire_schema,
)
from tacit.lab.simulation.thread_pool import assign_teams, play_round, worker_count
from tacit.privacy.sampler import All, build_sampler
from tacit.server.round import open_round

TINY = 64  # cohorts up to this size are scanned, many rounds in one program
LIGHT = 1 << 15  # so are rounds of all devices that read up to so many events: sharing them out would take longer
SCANNED = 256  # rounds in one scanned program
SCANNED_EVENTS = {"cpu": 1 << 23, "gpu": 1 << 28}  # and events in one: about half a second, for progress and Ctrl-C


class RoundOptions(NamedTuple):
    """How the rounds of a stage are played."""

    cohort_seed: int
    noise: jax.Array  # the root key of the server's noise
    debug: bool = False  # one device at a time
    chunk: int = CHUNK  # the most devices stepped at a time


class Rounds:
    """The rounds of one stage: `play` takes the state of a federation and returns the state after some rounds."""

    def __init__(
        self, job: Job, stage: Stage, population: Population, buckets: list[Bucket], state: State, options: RoundOptions
    ):
        self.job, self.stage, self.population, self.options = job, stage, population, options
        self.sampler = build_sampler(stage.cohort)
        self.schema = wire_schema(job, state.params)
        self.bytes_down = schema_of((state.params, state.memory.public_state), 0).bytes()
        self._spent: dict[int, float] = {}  # not a cache of the class, which would keep all homes alive
        self._buckets = [bucket._replace(home=None) for bucket in buckets]  # homes are in the state
        self._bucket_of, self._place_of = device_places(buckets, len(population))
        share = self.sampler.size(len(population)) / len(population)
        self._chunks = [self._chunk(bucket, share, state.params) for bucket in buckets]
        # Room for the chunks a bucket will need in all but very unlucky rounds: a shape that grows is compiled again.
        self._room = [_room(share * b.ids.size, b.ids.size, chunk) for b, chunk in zip(buckets, self._chunks)]
        self._block = 1 if options.debug else rounds_per_program(stage, job.method, population)
        threaded = not options.debug and self._block == 1
        self._teams = assign_teams(job, state.params, buckets) if threaded else None

    def _chunk(self, bucket: Bucket, share: float, params: dict) -> int:
        """How many devices of a bucket are stepped at a time; where all are, none is copied, and only reading counts."""
        reads = self.job.method.reads
        events = bucket.length if reads is None else min(bucket.length, reads) if share < 1 else 1
        size = _update_bytes(self.job, params, bucket)
        return chunk_size(share * bucket.ids.size, events, size, self.options.chunk, exact=share == 1)

    @property
    def block(self) -> int:
        """How many rounds are played at a time."""
        return self._block

    def play(self, state: State, first: int, last: int) -> tuple[State, list[int], RoundTally]:
        """Play rounds first .. last − 1, at most a block: the state after them, the size of each cohort, and the counts."""
        job, (seed, noise, debug, _), devices = self.job, self.options, len(self.population)
        ids = [self.sampler.draw(seed, job.stage, number, devices) for number in range(first, last)]
        owns = [bucket.own for bucket in self._buckets]
        if debug:
            made = debug_round(job, noise, first, state, self._buckets, ids[0], self.population)
        elif self._block > 1:
            made = scan_rounds(job, noise, first, len(ids), self._block, self._schedule(ids), state, owns)
        else:
            assert self._teams is not None
            made = play_round(job, noise, first, state, owns, self._slots(ids[0]), self._teams)
        return made[0], [one.size for one in ids], made[1]

    def spent(self, rounds: int) -> float:
        """The most that so many rounds cost a device, in steps of a tenth of the stage: accounting takes its time."""
        step = -(-self.stage.rounds // 10)
        rounds = min(self.stage.rounds, -(-rounds // step) * step)
        if rounds not in self._spent:
            exposure = self.sampler.exposure(rounds, len(self.population))
            claims = self.job.mechanism.claim(exposure)
            self._spent[rounds] = max(claim.epsilon for claim in claims if claim.per == "run")
        return self._spent[rounds]

    def end(self) -> None:
        """Stop the threads."""
        if self._teams is not None and self._teams.pool is not None:
            self._teams.pool.shutdown()

    def _slots(self, ids: np.ndarray) -> list[CohortSlots]:
        """The places of a cohort, bucket by bucket."""
        cohort = []
        everyone = ids.size == len(self.population)
        for b, chunk in enumerate(self._chunks):
            if everyone and chunk == self._buckets[b].ids.size:  # nothing to look up, nothing to copy
                cohort.append(CohortSlots(None, np.int32(1)))
                continue
            places = self._place_of[ids[self._bucket_of[ids] == b]]
            self._room[b] = max(self._room[b], power_of_two(-(-places.size // chunk)))
            cohort.append(cohort_slots(places, chunk, self._room[b]))
        return cohort

    def _schedule(self, ids: list[np.ndarray]) -> list[CohortSlots]:
        """The places of each round's cohort in a block; where that is all devices, once for all rounds."""
        if isinstance(self.sampler, All):
            return self._slots(ids[0])
        turn, drawn = np.repeat(np.arange(len(ids)), [one.size for one in ids]), np.concatenate(ids)
        cohort = []
        for b in range(len(self._chunks)):
            here = self._bucket_of[drawn] == b
            cohort.append(self._schedule_bucket(b, turn[here], self._place_of[drawn[here]]))
        return cohort

    def _schedule_bucket(self, b: int, turn: np.ndarray, places: np.ndarray) -> CohortSlots:
        """The places in a bucket of each round's cohort; `turn` is the round of each place, ascending."""
        chunk, counts = self._chunks[b], np.bincount(turn, minlength=self._block)
        used = -(-counts // chunk)
        self._room[b] = max(self._room[b], power_of_two(int(used.max())))
        slots = np.full((self._block, self._room[b] * chunk), -1, np.int32)
        slots[turn, np.arange(turn.size) - (np.cumsum(counts) - counts)[turn]] = places
        return CohortSlots(slots.reshape(self._block, -1, chunk), used.astype(np.int32))


def has_tiny_cohorts(stage: Stage, devices: int) -> bool:
    """Whether the cohorts of a stage are so small that many rounds are scanned in one program."""
    return stage.rounds > 1 and build_sampler(stage.cohort).size(devices) <= TINY


def rounds_per_program(stage: Stage, method: Method, population: Population) -> int:
    """How many rounds of a stage are played in one program."""
    if has_tiny_cohorts(stage, len(population)):
        return SCANNED
    if stage.rounds < 2 or not isinstance(build_sampler(stage.cohort), All):
        return 1
    events = int(np.minimum(population.lengths, method.reads or population.lengths).sum())
    if events > LIGHT and worker_count() > 1:
        return 1
    return max(1, min(SCANNED, SCANNED_EVENTS[backend()] // max(1, events)))


def _room(expected: float, devices: int, chunk: int) -> int:
    """Chunks for the expected number of devices and five standard deviations more."""
    return power_of_two(-(-min(devices, math.ceil(expected + 5 * math.sqrt(expected))) // chunk))


def _update_bytes(job: Job, params: dict, bucket: Bucket) -> int:
    """Bytes of one device's update and report in memory; nothing is computed."""

    def one(home: Home, own: Any) -> tuple[Any, Report]:
        broadcast = open_round(0, params)
        update = job.method.local(jax.random.key(0), params, home.local[str(job.stage)], own)[1]
        noise = seeded_noise_key(home, job.stage, 0)
        return update, step(job.method, job.mechanism, job.stage, broadcast, home, own, noise)[1]

    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (bucket.home, bucket.own))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(one, *first)))
