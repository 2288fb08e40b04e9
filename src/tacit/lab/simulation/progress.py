"""Progress: the bar of a run. It reads what has finished; it never makes a round wait."""

import math
import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """Round, devices per second, metric and privacy spent; silent when quiet or when nobody watches."""

    def __init__(self, title: str, rounds: int, quiet: bool | None = None):
        console = Console(stderr=True)
        hidden = not sys.stderr.isatty() if quiet is None else quiet
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            disable=hidden,
        )
        self._task = self._progress.add_task(title, total=rounds, words="")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, done: int, devices_per_second: float, metric: str, epsilon: float) -> None:
        """What has finished so far."""
        spent = "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
        words = f"{devices_per_second:,.0f} devices/s  {metric}  ε spent {spent}"
        self._progress.update(self._task, completed=done, words=words)
