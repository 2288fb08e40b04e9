"""Simulate: a whole federation on one machine, by the code that real devices run."""

import json
import platform
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tacit
from tacit.device.ledgers import Ledgers
from tacit.errors import RunError
from tacit.lab.buckets import GRID, homes_of, move_homes
from tacit.lab.data import Population
from tacit.lab.data.datasets import as_population
from tacit.lab.engine import CHUNK, Tally
from tacit.lab.federation import Executor, Federation, Start
from tacit.lab.outlook import warn
from tacit.lab.progress import Bar
from tacit.lab.protocol import Answers, Protocol, load_protocol
from tacit.lab.rounds import Rounds
from tacit.lab.run import Run
from tacit.lab.shelf import choose
from tacit.plans import Plan
from tacit.privacy.budget import Budget
from tacit.record import Folder, plain
from tacit.server import checkpoint

Evaluate = Callable[[Run], dict[str, float]]


def simulate(
    plan: Plan | str | Path,
    log: Any,
    *,
    epsilon: float | None = None,
    settings: Mapping[str, Any] | None = None,
    protocol: str | Protocol | None = None,
    repeats: str | None = None,
    ties: str = "file",
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    after: Run | str | Path | None = None,
    evaluate: Evaluate | None = None,
    every: int = 0,
    quiet: bool | None = None,
    executor: Executor = "fast",
    chunk: int = CHUNK,
    grid: Sequence[int] = GRID,
    save_seconds: float = 30.0,
    start: Start | None = None,
) -> Run:
    """Run a plan on a log.

    Args:
        plan: what to do: a plan, the name of one on the shelf, or a TOML file.
        log: everybody's histories: a table (see `tacit.interactions`), a file, the name of a dataset, or a population.
        epsilon: the privacy promise per run and device; the noise is found.
        settings: changes to the plan, such as {"hyper.dim": 32, "privacy.mechanism": "gaussian"}.
        protocol: hold something out, learn from the rest, and ask for it at the end; see `tacit protocols`.
        repeats: evaluate "new" items only, or "all" test cases; by default what fits the log (see `load_protocol`).
        ties: what orders a person's events of one time stamp before they are split: the "file", or a "random" draw.
        seed: the same seed gives the same run, whatever the chunk size and the buckets, to rounding.
        out: a folder for the run; it can be resumed there.
        resume: go on where the folder ends.
        budget: what every device is willing to spend over all its runs; who has spent it falls silent.
        after: an earlier run, or its folder: everybody's ledger goes on where that one ended.
        evaluate: called with the run so far every `every` rounds and at the end; its numbers are recorded.
        every: 0 evaluates at the end only.
        quiet: no bar; by default there is one where somebody watches.
        executor: `debug` runs one device at a time without jit, raises at the first fault and names the device.
        chunk: the most devices stepped at a time; speed only.
        grid: history lengths that share a program; speed only.
        save_seconds: how often to save the state, at least.
        start: parameters and homes to go on from; `Run.update` makes one.
    """
    chosen = choose(plan, settings, epsilon)
    population = as_population(log, [chosen])
    questions = None
    if protocol is not None:
        questions = _Questions(load_protocol(protocol, repeats=repeats, ties=ties), population, seed)
    if questions is not None:
        population, evaluate = questions.split.train, questions.ask
    federation = Federation(
        chosen,
        population,
        seed=seed,
        executor=executor,
        chunk=chunk,
        grid=grid,
        budget=budget,
        ledgers=_ledgers_of(after, population),
        start=start,
    )
    warn(federation.plan, federation.price, federation.methods)
    diary = _Diary(federation, None if out is None else Folder(out), resume, save_seconds, evaluate, every)
    _play_all(federation, diary, quiet)
    run = diary.finish()
    if questions is not None:
        run.split, run.answers = questions.split, questions.answers
    return run


class _Questions:
    """What a protocol holds out, and what came of asking for it last."""

    answers: Answers

    def __init__(self, way: Protocol, log: Population, seed: int):
        self.way, self.seed = way, seed
        self.split = way.split(log, seed)

    def ask(self, run: Run) -> dict[str, float]:
        self.answers = self.way.ask(run, self.split, self.seed)
        return self.answers.metrics


def _play_all(federation: Federation, diary: "_Diary", quiet: bool | None) -> None:
    """Every stage, under a bar; Ctrl-C waits for the end of a round."""
    total = sum(stage.rounds for stage in federation.plan.stages)
    with Bar(federation.plan.name, total, quiet) as diary.bar, _Interruptible() as diary.interrupt:
        for number in range(len(federation.plan.stages)):
            rounds = federation.begin(number)
            if rounds is not None:
                _play(rounds, diary)


def _play(rounds: Rounds, diary: "_Diary") -> None:
    """Every round of a stage that is left to do."""
    first = diary.enter(rounds)
    try:
        while first < rounds.stage.rounds:
            last = min(rounds.stage.rounds, first + rounds.block, diary.next_stop(first))
            asked, tally = rounds.play(first, last)
            diary.note(last, asked, tally)
            first = last
        diary.leave()
    finally:
        rounds.end()


class _Interruptible:
    """Ctrl-C between rounds, not inside one: the state saved is always whole."""

    asked = False

    def __enter__(self) -> "_Interruptible":
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


class _Diary:
    """What is written down of a run: rounds, metrics, checkpoints; on disk where there is a folder."""

    bar: Bar
    interrupt: _Interruptible
    rounds: Rounds  # of the stage being played

    def __init__(
        self,
        federation: Federation,
        folder: Folder | None,
        resume: bool,
        save_seconds: float,
        evaluate: Evaluate | None,
        every: int,
    ):
        self.federation, self.folder, self.save_seconds = federation, folder, save_seconds
        self.evaluate, self.every = evaluate, every if evaluate else 0
        self.environment = _environment(federation)
        self.rows: list[dict[str, Any]] = []
        self.done = self.restored = self.start = 0
        self.pending: list[tuple[int, list[int], Tally, dict[str, float]]] = []
        self.metric, self.saved_at = "", time.monotonic()
        if folder is not None:
            self._open(folder, resume)

    def _open(self, folder: Folder, resume: bool) -> None:
        environment = self.environment
        if resume:
            before = _same_run(folder, environment)
            self.federation.run, self.federation.now = before["run"], before["time"]
            self.environment = before
            self.restored = folder.latest() or 0
            folder.rewind(self.restored)
            self.rows = folder.rows()
        else:
            folder.begin(self.federation.plan.to_toml(), environment, self._run().claim_rows)

    def enter(self, rounds: Rounds) -> int:
        """Begin a stage, or find it begun: its first round that is still to play."""
        self.rounds, self.clock = rounds, time.perf_counter()
        self.busy, self.woken = 0.0, 0
        self.start = sum(stage.rounds for stage in self.federation.plan.stages[: rounds.job.stage])
        end = self.start + rounds.stage.rounds
        if self.start < self.restored <= end:
            self._restore()
        self.done = min(max(self.restored, self.start), end)
        return self.done - self.start

    def next_stop(self, round: int) -> int:
        """The round before which somebody wants to look."""
        return (round // self.every + 1) * self.every if self.every else self.rounds.stage.rounds

    def note(self, last: int, asked: list[int], tally: Tally) -> None:
        """A block has been dispatched. Reading its tally would wait for it, so only the block before is read."""
        self.done = self.start + last
        self.pending.append((last, asked, tally, {}))
        self._write(keep=1)
        if self.every and last % self.every == 0:
            self._look(tally)
        due = self.folder is not None and time.monotonic() - self.saved_at >= self.save_seconds
        if due or self.interrupt.asked:
            self.settle()
            self._save()
        if self.interrupt.asked:
            raise KeyboardInterrupt

    def leave(self) -> None:
        """End a stage: its last checkpoint holds its rule's state, which the next stage replaces.

        A stage that lies behind the checkpoint a run went on from was not played, and must not replace it.
        """
        self.settle()
        if self.done >= self.restored:
            self._save()

    def settle(self) -> None:
        """Write down everything that has been played."""
        self._write(keep=0)

    def _look(self, tally: Tally) -> None:
        jax.block_until_ready(tally)
        began = time.perf_counter()
        assert self.evaluate is not None
        numbers = self.evaluate(self._run())
        self.metric = "  ".join(f"{name} {value:.4f}" for name, value in numbers.items())
        self.pending[-1][3].update(numbers)
        self.clock += time.perf_counter() - began  # an evaluation is not a round's time

    def _write(self, keep: int) -> None:
        while len(self.pending) > keep:
            last, asked, tally, numbers = self.pending.pop(0)
            now = time.perf_counter()
            seconds, self.clock = (now - self.clock) / len(asked), now
            first = last - len(asked)
            made = [self._row(first + i, asked[i], one, seconds) for i, one in enumerate(tally.each(len(asked)))]
            if numbers:
                made[-1]["metrics"] = numbers
            self.rows.extend(made)
            if self.folder is not None:
                self.folder.append(made)
            self.busy, self.woken = self.busy + seconds * len(asked), self.woken + sum(asked)
            self.bar.show(self.start + last, self.woken / max(self.busy, 1e-9), self.metric, self.rounds.spent(last))

    def _row(self, round: int, asked: int, tally: Any, seconds: float) -> dict[str, Any]:
        schema, (reports, rows, dials) = self.rounds.schema, tally
        return {
            "done": self.start + round + 1,
            "stage": self.rounds.job.stage + 1,
            "round": round,
            "asked": asked,
            "reports": reports,
            "bytes_up": int(schema.bytes_of(reports, rows)),
            "bytes_down": asked * self.rounds.bytes_down,
            "seconds": seconds,
            **({"dials": dials} if dials else {}),
        }

    def _save(self, always: bool = False) -> None:
        if self.folder is not None and (self.done or always):
            federation = self.federation
            kept = {"homes": homes_of(federation.buckets), **({"rows": self._rows()} if federation.rows else {})}
            checkpoint.save(self.folder, self.done, federation.params, federation.memory, **kept)
            self.saved_at = time.monotonic()

    def _rows(self) -> dict[str, np.ndarray]:
        """What each device has written row by row, stage by stage."""
        return {str(number): self.federation.rows_of(number) for number in self.federation.rows}

    def _restore(self) -> None:
        assert self.folder is not None
        federation = self.federation
        saved = checkpoint.load(self.folder, federation.params, federation.memory)
        federation.params, federation.memory = jax.tree.map(jnp.asarray, saved)
        homes = self.folder.restore("homes", homes_of(federation.buckets))
        federation.buckets = move_homes(federation.buckets, homes)
        federation.keep_rows(self.folder.restore("rows", self._rows()) if federation.rows else {})

    def _run(self) -> Run:
        federation = self.federation
        return Run(
            federation.plan,
            federation.population,
            federation.methods[-1],
            len(federation.methods) - 1,
            federation.params,
            federation.buckets,
            federation.price,
            list(self.rows),
            federation.ledgers_now(),
            federation.budget,
            self.environment,
            None if self.folder is None else self.folder.path,
        )

    def finish(self) -> Run:
        """Evaluate, record, and hand over."""
        self._save(always=True)
        run = self._run()
        if self.evaluate is not None:
            run.metrics = self.evaluate(run)
        if self.folder is not None:
            run.write(self.folder)
        return run


def _environment(federation: Federation) -> dict[str, Any]:
    population = federation.population
    return {
        "tacit": tacit.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "backend": jax.default_backend(),
        "seed": federation.seed,
        "run": federation.run,
        "time": federation.now,
        "plan_digest": federation.plan.digest,
        "budget": None if federation.budget is None else plain(asdict(federation.budget)),
        "earlier": len(federation.ledgers.pages),
        "population": {
            "devices": len(population),
            "events": int(population.items.size),
            "items": population.catalog.n_items,
            "digest": population.digest,
        },
    }


def _same_run(folder: Folder, environment: dict[str, Any]) -> dict[str, Any]:
    """What the folder says of the run, if it is this one."""
    before = json.loads(folder.read("environment.json"))
    for name in ("plan_digest", "seed", "population", "budget", "earlier"):
        if before[name] != environment[name]:
            raise RunError(
                f"{folder.path} cannot be resumed: its {name} is {before[name]!r}, this run's is {environment[name]!r}."
            )
    return before


def _ledgers_of(after: Run | str | Path | None, population: Population) -> Ledgers | None:
    """The ledgers an earlier run left."""
    if after is None or isinstance(after, Run):
        return None if after is None else after.ledgers
    return Ledgers.load(Path(after), population.device_names)
