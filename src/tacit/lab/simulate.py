"""Simulate: a whole federation on one machine, by the code that real devices run."""

import json
import math
import platform
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import tacit
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import PlanError, RunError
from tacit.lab import central
from tacit.lab.buckets import GRID, furnish, move_in
from tacit.lab.data import Population
from tacit.lab.debug import debug_round
from tacit.lab.engine import (
    CHUNK,
    Awake,
    Job,
    State,
    Tally,
    chunk_size,
    crew,
    one_round,
    scan_rounds,
    seats,
    shapes,
    wake,
    wire_schema,
)
from tacit.lab.progress import Bar
from tacit.lab.run import Run
from tacit.lab.shelf import complete
from tacit.plans import Plan, Stage
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.price import price
from tacit.privacy.sampler import Pooled, build_sampler
from tacit.record import Folder
from tacit.server import checkpoint
from tacit.server.round import trained
from tacit.server.rule import build_rule
from tacit.wire import schema_of

TINY = 64  # cohorts up to this size are scanned, many rounds in one program
_SCANNED = 256  # rounds in one scanned program
_INIT, _HOMES, _NOISE = 0, 1, 2  # what a key of the run is for

Evaluate = Callable[[Run], dict[str, float]]


def simulate(
    plan: Plan,
    population: Population,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    executor: Literal["fast", "debug"] = "fast",
    chunk: int = CHUNK,
    grid: Sequence[int] = GRID,
    evaluate: Evaluate | None = None,
    every: int = 0,
    quiet: bool | None = None,
    save_seconds: float = 30.0,
) -> Run:
    """Run a plan on a population.

    Args:
        plan: what to do.
        population: everybody's histories.
        seed: the same seed gives the same run, whatever the chunk size and the buckets, to rounding.
        out: a folder for the run; it can be resumed there.
        resume: go on where the folder ends.
        executor: `debug` runs one device at a time without jit, raises at the first fault and names the device.
        chunk: devices stepped at a time; speed only.
        grid: history lengths that share a program; speed only.
        evaluate: called with the run so far every `every` rounds and at the end; its numbers are recorded.
        every: 0 evaluates at the end only.
        quiet: no bar; by default there is one where somebody watches.
        save_seconds: how often to save the state, at least.
    """
    work = _Simulation(plan, population, seed, executor, chunk, tuple(grid), evaluate, every)
    folder = None if out is None else Folder(out)
    if folder is not None:
        work.attach(folder, resume, save_seconds)
    with Bar(plan.name, sum(stage.rounds for stage in plan.stages), quiet) as bar, _Interruptible() as interrupt:
        for number in range(len(plan.stages)):
            work.stage(number, bar, interrupt)
    return work.finish()


class _Interruptible:
    """Ctrl-C between rounds, not inside one: the state saved is always whole."""

    def __enter__(self) -> "_Interruptible":
        self.asked = False
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: Any) -> None:
        if self.asked:  # a second time: at once
            raise KeyboardInterrupt
        self.asked = True


class _Simulation:
    """The state of one run in progress."""

    def __init__(self, plan, population, seed, executor, chunk, grid, evaluate, every):
        if executor not in ("fast", "debug"):
            raise PlanError(f"executor must be 'fast' or 'debug', got {executor!r}.")
        self.plan, self.population, self.seed = complete(plan), population, int(seed)
        plan = self.plan
        self.executor, self.chunk = executor, chunk
        self.evaluate, self.every = evaluate, every
        root = jax.random.key(self.seed, impl=KEYS)
        self.keys = [jax.random.fold_in(root, purpose) for purpose in (_INIT, _HOMES, _NOISE)]
        self.claims = price(plan, len(population))
        self.methods = [build(stage, population.catalog) for stage in plan.stages]
        self.params = self._start()
        for stage in plan.stages:
            _check_trains(stage, self.params)
        self.buckets = furnish(self.keys[_HOMES], population, grid)
        self.folder, self.restored, self.done, self.rows = None, 0, 0, []
        self.rule_state: Any = ()

    def _start(self) -> dict:
        """Every leaf of every stage; the first stage that has a leaf starts it."""
        params: dict = {}
        for number, method in enumerate(self.methods):
            params = {**method.init(jax.random.fold_in(self.keys[_INIT], number)), **params}
        return params

    # ---- the run folder ----

    def attach(self, folder: Folder, resume: bool, save_seconds: float) -> None:
        """Begin a run folder, or find where it ends."""
        self.folder, self.save_seconds, self.saved_at = folder, save_seconds, time.monotonic()
        environment = self._environment()
        if not resume:
            claims = [{"stage": s + 1, **claim.to_dict()} for s, stage in enumerate(self.claims) for claim in stage]
            folder.begin(self.plan.to_toml(), environment, claims)
            return
        _same_run(folder, self.plan, environment)
        self.restored = folder.latest() or 0
        folder.rewind(self.restored)
        self.rows = folder.rows()

    def _environment(self) -> dict[str, Any]:
        return {
            "tacit": tacit.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "backend": jax.default_backend(),
            "seed": self.seed,
            "plan_digest": self.plan.digest,
            "population": {
                "devices": len(self.population),
                "events": int(self.population.items.size),
                "items": self.population.catalog.n_items,
                "digest": self.population.digest,
            },
        }

    def _save(self) -> None:
        if self.folder is not None and self.done:
            homes = [bucket.home for bucket in self.buckets]
            checkpoint.save(self.folder, self.done, self.params, self.rule_state, homes={"homes": homes})
            self.saved_at = time.monotonic()

    def _restore(self) -> None:
        assert self.folder is not None
        self.params, self.rule_state = checkpoint.load(self.folder, self.params, self.rule_state)
        homes = self.folder.restore("homes", {"homes": [bucket.home for bucket in self.buckets]})["homes"]
        self.buckets = [b._replace(home=jax.tree.map(jnp.asarray, h)) for b, h in zip(self.buckets, homes)]
        self.params, self.rule_state = jax.tree.map(jnp.asarray, (self.params, self.rule_state))
        self.done = self.restored

    # ---- a stage ----

    def stage(self, number: int, bar: Bar, interrupt: _Interruptible) -> None:
        """Run one stage, from its start or from where the folder ends."""
        stage, method = self.plan.stages[number], self.methods[number]
        sampler = build_sampler(stage.cohort)
        self.buckets = [move_in(method, number, self.population, bucket) for bucket in self.buckets]
        rule = build_rule(stage.server)
        self.rule_state = rule.init(trained(self.params, stage.trains))
        if isinstance(sampler, Pooled):
            self.params = {**self.params, **central.fit(stage.method, method, self.population)}
            return
        if stage.rounds == 0:
            return
        mechanism = build_mechanism(stage.privacy)
        job = Job(method, mechanism, rule, number, stage.trains, self._weights(number))
        self._check_update(job)
        start = sum(s.rounds for s in self.plan.stages[:number])
        if self.restored >= start + stage.rounds:
            if self.restored == start + stage.rounds:
                self._restore()
            return
        if self.restored > start:
            self._restore()
        _Rounds(self, job, stage, sampler, start).run(bar, interrupt)

    def _weights(self, number: int) -> int:
        """How many weights this method's reports carry."""
        method, bucket = self.methods[number], self.buckets[0]
        first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (bucket.home, bucket.own))
        shape = jax.eval_shape(
            lambda home, own: method.local(jax.random.key(0), self.params, home.local[str(number)], own)[2], *first
        )
        return shape.shape[0]

    def _check_update(self, job: Job) -> None:
        update, _ = shapes(job, self.params, self.buckets[0])
        if set(update) != set(job.trains):
            raise PlanError(
                f"Plan stage {job.stage + 1} trains {sorted(job.trains)}, but its method's update has {sorted(update)}; "
                "trains must name exactly those."
            )

    def run_so_far(self) -> Run:
        """What there is now, as a Run."""
        return Run(
            self.plan,
            self.population,
            self.methods[-1],
            len(self.methods) - 1,
            self.params,
            self.buckets,
            self.claims,
            list(self.rows),
            None if self.folder is None else self.folder.path,
        )

    def finish(self) -> Run:
        """Evaluate, record, and hand over."""
        run = self.run_so_far()
        if self.evaluate is not None:
            run.metrics = self.evaluate(run)
        if self.folder is not None:
            self._save()
            run.write(self.folder)
        return run


class _Rounds:
    """The rounds of one stage."""

    def __init__(self, work: _Simulation, job: Job, stage: Stage, sampler: Any, start: int):
        self.work, self.job, self.stage, self.sampler, self.start = work, job, stage, sampler, start
        devices = len(work.population)
        self.bucket_of, self.place_of = seats(work.buckets, devices)
        self.schema = wire_schema(job, work.params)
        self.bytes_down = schema_of(work.params, 0).bytes()
        share = sampler.size(devices) / devices
        self.chunks = [
            chunk_size(share * b.ids.size, b.length, _update_bytes(job, work.params, b), work.chunk)
            for b in work.buckets
        ]
        self.tiny = work.executor == "fast" and sampler.size(devices) <= TINY and stage.rounds > 1
        self.pool = None
        if work.executor == "fast" and not self.tiny and len(work.buckets) > 1:
            self.pool = crew(job, work.params, work.buckets[0], wake(np.zeros(1, int), self.chunks[0]))
        self.pending: list[tuple[int, list[int], Tally, dict[str, float]]] = []
        self.metric, self.clock = "", time.perf_counter()

    def run(self, bar: Bar, interrupt: _Interruptible) -> None:
        """Every round that is left; the bar reads one block behind, so that nothing waits for it."""
        work, first = self.work, self.work.done - self.start
        while first < self.stage.rounds:
            last = min(self.stage.rounds, first + (_SCANNED if self.tiny else 1))
            last = min(last, _next_multiple(first, work.every)) if work.every and work.evaluate else last
            state = State(work.params, work.rule_state, [b.home for b in work.buckets])
            state, asked, tally = self._block(first, last, state)
            work.params, work.rule_state = state.params, state.rule
            work.buckets = [b._replace(home=home) for b, home in zip(work.buckets, state.homes)]
            work.done, first = self.start + last, last
            self.pending.append((last, asked, tally, {}))
            self._note(bar, keep=1)
            self._pause(last, bar, interrupt)
        self._note(bar, keep=0)

    def _block(self, first: int, last: int, state: State) -> tuple[State, list[int], Tally]:
        work, job = self.work, self.job
        ids = [self.sampler.draw(work.seed, job.stage, r, len(work.population)) for r in range(first, last)]
        asked = [one.size for one in ids]
        noise = work.keys[_NOISE]
        owns = [b.own for b in work.buckets]
        if work.executor == "debug":
            state, tally = debug_round(job, noise, first, state, work.buckets, ids[0], work.population)
        elif self.tiny:
            rounds, live, awake = self._schedule(first, ids)
            state, tally = scan_rounds(job, noise, rounds, live, state, owns, awake)
        else:
            awake = [wake(self._places(ids[0], b), c) for b, c in enumerate(self.chunks)]
            state, tally = one_round(job, noise, first, state, owns, awake, self.pool)
        return state, asked, tally

    def _places(self, ids: np.ndarray, bucket: int) -> np.ndarray:
        return self.place_of[ids[self.bucket_of[ids] == bucket]]

    def _schedule(self, first: int, ids: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[Awake]]:
        """A block of rounds as arrays, always _SCANNED long: a shorter block ends in rounds that are not live."""
        spare = _SCANNED - len(ids)
        live = np.arange(_SCANNED) < len(ids)
        ids = ids + [np.zeros(0, int)] * spare
        awake = []
        for b, chunk in enumerate(self.chunks):
            places = [self._places(one, b) for one in ids]
            deepest = max(-(-p.size // chunk) for p in places)
            least = 1 << max(0, deepest - 1).bit_length()
            woken = [wake(p, chunk, least) for p in places]
            awake.append(Awake(np.stack([w.slots for w in woken]), np.stack([w.chunks for w in woken])))
        return np.arange(first, first + _SCANNED, dtype=np.int32), live, awake

    def _note(self, bar: Bar, keep: int) -> None:
        """Record blocks that have finished; reading a tally waits for its block, so the newest `keep` are left alone."""
        while len(self.pending) > keep:
            last, asked, tally, numbers = self.pending.pop(0)
            reports, rows = (np.atleast_1d(np.asarray(leaf))[: len(asked)] for leaf in tally)
            now = time.perf_counter()
            seconds, self.clock = (now - self.clock) / len(asked), now
            first = last - len(asked)
            made = [self._row(first + i, asked[i], int(reports[i]), int(rows[i]), seconds) for i in range(len(asked))]
            if numbers:
                made[-1]["metrics"] = numbers
            self.work.rows.extend(made)
            if self.work.folder is not None:
                self.work.folder.append(made)
            bar.show(self.start + last, asked[-1] / max(seconds, 1e-9), self.metric, self._spent(last))

    def _row(self, round: int, asked: int, reports: int, rows: int, seconds: float) -> dict[str, Any]:
        up = reports * self.schema.bytes(rows / max(reports, 1) if self.schema.has_rows else None)
        return {
            "done": self.start + round + 1,
            "stage": self.job.stage + 1,
            "round": round,
            "asked": asked,
            "reports": reports,
            "bytes_up": up,
            "bytes_down": asked * self.bytes_down,
            "seconds": seconds,
        }

    def _spent(self, rounds: int) -> float:
        exposure = self.sampler.exposure(rounds, len(self.work.population))
        return max((c.epsilon for c in self.job.mechanism.claim(exposure) if c.per == "run"), default=math.inf)

    def _pause(self, last: int, bar: Bar, interrupt: _Interruptible) -> None:
        """What happens between rounds: an evaluation, a checkpoint, an interruption."""
        work = self.work
        if work.evaluate is not None and work.every and last % work.every == 0:
            self._note(bar, keep=1)
            jax.block_until_ready(self.pending[-1][2])
            ended = time.perf_counter()
            numbers = work.evaluate(work.run_so_far())
            self.metric = "  ".join(f"{name} {value:.4f}" for name, value in numbers.items())
            self.pending[-1][3].update(numbers)
            self.clock += time.perf_counter() - ended  # an evaluation is not a round's time
        due = work.folder is not None and time.monotonic() - work.saved_at >= work.save_seconds
        if due or interrupt.asked:
            self._note(bar, keep=0)
            work._save()
        if interrupt.asked:
            raise KeyboardInterrupt


def _next_multiple(n: int, every: int) -> int:
    return (n // every + 1) * every


def _update_bytes(job: Job, params: dict, bucket: Any) -> int:
    update, report = shapes(job, params, bucket)
    leaves = jax.tree.leaves((update, report.payload))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def _check_trains(stage: Stage, params: dict) -> None:
    missing = [name for name in stage.trains if name not in params]
    if missing:
        raise PlanError(f"{stage.method}: trains names {missing[0]!r}, but the parameters are {sorted(params)}.")


def _same_run(folder: Folder, plan: Plan, environment: dict[str, Any]) -> None:
    before = json.loads(folder.read("environment.json"))
    for name in ("plan_digest", "seed", "population"):
        if before[name] != environment[name]:
            raise RunError(
                f"{folder.path} cannot be resumed: its {name} is {before[name]!r}, this run's is {environment[name]!r}."
            )
