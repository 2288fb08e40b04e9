"""The diary of a simulation: rounds, metrics and checkpoints as they come, on disk where there is a folder; Ctrl-C waits."""

import json
import platform
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tacit
from tacit.core.run_folder import RUN_FORMAT, Folder, plain
from tacit.errors import RunError
from tacit.lab.simulation.buckets import homes_of, move_homes
from tacit.lab.simulation.engine import Tally
from tacit.lab.simulation.federation import Federation
from tacit.lab.simulation.progress import Bar
from tacit.lab.simulation.stage_runner import Rounds
from tacit.server.checkpoint import load_checkpoint, save_checkpoint

Look = Callable[["Diary"], dict[str, float]]  # what evaluates the run so far


def play_all(federation: Federation, diary: "Diary", quiet: bool | None) -> None:
    """Every stage, under a bar; Ctrl-C waits for the end of a round."""
    total = sum(stage.rounds for stage in federation.plan.stages)
    with Bar(federation.plan.name, total, quiet) as diary.bar, Interruptible() as diary.interrupt:
        for number in range(len(federation.plan.stages)):
            rounds = federation.begin(number)
            if rounds is not None:
                _play(rounds, diary)


def _play(rounds: Rounds, diary: "Diary") -> None:
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


class Interruptible:
    """Ctrl-C between rounds, not inside one: the state saved is always whole."""

    asked = False

    def __enter__(self) -> "Interruptible":
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


class Diary:
    """What is written down of a run: rounds, metrics, checkpoints; on disk where there is a folder."""

    bar: Bar
    interrupt: Interruptible
    rounds: Rounds  # of the stage being played

    def __init__(
        self,
        federation: Federation,
        folder: Folder | None,
        resume: bool,
        save_seconds: float,
        look: "Look | None",
        every: int,
    ):
        self.federation, self.folder, self.save_seconds = federation, folder, save_seconds
        self.look, self.every = look, every if look else 0
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
            folder.begin(self.federation.plan.to_toml(), environment, self.federation.price.claim_rows)

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
        assert self.look is not None
        numbers = self.look(self)
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
            save_checkpoint(self.folder, self.done, federation.params, federation.memory, **kept)
            self.saved_at = time.monotonic()

    def _rows(self) -> dict[str, np.ndarray]:
        """What each device has written row by row, stage by stage."""
        return {str(number): self.federation.rows_of(number) for number in self.federation.rows}

    def _restore(self) -> None:
        assert self.folder is not None
        federation = self.federation
        saved = load_checkpoint(self.folder, federation.params, federation.memory)
        federation.params, federation.memory = jax.tree.map(jnp.asarray, saved)
        homes = self.folder.restore("homes", homes_of(federation.buckets))
        federation.buckets = move_homes(federation.buckets, homes)
        federation.keep_rows(self.folder.restore("rows", self._rows()) if federation.rows else {})

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
    """What the folder says of the run, if it is this one."""
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
