"""A trial: one plan on one log, split, run and evaluated. What the command line prints."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.lab.data import Population
from tacit.lab.evaluation.protocols import EvaluationResult, Protocol
from tacit.lab.evaluation.statistics import ConfidenceInterval
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.federation import Performance
from tacit.privacy.budget import Budget


@dataclass(frozen=True)
class Trial:
    """A run, its evaluation, and how long it took."""

    run: Run
    evaluation: EvaluationResult
    seconds: float

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of loading and splitting, and warnings of the evaluation."""
        return (*self.run.population.notes, *self.evaluation.notes, *self.evaluation.warnings)

    @property
    def intervals(self) -> dict[str, ConfidenceInterval]:
        """A 95 % bootstrap interval for every metric that each unit has a value of."""
        return {name: self.evaluation.interval(name) for name in self.evaluation.values}

    @property
    def epsilon(self) -> str:
        """ε of the whole run, all stages composed, as text."""
        epsilon = self.run.price.whole.epsilon
        return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"

    @property
    def terms(self) -> str:
        """The claim behind the ε in the table."""
        return str(self.run.price.whole)

    @property
    def sent(self) -> str:
        """The bytes that a device sent over the whole run, as text."""
        return self.run.sent

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        run, devices = self.run, len(self.run.population)
        reports = sum(row["reports"] for row in run.rounds)
        return {
            "plan": run.plan.to_dict(),
            "digest": run.plan.digest,
            "protocol": self.evaluation.protocol,
            "candidates": self.evaluation.candidates,
            "treatment": self.evaluation.treatment,
            "parts": [part._asdict() for part in self.evaluation.parts],
            "notes": list(self.notes),
            "metrics": run.metrics,
            "intervals": {name: [i.low, i.high] for name, i in self.intervals.items()},
            "claims": [[claim.to_dict() for claim in stage] for stage in run.claims],
            "whole": run.price.whole.to_dict(),
            "spent": run.spent(),
            "sent": self.sent,
            "bytes_up_per_device": run.bytes_up_per_device,
            "bytes_down_per_device": run.bytes_down_per_device,
            "rounds": len(run.rounds),
            "devices": devices,
            "seconds": self.seconds,
            "devices_per_second": reports / max(sum(row["seconds"] for row in run.rounds), 1e-9),
        }


def trial(
    plan: Plan,
    log: Population,
    protocol: str | Protocol = "full",
    *,
    repeats: str | None = None,
    ties: str = "file",
    seed: int = 0,
    out: Path | None = None,
    resume: bool = False,
    debug: bool = False,
    quiet: bool | None = None,
    budget: Budget | None = None,
    after: Run | Path | None = None,
    every: int = 0,
) -> Trial:
    """Split a log as a protocol says, run a plan on it, and evaluate."""
    began = time.perf_counter()
    run = simulate(
        plan,
        log,
        protocol=protocol,
        repeats=repeats,
        ties=ties,
        seed=seed,
        out=out,
        resume=resume,
        performance=Performance("debug" if debug else "fast"),
        quiet=quiet,
        budget=budget,
        after=after,
        every=every,
    )
    assert run.evaluation is not None
    return Trial(run, run.evaluation, time.perf_counter() - began)
