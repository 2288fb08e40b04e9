"""Run: what a simulation leaves behind."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.device.method import Method
from tacit.lab.buckets import Bucket
from tacit.lab.data import Population
from tacit.lab.ledger import Ledgers
from tacit.plans import Plan
from tacit.privacy.budget import Budget
from tacit.privacy.card import card, to_markdown
from tacit.privacy.claim import Claim
from tacit.privacy.price import Price
from tacit.record import Folder, plain, write_json, write_text


@dataclass
class Run:
    """The plan, the people, the parameters, everybody's home, what it cost and how well it answers."""

    plan: Plan
    population: Population
    method: Method
    stage: int
    params: dict
    buckets: list[Bucket]
    price: Price
    rounds: list[dict[str, Any]]
    ledgers: Ledgers
    budget: Budget | None = None
    folder: Path | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def claims(self) -> tuple[tuple[Claim, ...], ...]:
        """For each stage, what it guarantees."""
        return self.price.claims

    def spent(self) -> dict[str, Any]:
        """The median and the worst device, over this run and those before it, against the budget if there is one."""
        whole = self.price.whole
        return self.ledgers.summary(self.budget or Budget(math.inf, whole.delta, unit=whole.unit))

    @property
    def card(self) -> dict[str, Any]:
        """What left each device and what it costs, in the shape of a registry entry; `to_markdown` makes it a page."""
        facts = {
            "ledger": self.spent(),
            "bytes_up_per_device": self.bytes_up_per_device,
            "bytes_down_per_device": self.bytes_down_per_device,
            "metrics": self.metrics,
        }
        return card(self.price, facts)

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
        self.ledgers.save(folder.path)
        write_json(folder.path / "card.json", self.card)
        write_text(folder.path / "card.md", to_markdown(plain(self.card)))
        write_json(folder.path / "metrics.json", totals)
