"""Run: what a simulation leaves behind."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.device.method import Method
from tacit.lab.buckets import Bucket
from tacit.lab.data import Population
from tacit.plans import Plan
from tacit.privacy.claim import Claim
from tacit.record import Folder, write_json


@dataclass
class Run:
    """The plan, the people, the parameters, everybody's home, what it cost and how well it answers."""

    plan: Plan
    population: Population
    method: Method
    stage: int
    params: dict
    buckets: list[Bucket]
    claims: tuple[tuple[Claim, ...], ...]
    rounds: list[dict[str, Any]]
    folder: Path | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def bytes_up_per_device(self) -> float:
        """Bytes a device sent over the whole run, on average."""
        return sum(row["bytes_up"] for row in self.rounds) / len(self.population)

    @property
    def bytes_down_per_device(self) -> float:
        """Bytes a device received over the whole run, on average."""
        return sum(row["bytes_down"] for row in self.rounds) / len(self.population)

    def write(self, folder: Folder) -> None:
        """The numbers that are known at the end."""
        totals = {
            "metrics": self.metrics,
            "bytes_up_per_device": self.bytes_up_per_device,
            "bytes_down_per_device": self.bytes_down_per_device,
            "seconds": sum(row["seconds"] for row in self.rounds),
            "zeroed_updates": int(sum(bucket.home.zeroed.sum() for bucket in self.buckets)),
        }
        write_json(folder.path / "metrics.json", totals)
