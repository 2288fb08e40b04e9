"""The rounds of one stage of a federation: whom each wakes, how many at a time, and which of the engine's ways plays them."""

import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from tacit.core.messages import schema_of
from tacit.core.plan import Stage
from tacit.device.method import Method
from tacit.lab.data import Population
from tacit.lab.simulation.buckets import Bucket, power
from tacit.lab.simulation.debug import debug_round
from tacit.lab.simulation.engine import (
    Awake,
    Job,
    Tally,
    chunk_size,
    kind,
    scan_rounds,
    seats,
    shapes,
    wake,
    wire_schema,
)
from tacit.lab.simulation.thread_pool import hands, hire, one_round
from tacit.privacy.sampler import All, build_sampler

if TYPE_CHECKING:
    from tacit.lab.simulation.federation import Federation

TINY = 64  # cohorts up to this size are scanned, many rounds in one program
LIGHT = 1 << 15  # so are rounds of everybody that read up to so many events: sharing them out would take longer
SCANNED = 256  # rounds in one scanned program
SCANNED_EVENTS = {"cpu": 1 << 23, "gpu": 1 << 28}  # and events in one: about half a second, for the bar and for Ctrl-C


class Rounds:
    """The rounds of one stage of a federation."""

    def __init__(self, federation: "Federation", job: Job, stage: Stage):
        self.federation, self.job, self.stage = federation, job, stage
        self.sampler = build_sampler(stage.cohort)
        self._spent: dict[int, float] = {}  # not a cache of the class, which would keep everybody's homes for good
        devices, buckets = len(federation.population), federation.buckets
        self._bucket_of, self._place_of = seats(buckets, devices)
        self.schema = wire_schema(job, federation.params)
        federation.expect(self.schema)
        self.bytes_down = schema_of((federation.params, federation.memory.dials), 0).bytes()
        share = self.sampler.size(devices) / devices
        self._chunks = [self._chunk(bucket, share) for bucket in buckets]
        # Room for the chunks a bucket will need in all but very unlucky rounds: a shape that grows is compiled again.
        self._room = [_room(share * b.ids.size, b.ids.size, chunk) for b, chunk in zip(buckets, self._chunks)]
        fast = federation.executor == "fast"
        self._block = at_once(stage, job.method, federation.population) if fast else 1
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
        rounds = min(self.stage.rounds, -(-rounds // step) * step)
        if rounds not in self._spent:
            self._spent[rounds] = self._cost(rounds)
        return self._spent[rounds]

    def _cost(self, rounds: int) -> float:
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


def tiny(stage: Stage, devices: int) -> bool:
    """Whether the rounds of a stage are so small that many are scanned in one program."""
    return stage.rounds > 1 and build_sampler(stage.cohort).size(devices) <= TINY


def at_once(stage: Stage, method: Method, people: Population) -> int:
    """How many rounds of a stage are played in one program."""
    if tiny(stage, len(people)):
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


def _update_bytes(job: Job, params: dict, bucket: Bucket) -> int:
    leaves = jax.tree.leaves(shapes(job, params, bucket))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
