"""Simulation and its result: `simulate` plays a plan on a log with the code that real devices run, and returns a `Run`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.plan import Plan
from tacit.core.run_folder import Folder, plain, write_json, write_text
from tacit.device.ledger.population_ledger import Ledgers
from tacit.device.method import Method
from tacit.errors import PlanError
from tacit.lab.analysis.feasibility import warn_if_infeasible
from tacit.lab.data import Population
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.data.population import extend_log
from tacit.lab.evaluation.protocols import EvaluationResult, Protocol, load_protocol
from tacit.lab.evaluation.splits import Split
from tacit.lab.plans.loader import choose
from tacit.lab.runs import storage
from tacit.lab.runs.recommend import recommend_items
from tacit.lab.simulation.buckets import Bucket, homes_by_id
from tacit.lab.simulation.federation import DEFAULTS, Federation, Performance, Start
from tacit.lab.simulation.recorder import Recorder, play_stages
from tacit.privacy.accounting.events import LEAST_DELTA
from tacit.privacy.budget import Budget
from tacit.privacy.card import card, to_markdown
from tacit.privacy.claim import Claim
from tacit.privacy.price import Price

if TYPE_CHECKING:
    from tacit.lab.audits.fpl_reconstruction import Leak


def in_bytes(size: float | None) -> str:
    """A number of bytes with its unit; None stands for raw data, of which no bytes are counted.

    >>> in_bytes(0), in_bytes(1234), in_bytes(5.6e9), in_bytes(None)
    ('nothing', '1 kB', '5.6 GB', 'raw data')
    """
    if size is None:
        return "raw data"
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size else "nothing"
        size /= 1000
    return f"{size:.1f} GB"


@dataclass(repr=False)
class Run:
    """The result of a simulation: plan, population, parameters, the homes of all devices, and privacy cost.

    >>> import polars as pl, tacit
    >>> log = pl.DataFrame({"user_id": ["ann", "ann", "bob", "bob"], "item_id": ["tea", "jam", "tea", "jam"]})
    >>> run = tacit.simulate("popularity", log, quiet=True)
    >>> run.recommend(history=["tea"], k=1)["item_id"].to_list()
    ['jam']
    """

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
    environment: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    split: Split | None = None  # what was held out, where a protocol did
    evaluation: EvaluationResult | None = None
    cost: dict[str, float] | None = (
        None  # what a round costs a device, where `tacit.lab.runs.device_cost.cost` measured it
    )
    leakage: "list[Leak]" = field(default_factory=list)  # what attacks on its messages found, where they were tried

    @classmethod
    def of(
        cls,
        federation: Federation,
        rounds: list[dict[str, Any]],
        environment: dict[str, Any] | None = None,
        folder: Path | None = None,
        **known: Any,
    ) -> "Run":
        """The run of a federation as it stands."""
        return cls(
            federation.plan,
            federation.population,
            federation.methods[-1],
            len(federation.methods) - 1,
            federation.params,
            federation.buckets,
            federation.price,
            rounds,
            known.pop("ledgers", None) or federation.ledgers_now(),
            federation.budget,
            environment or {},
            folder,
            **known,
        )

    def recommend(
        self,
        users: Any = None,
        history: Sequence[Any] | None = None,
        *,
        k: int = 10,
        candidates: Sequence[Any] | None = None,
        filter_seen: bool = True,
    ) -> Any:
        """The k best items for users of the run, or for a new user with this history.

        Computed by the device's own code: adapt, then score. Nothing is sent, and nothing is kept of a new user.

        Args:
            users: names of users in the log; all by default.
            history: the items of a new user, oldest first, instead of users.
            k: how many.
            candidates: the items to choose from; all by default.
            filter_seen: leave out items in the history.

        Returns:
            A table user_id, item_id, score, rank: pandas where the log was, else polars.
        """
        return recommend_items(self, users, history, k=k, candidates=candidates, filter_seen=filter_seen)

    def evaluate(self, protocol: str | None = None, *, seed: int = 0) -> dict[str, float]:
        """Evaluate on what was held out; the result is kept with the run.

        A run that learned from the whole log has nothing to evaluate on: pass `protocol=` to `tacit.simulate`.
        """
        if self.split is None:
            raise PlanError(
                "This run learned from the whole log, so nothing is left to evaluate on; pass protocol='full' to "
                "tacit.simulate, which holds test cases out."
            )
        named = protocol or (self.evaluation.protocol if self.evaluation else "full")
        self.evaluation = load_protocol(named).evaluate(self, self.split, seed)
        self.metrics = self.evaluation.metrics
        return self.metrics

    def update(self, log: Log, *, rounds: int | None = None, **options: Any) -> "Run":
        """Continue with more events, new users and new items; every ledger continues too.

        Args:
            log: the new part of the log: a table, a file, or a population.
            rounds: how many rounds each stage plays; those of the plan by default.
            options: as for `tacit.simulate`.
        """
        population = extend_log(self.population, as_population(log, [self.plan]))
        plan = self.plan
        if rounds is not None:
            stages = tuple(stage.with_rounds(rounds) if stage.rounds else stage for stage in plan.stages)
            plan = replace(plan, stages=stages)
        known = {str(name): place for place, name in enumerate(self.population.device_names)}
        place = np.array([known.get(str(name), -1) for name in population.device_names], np.int64)
        options = {"seed": self.environment.get("seed", 0), "budget": self.budget, **options}
        return simulate(
            plan, population, after=self, start=Start(self.params, homes_by_id(self.buckets), place), **options
        )

    def save(self, path: str | Path) -> Path:
        """Write a folder that reloads to the same recommendations. It contains the histories: keep it in the lab."""
        return storage.save_run(self, path)

    @classmethod
    def load(cls, path: str | Path, log: Log | None = None) -> "Run":
        """The run of a folder; `log` is the log it learned from, if it was not saved with its histories."""
        return _loaded(storage.read_run_folder(path, log))

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.3f}" for name, value in self.metrics.items())
        return f"Run({self.plan.name}: {len(self.population):,} devices, {len(self.rounds)} rounds, {self.price.whole}{', ' + numbers if numbers else ''})"

    def _repr_html_(self) -> str:
        """The table that a notebook shows."""
        rows = {
            "plan": f"{self.plan.name} ({self.plan.digest})",
            "devices": f"{len(self.population):,}",
            "rounds": str(len(self.rounds)),
            **{name: f"{value:.4f}" for name, value in self.metrics.items()},
            "sent by a device": self.sent,
            "privacy": str(self.price.whole),
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items()
        )
        return f"<table>{cells}</table>"

    def public_state(self, stage: int) -> dict[str, float]:
        """The public numbers that a stage's last round was opened with, such as a clip bound that moves; stages from 0."""
        told = [row["public_state"] for row in self.rounds if row["stage"] == stage + 1 and "public_state" in row]
        return told[-1] if told else {}

    @property
    def claim_rows(self) -> list[dict[str, Any]]:
        """Every claim with its stage, for JSON."""
        return self.price.claim_rows

    @property
    def claims(self) -> tuple[tuple[Claim, ...], ...]:
        """For each stage, what it guarantees."""
        return self.price.claims

    def spent(self) -> dict[str, Any]:
        """The median and the worst device, over this run and those before it, against the budget if there is one."""
        whole = self.price.whole
        delta = whole.delta if whole.delta >= LEAST_DELTA else 0.0  # less is what tables of noise leave of pure ε
        return self.ledgers.summary(self.budget or Budget(math.inf, delta, unit=whole.unit))

    @property
    def card(self) -> dict[str, Any]:
        """What left each device and what it costs, in the shape of a registry entry; `to_markdown` makes it a page."""
        facts = {
            "ledger": self.spent(),
            "sent": self.sent,
            "bytes_up_per_device": self.bytes_up_per_device,
            "bytes_down_per_device": self.bytes_down_per_device,
            "metrics": self.metrics,
            **({"public_state": public_state} if (public_state := self._moved_public_state()) else {}),
            **({"device_cost": self.cost} if self.cost else {}),
            **({"leakage": [one.to_dict() for one in self.leakage]} if self.leakage else {}),
        }
        return card(self.price, facts)

    def _moved_public_state(self) -> list[dict[str, Any]]:
        """The first and last value of each number of each stage."""
        first = {row["stage"]: row["public_state"] for row in reversed(self.rounds) if "public_state" in row}
        return [
            {"stage": stage, "number": name, "first": value, "last": self.public_state(stage - 1)[name]}
            for stage, public_state in sorted(first.items())
            for name, value in public_state.items()
        ]

    @property
    def bytes_up_per_device(self) -> float | None:
        """Bytes a device sent over the whole run, on average; None where a stage needs raw data, which is not counted."""
        return self._bytes("bytes_up")

    @property
    def bytes_down_per_device(self) -> float | None:
        """Bytes a device received over the whole run, on average; None where a stage needs raw data."""
        return self._bytes("bytes_down")

    def _bytes(self, way: str) -> float | None:
        return None if self.price.raw else sum(row[way] for row in self.rounds) / len(self.population)

    @property
    def sent(self) -> str:
        """What a device sent over the whole run, as text."""
        return in_bytes(self.bytes_up_per_device)

    def write(self, folder: Folder) -> None:
        """Write the results that are known at the end."""
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


Evaluate = Callable[[Run], dict[str, float]]


def simulate(
    plan: Plan | str | Path,
    log: Log,
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
    performance: Performance = DEFAULTS,
    start: Start | None = None,
) -> Run:
    """Run a plan on a log.

    Args:
        plan: what to do: a plan, the name of a built-in one, or a TOML file.
        log: the histories of all users: a table (see `tacit.interactions`), a file, the name of a dataset, or a population.
        epsilon: the privacy promise per run and device; the noise is calibrated to it.
        settings: changes to the plan, such as {"hyper.dim": 32, "privacy.mechanism": "gaussian"}.
        protocol: hold something out, learn from the rest, and evaluate at the end; see `tacit protocols`.
        repeats: evaluate "new" items only, or "all" test cases; by default what fits the log (see `load_protocol`).
        ties: the order of a user's events with equal time stamps before they are split: the "file", or a "random" draw.
        seed: the same seed gives the same run, whatever `performance` says, to rounding.
        out: a folder for the run; it can be resumed there.
        resume: continue where the folder ends.
        budget: the privacy budget of every device over all its runs; a device that has spent it sends nothing.
        after: an earlier run, or its folder: all ledgers continue where it ended.
        evaluate: called with the run so far every `every` rounds and at the end; its numbers are recorded.
        every: 0 evaluates at the end only.
        quiet: no progress bar; by default there is one on a terminal.
        performance: how the run uses the machine; see `tacit.Performance`.
        start: parameters and homes to continue from; `Run.update` makes one.
    """
    chosen = choose(plan, settings, epsilon)
    population = as_population(log, [chosen])
    evaluation = None
    if protocol is not None:
        evaluation = _Evaluation(load_protocol(protocol, repeats=repeats, ties=ties), population, seed)
        population, evaluate = evaluation.split.train, evaluation.evaluate
    federation = Federation(
        chosen,
        population,
        seed=seed,
        performance=performance,
        budget=budget,
        ledgers=_ledgers_of(after, population),
        start=start,
    )
    warn_if_infeasible(federation.plan, federation.price, federation.methods)
    run = _played(federation, None if out is None else Folder(out), resume, evaluate, every, performance, quiet)
    if evaluation is not None:
        run.split, run.evaluation = evaluation.split, evaluation.result
    return run


def _played(
    federation: Federation,
    folder: Folder | None,
    resume: bool,
    evaluate: Evaluate | None,
    every: int,
    performance: Performance,
    quiet: bool | None,
) -> Run:
    """The run of a federation, every stage of it played, evaluated and recorded."""

    def so_far(recorder: Recorder) -> Run:
        return Run.of(federation, list(recorder.rows), recorder.environment, None if folder is None else folder.path)

    evaluator = None if evaluate is None else lambda recorder: evaluate(so_far(recorder))
    recorder = Recorder(federation, folder, resume, performance.save_seconds, evaluator, every)
    play_stages(federation, recorder, quiet)
    recorder.close()
    run = so_far(recorder)
    run.metrics = {} if evaluate is None else evaluate(run)
    if folder is not None:
        run.write(folder)
    return run


def load_run(path: str | Path, log: Log | None = None) -> Run:
    """The run in a folder; where it was saved without its histories, pass the log it learned from."""
    return Run.load(path, log)


def _loaded(found: storage.Loaded) -> Run:
    return Run.of(
        found.federation, found.rounds, found.environment, found.path, ledgers=found.ledgers, metrics=found.metrics
    )


class _Evaluation:
    """The held-out part of a log, and the last evaluation on it."""

    result: EvaluationResult

    def __init__(self, protocol: Protocol, log: Population, seed: int):
        self.protocol, self.seed = protocol, seed
        self.split = protocol.split(log, seed)

    def evaluate(self, run: Run) -> dict[str, float]:
        self.result = self.protocol.evaluate(run, self.split, self.seed)
        return self.result.metrics


def _ledgers_of(after: Run | str | Path | None, population: Population) -> Ledgers | None:
    """The ledgers of an earlier run."""
    if after is None or isinstance(after, Run):
        return None if after is None else after.ledgers
    return Ledgers.load(Path(after), population.device_names)
