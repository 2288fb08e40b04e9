"""The worker: makes rows in a process of its own, which can be stopped. Without a limit rows are made right here."""

import multiprocessing
from functools import cache
from typing import Any

from tacit.core.plan import Plan
from tacit.lab.experiments.bench.logs import Place, place
from tacit.lab.experiments.bench.results import fits, make, without

_KILLED = "the system ended it; most often there was too little memory"


class Worker:
    """Makes rows one after another; one that takes longer than `limit` seconds is given up, with its process."""

    def __init__(self, size: str, limit: float | None):
        self.size, self.limit = size, limit
        self._process: Any = None
        self._line: Any = None  # what kind of connection it is depends on the system

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop()

    def make(self, plan: Plan, where: Place, seed: int) -> dict[str, Any]:
        """The row, or one that says that it took too long."""
        if self.limit is None or fits(plan, where):
            return make(plan, where, seed)
        line = self._line or self._start(where.name)
        line.send((plan.to_dict(), where.name, seed))
        try:
            if line.poll(self.limit):
                return line.recv()
        except EOFError:
            self._stop()
            return without(plan, where, seed, _KILLED, limit=self.limit)
        self._stop()
        return without(plan, where, seed, f"more than {self.limit:g} seconds here", limit=self.limit)

    def _start(self, name: str) -> Any:
        """A process that has the log in memory before the clock runs."""
        fresh = multiprocessing.get_context("spawn")
        self._line, theirs = fresh.Pipe()
        self._process = fresh.Process(target=_serve, args=(theirs, self.size), daemon=True)
        self._process.start()
        theirs.close()
        self._line.send(name)
        self._line.recv()
        return self._line

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._line = None


def _serve(line: Any, size: str) -> None:
    """What the process does: answer every job with its row."""
    known = cache(lambda name: place(name, size))
    line.send(known(line.recv()).name)
    while True:
        try:
            plan, name, seed = line.recv()
        except EOFError:  # nobody is there any more
            return
        line.send(make(Plan.from_dict(plan), known(name), seed))
