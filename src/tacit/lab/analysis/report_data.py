"""Report data: everything a report shows of one trial, as plain values for JSON."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import tacit
from tacit.core.run_folder import plain
from tacit.lab.analysis.feasibility import INFEASIBLE, WEAK, assess_priced_plan, feasible_epsilons
from tacit.lab.analysis.noise_floor import noise_floor_of
from tacit.lab.analysis.sample_message import sample_message
from tacit.lab.evaluation.protocols import PROTOCOLS, EvaluationResult
from tacit.lab.evaluation.splits import Split
from tacit.lab.evaluation.statistics import ConfidenceInterval
from tacit.lab.experiments.trial import Trial

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

FORMAT = 1  # of the report data; a report refuses a format it does not know
POINTS = 400  # rounds kept, at most; those that were evaluated always are


def report_data(
    trial: "Trial | Run", name: str | None = None, setting: Mapping[str, Any] | None = None, *, sample: bool = True
) -> dict[str, Any]:
    """The plan, its cost, its metrics by group, and what one device sent.

    Args:
        trial: a trial, or a run.
        name: what to call it; the plan's name, and its noise where it adds any, by default.
        setting: further facts for the reader, such as {"data": "movies", "seed": 0}.
        sample: whether to show what one device sent. It has a person's history: leave it out of what is published.
    """
    run = trial.run if isinstance(trial, Trial) else trial
    views = assess_priced_plan(
        run.plan, run.price, run.population.catalog, max(1, int(np.median(run.population.lengths)))
    )
    whole = run.price.whole
    made = {
        "format": FORMAT,
        "tacit": tacit.__version__,
        "name": name or label(run),
        "setting": dict(setting or {}),
        "plan": run.plan.to_dict(),
        "digest": run.plan.digest,
        "toml": run.plan.to_toml(),
        "environment": run.environment,
        "data": _data(run, setting or {}),
        **_evaluation(run),
        "whole": {**whole.to_dict(), "says": str(whole)},
        "card": run.card,
        "ledger": run.spent(),
        "outlook": [view.to_dict() for view in views],
        "signal_to_noise": {"weak": INFEASIBLE, "workable": WEAK},  # thresholds of the verdict
        "floor": noise_floor_of(run),
        "reach": feasible_epsilons(run.plan, len(run.population), tuple(view.numbers for view in views)),
        **_traffic(run, trial),
        "specimen": sample_message(run) if sample else None,
    }
    return plain(made)


def label(run: "Run") -> str:
    """The plan's name, with its mechanism and the ε of the run where a stage adds noise; the first such stage counts."""
    for stage in run.plan.stages:
        if stage.privacy["mechanism"] != "none" and stage.rounds:
            epsilon = run.price.whole.epsilon
            place = " local" if stage.privacy.get("place") == "local" else ""
            promise = "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
            return f"{run.plan.name} {stage.privacy['mechanism']}{place} ε {promise}"
    return run.plan.name


def _data(run: "Run", setting: Mapping[str, Any]) -> dict[str, Any]:
    """The log as it was before anything was held out."""
    log = run.population if run.split is None else run.split.log
    return {
        "name": str(setting.get("data", "")),
        "devices": len(log),
        "events": int(log.items.size),
        "items": log.catalog.n_items,
        "median_history": float(np.median(log.lengths)),
        "learned_from": {"devices": len(run.population), "events": int(run.population.items.size)},
        "digest": run.population.digest,
        "notes": list(log.notes),
    }


def _evaluation(run: "Run") -> dict[str, Any]:
    evaluation, split = run.evaluation, run.split
    if evaluation is None:
        return {"protocol": None, "metrics": run.metrics, "parts": [], "intervals": {}, "groups": {}, "notes": []}
    known = PROTOCOLS.get(evaluation.protocol)
    return {
        "protocol": {
            "name": evaluation.protocol,
            "about": known.about if known else "",
            "candidates": evaluation.candidates,
            "treatment": evaluation.treatment,
            "by": evaluation.by,
            "units": int(evaluation.units.size),
        },
        "metrics": evaluation.metrics,
        "parts": [part._asdict() for part in evaluation.parts],
        "intervals": {name: _interval(evaluation.interval(name)) for name in evaluation.values},
        "groups": {} if split is None else _groups(evaluation, split),
        "notes": [*evaluation.notes, *evaluation.warnings],
    }


def _groups(evaluation: EvaluationResult, split: Split) -> dict[str, list[dict[str, Any]]]:
    """Every metric for people of few and of many events; none where a value belongs to a session."""
    if evaluation.by != "user":
        return {}
    found = {name: evaluation.by_history(name, split) for name in evaluation.values}
    return {name: [{"group": g, **_interval(one)} for g, one in groups.items()] for name, groups in found.items()}


def _interval(one: ConfidenceInterval) -> dict[str, Any]:
    return {"mean": one.mean, "low": one.low, "high": one.high, "users": one.users}


def _traffic(run: "Run", trial: "Trial | Run") -> dict[str, Any]:
    """Rounds, bytes and time."""
    busy = sum(row["seconds"] for row in run.rounds)
    reports = sum(row["reports"] for row in run.rounds)
    return {
        "rounds": [_round(row) for row in _thin(run.rounds)],
        "round_count": len(run.rounds),
        "pooled": run.price.raw,
        "bytes_up_per_device": run.bytes_up_per_device,
        "bytes_down_per_device": run.bytes_down_per_device,
        "seconds": trial.seconds if isinstance(trial, Trial) else busy,
        "seconds_of_rounds": busy,
        "devices_per_second": reports / busy if busy else 0.0,
    }


def _thin(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `POINTS` rounds, evenly spaced, and every one that was evaluated."""
    every = -(-len(rounds) // POINTS) or 1
    last = len(rounds) - 1
    return [row for i, row in enumerate(rounds) if "metrics" in row or i % every == 0 or i == last]


def _round(row: dict[str, Any]) -> dict[str, Any]:
    kept = ("done", "stage", "asked", "reports", "bytes_up", "bytes_down", "seconds", "metrics", "dials")
    return {name: row[name] for name in kept if name in row}
