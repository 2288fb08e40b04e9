"""The recorder of a simulation: rounds, metrics and checkpoints, in a run folder if there is one; progress bar and Ctrl-C."""

import json
import math
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import tacit
from tacit.core.run_folder import RUN_FORMAT, Folder, plain
from tacit.errors import RunError
from tacit.lab.simulation.buckets import homes_by_id, with_homes
from tacit.lab.simulation.engine import RoundTally
from tacit.lab.simulation.federation import Federation
from tacit.lab.simulation.stage_runner import Rounds
from tacit.server.checkpoint import load_checkpoint, save_checkpoint

Evaluator = Callable[["Recorder"], dict[str, float]]  # metrics of the run so far


def play_stages(federation: Federation, recorder: "Recorder", quiet: bool | None) -> None:
    """Play every stage and record it, under a progress bar; Ctrl-C takes effect at the end of a round."""
    total = sum(stage.rounds for stage in federation.plan.stages)
    with ProgressBar(federation.plan.name, total, quiet) as recorder.bar, Interruptible() as recorder.interrupt:
        for number in range(len(federation.plan.stages)):
            rounds = federation.begin(number)
            if rounds is not None:
                _play_stage(federation, rounds, recorder)


def _play_stage(federation: Federation, rounds: Rounds, recorder: "Recorder") -> None:
    """Every round of a stage that has not been played yet."""
    first = recorder.begin_stage(rounds)
    try:
        while first < rounds.stage.rounds:
            last = min(rounds.stage.rounds, first + rounds.block, recorder.next_evaluation(first))
            cohorts, tally = federation.play(rounds, first, last)
            recorder.record(last, cohorts, tally)
            first = last
        recorder.end_stage()
    finally:
        rounds.end()


class Interruptible:
    """Ctrl-C takes effect between rounds, never inside one, so the saved state is always complete."""

    requested = False

    def __enter__(self) -> "Interruptible":
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _request(self, *_: Any) -> None:
        if self.requested:  # a second Ctrl-C takes effect at once
            raise KeyboardInterrupt
        self.requested = True


class ProgressBar:
    """Rounds, devices per second, metrics and privacy spent; hidden when quiet, or when stderr is no terminal."""

    def __init__(self, title: str, rounds: int, quiet: bool | None = None):
        console = Console(stderr=True)
        hidden = not sys.stderr.isatty() if quiet is None else quiet
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            disable=hidden,
        )
        self._task = self._progress.add_task(title, total=rounds, text="")

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, done: int, devices_per_second: float, metric: str, epsilon: float) -> None:
        """Update the bar to what has finished."""
        spent = "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
        text = f"{devices_per_second:,.0f} devices/s  {metric}  ε spent {spent}"
        self._progress.update(self._task, completed=done, text=text)


class Recorder:
    """Records a run as it is played: rounds, metrics and checkpoints, in the run's folder if there is one."""

    bar: ProgressBar
    interrupt: Interruptible
    rounds: Rounds  # of the stage being played

    def __init__(
        self,
        federation: Federation,
        folder: Folder | None,
        resume: bool,
        save_seconds: float,
        evaluate: "Evaluator | None",
        every: int,
    ):
        self.federation, self.folder, self.save_seconds = federation, folder, save_seconds
        self.evaluate, self.every = evaluate, every if evaluate else 0
        self.environment = _environment(federation)
        self.rows: list[dict[str, Any]] = []
        self.done = self.restored = self.start = 0
        self.pending: list[tuple[int, list[int], RoundTally, dict[str, float]]] = []
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
            folder.begin(self.federation.plan.to_toml(), environment, self.federation.price.claim_rows)

    def begin_stage(self, rounds: Rounds) -> int:
        """Begin or resume a stage: the first of its rounds that has not been played."""
        self.rounds, self.clock = rounds, time.perf_counter()
        self.busy, self.stepped = 0.0, 0
        self.start = sum(stage.rounds for stage in self.federation.plan.stages[: rounds.job.stage])
        end = self.start + rounds.stage.rounds
        if self.start < self.restored <= end:
            self._restore()
        self.done = min(max(self.restored, self.start), end)
        return self.done - self.start

    def next_evaluation(self, round: int) -> int:
        """The round before which the run is evaluated next."""
        return (round // self.every + 1) * self.every if self.every else self.rounds.stage.rounds

    def record(self, last: int, cohorts: list[int], tally: RoundTally) -> None:
        """Record a block that was dispatched. Reading its tally would wait for it, so only the block before is read."""
        self.done = self.start + last
        self.pending.append((last, cohorts, tally, {}))
        self._write(keep=1)
        if self.every and last % self.every == 0:
            self._evaluate(tally)
        due = self.folder is not None and time.monotonic() - self.saved_at >= self.save_seconds
        if due or self.interrupt.requested:
            self.settle()
            self._save()
        if self.interrupt.requested:
            raise KeyboardInterrupt

    def end_stage(self) -> None:
        """End a stage with a checkpoint, since the next stage replaces its rule's state.

        A stage that ended before the checkpoint a run was resumed from was not played again, and must not replace it.
        """
        self.settle()
        if self.done >= self.restored:
            self._save()

    def settle(self) -> None:
        """Record everything that has been played."""
        self._write(keep=0)

    def _evaluate(self, tally: RoundTally) -> None:
        jax.block_until_ready(tally)
        began = time.perf_counter()
        assert self.evaluate is not None
        numbers = self.evaluate(self)
        self.metric = "  ".join(f"{name} {value:.4f}" for name, value in numbers.items())
        self.pending[-1][3].update(numbers)
        self.clock += time.perf_counter() - began  # an evaluation is not a round's time

    def _write(self, keep: int) -> None:
        while len(self.pending) > keep:
            last, cohorts, tally, numbers = self.pending.pop(0)
            now = time.perf_counter()
            seconds, self.clock = (now - self.clock) / len(cohorts), now
            first = last - len(cohorts)
            made = [self._row(first + i, cohorts[i], one, seconds) for i, one in enumerate(tally.each(len(cohorts)))]
            if numbers:
                made[-1]["metrics"] = numbers
            self.rows.extend(made)
            if self.folder is not None:
                self.folder.append(made)
            self.busy, self.stepped = self.busy + seconds * len(cohorts), self.stepped + sum(cohorts)
            self.bar.show(self.start + last, self.stepped / max(self.busy, 1e-9), self.metric, self.rounds.spent(last))

    def _row(self, round: int, cohort: int, tally: Any, seconds: float) -> dict[str, Any]:
        schema, (reports, rows, dials) = self.rounds.schema, tally
        return {
            "done": self.start + round + 1,
            "stage": self.rounds.job.stage + 1,
            "round": round,
            "asked": cohort,
            "reports": reports,
            "bytes_up": int(schema.bytes_of(reports, rows)),
            "bytes_down": cohort * self.rounds.bytes_down,
            "seconds": seconds,
            **({"dials": dials} if dials else {}),
        }

    def _save(self, always: bool = False) -> None:
        if self.folder is not None and (self.done or always):
            federation = self.federation
            kept = {"homes": homes_by_id(federation.buckets), **({"rows": self._rows()} if federation.rows else {})}
            save_checkpoint(self.folder, self.done, federation.params, federation.memory, **kept)
            self.saved_at = time.monotonic()

    def _rows(self) -> dict[str, np.ndarray]:
        """How many rows each device has written, stage by stage."""
        return {str(number): self.federation.rows_of(number) for number in self.federation.rows}

    def _restore(self) -> None:
        assert self.folder is not None
        federation = self.federation
        saved = load_checkpoint(self.folder, federation.params, federation.memory)
        federation.params, federation.memory = jax.tree.map(jnp.asarray, saved)
        homes = self.folder.restore("homes", homes_by_id(federation.buckets))
        federation.buckets = with_homes(federation.buckets, homes)
        federation.set_rows(self.folder.restore("rows", self._rows()) if federation.rows else {})

    def close(self) -> None:
        """Save the last state."""
        self._save(always=True)


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
    """The environment that the folder recorded, if it is of the same run."""
    from tacit.lab.runs.storage import saved_plan  # it imports the engine

    before = json.loads(folder.read("environment.json"))
    if folder.format < RUN_FORMAT:  # its plan may have names of an earlier version
        before = {**before, "plan_digest": saved_plan(folder).digest}
    for name in ("plan_digest", "seed", "population", "budget", "earlier"):
        if before[name] != environment[name]:
            raise RunError(
                f"{folder.path} cannot be resumed: its {name} is {before[name]!r}, this run's is {environment[name]!r}."
            )
    return before
