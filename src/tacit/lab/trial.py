"""A trial: one plan on one log, split, run, asked, summed up. What the command line prints."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.lab.evaluate import leave_last_out_metrics
from tacit.lab.run import Run
from tacit.lab.simulate import simulate
from tacit.lab.split import leave_last_out
from tacit.lab.synthetic import tastes
from tacit.plans import Plan


@dataclass(frozen=True)
class Trial:
    """A run and how long it took."""

    run: Run
    seconds: float

    @property
    def epsilon(self) -> str:
        """The worst stage's ε for the whole run, as a person reads it."""
        worst = max(claim.epsilon for stage in self.run.claims for claim in stage if claim.per == "run")
        return "∞" if math.isinf(worst) else f"{worst:.3g}"

    @property
    def terms(self) -> set[str]:
        """What the ε in the table means: every claim per run, in full."""
        return {str(claim) for stage in self.run.claims for claim in stage if claim.per == "run"}

    @property
    def sent(self) -> str:
        """What a device sent over the whole run."""
        if any(stage.cohort["sampler"] == "pooled" for stage in self.run.plan.stages):
            return "raw data"
        size = self.run.bytes_up_per_device
        for unit in ("B", "kB", "MB"):
            if size < 1000:
                return f"{size:.0f} {unit}" if size else "nothing"
            size /= 1000
        return f"{size:.1f} GB"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        run, devices = self.run, len(self.run.population)
        reports = sum(row["reports"] for row in run.rounds)
        return {
            "plan": run.plan.to_dict(),
            "digest": run.plan.digest,
            "metrics": run.metrics,
            "claims": [[claim.to_dict() for claim in stage] for stage in run.claims],
            "bytes_up_per_device": run.bytes_up_per_device,
            "bytes_down_per_device": run.bytes_down_per_device,
            "rounds": len(run.rounds),
            "devices": devices,
            "seconds": self.seconds,
            "devices_per_second": reports / max(sum(row["seconds"] for row in run.rounds), 1e-9),
        }


def trial(
    plan: Plan,
    devices: int,
    items: int,
    seed: int,
    *,
    out: Path | None = None,
    resume: bool = False,
    debug: bool = False,
    quiet: bool | None = None,
) -> Trial:
    """Run a plan on the built-in log, leaving everybody's last item out as the question."""
    split = leave_last_out(tastes(devices, items, seed=seed))
    began = time.perf_counter()
    run = simulate(
        plan,
        split.train,
        seed=seed,
        out=out,
        resume=resume,
        executor="debug" if debug else "fast",
        evaluate=lambda run: leave_last_out_metrics(run, split),
        quiet=quiet,
    )
    return Trial(run, time.perf_counter() - began)
