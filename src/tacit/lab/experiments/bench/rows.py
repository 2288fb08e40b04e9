"""Rows of the bench: one plan on one log with one seed, run and evaluated; or the one sentence that says why not."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from tacit.core.plan import Plan
from tacit.device.method import method_class
from tacit.errors import TacitError
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.selection import compact, k_core, pick
from tacit.lab.evaluation.protocols import EvaluationResult, load_protocol
from tacit.lab.evaluation.splits import Split, train_on_organisations
from tacit.lab.experiments.compare import checked_split, collect_warnings
from tacit.lab.plans.loader import numbers_trained
from tacit.lab.runs.run import Run, simulate
from tacit.privacy.sampler import build_sampler

PROTOCOL = load_protocol("bench")
LOGS = ("movies", "movies-16", "apps", "ml-latest-small", "ml-1m", "foursquare-italy")
CORE = 5  # k-core of check-ins: most venues are visited once, by one user


@dataclass(frozen=True)
class Size:
    """How much of each log is taken."""

    people: Mapping[str, int]  # at most; all users of a log that is not named
    synthetic: Mapping[str, Mapping[str, Any]]  # the sizes of the synthetic ones
    k_core: Mapping[str, int]  # k of the k-core
    largest: float  # parameters of a network, without its item table


SIZES = {
    "small": Size(
        {"ml-1m": 1000},
        {"movies": {"users": 1000}, "movies-16": {"users": 320, "items": 300}, "apps": {"users": 200, "days": 14}},
        {"foursquare-italy": CORE},
        largest=2e5,
    ),
    "paper": Size({}, {"movies": {"users": 6000}, "movies-16": {"users": 6000}, "apps": {}}, {}, largest=np.inf),
}


@dataclass(frozen=True)
class BenchLog:
    """A log of the bench, with what was selected from it and its test cases."""

    name: str
    log: Population
    size: Size
    selection: str  # in words

    @cached_property
    def split(self) -> Split:
        """Users train, and are tested on their last item."""
        return checked_split(PROTOCOL, self.log, 0)

    @cached_property
    def split_of_organisations(self) -> Split:
        """The same test cases, where organisations train."""
        return train_on_organisations(self.split)

    @property
    def label(self) -> str:
        """The description in tables."""
        made = "synthetic, " if about_dataset(self.name).built_in else ""
        sizes = f"{len(self.log):,} people, {self.log.catalog.n_items:,} items, {self.log.items.size:,} events"
        return f"{self.name}, {made}{sizes}{self.selection}"


def bench_log(name: str, size: str) -> BenchLog:
    """A log of the bench in a size."""
    how = SIZES[size]
    log = dataset(name, **how.synthetic.get(name, {}))
    selection = []
    for words, shorter in _selections(name, how):
        before, log = len(log), shorter(log)
        selection.append(words.format(before=before))
    return BenchLog(name, replace(log, notes=()), how, "".join(f"; {words}" for words in selection))


def _selections(name: str, how: Size) -> list[tuple[str, Callable[[Population], Population]]]:
    found: list[tuple[str, Callable[[Population], Population]]] = []
    if name in how.k_core:
        k = how.k_core[name]
        found.append((f"items and people with at least {k} of each other", lambda log: k_core(log, k)))
    if name in how.people:
        found.append(("drawn from {before:,} people", lambda log: sample_users(log, how.people[name])))
    return found


def sample_users(log: Population, most: int) -> Population:
    """A fixed random sample of so many users, and the items they have."""
    if len(log) <= most:
        return log
    return compact(pick(log, np.sort(np.random.default_rng(0).permutation(len(log))[:most])))


# ---- rows ----


def measure(plan: Plan, log: BenchLog, seed: int) -> dict[str, Any]:
    """The row of one plan on one log with one seed, as plain values."""
    why = why_not(plan, log)
    if why:
        return missing_row(plan, log, seed, why)
    began, warned = time.perf_counter(), []
    try:
        with collect_warnings(warned):
            run, evaluation = _evaluated(plan, split_for(plan, log), seed)
    except TacitError as problem:
        return missing_row(plan, log, seed, str(problem))
    finally:
        jax.clear_caches()  # hundreds of rows, each with its own programs
    found = _numbers(run, evaluation)
    notes = [*warned, *evaluation.warnings]
    return {**_head(plan, log, seed), **found, "seconds": time.perf_counter() - began, "notes": notes}


def missing_row(plan: Plan, log: BenchLog, seed: int, why: str, **more: Any) -> dict[str, Any]:
    """A row that says why there are no numbers."""
    return {**_head(plan, log, seed), "why": why, **more}


def _head(plan: Plan, log: BenchLog, seed: int) -> dict[str, Any]:
    made_of = {"digest": plan.digest, "people": log.log.digest, "label": log.label}
    return {"data": log.name, "plan": plan.name, "seed": seed, **made_of, "machine": _machine()}


def _machine() -> dict[str, Any]:
    """The machine of a row; rows of one file may come from several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "device": jax.devices()[0].device_kind,
        "cores": cores,
        "jax": jax.__version__,
        "system": platform.machine(),
    }


def why_not(plan: Plan, log: BenchLog) -> str:
    """Why a plan is not run on a log; empty where it is."""
    if not method_class(plan.stages[-1].method).scores:
        return "a first stage alone, which scores nothing"
    if among_organisations(plan) and log.log.silo is None:
        return "for organisations, and this log has none"
    numbers = max(numbers_trained(plan))
    if numbers > log.size.largest:
        return f"trains {numbers:,} numbers, too many for this size"
    return ""


def among_organisations(plan: Plan) -> bool:
    """Whether a device of this plan is an organisation."""
    last = plan.stages[-1]
    return method_class(last.method).for_organisations and build_sampler(last.cohort).fitted == "rounds"


def split_for(plan: Plan, log: BenchLog) -> Split:
    """The same test cases for every plan; whether users or organisations train depends on it."""
    return log.split_of_organisations if among_organisations(plan) else log.split


def _evaluated(plan: Plan, split: Split, seed: int) -> tuple[Run, EvaluationResult]:
    run = simulate(plan, split.train, seed=seed, quiet=True)
    return run, PROTOCOL.evaluate(run, split)


def _numbers(run: Run, evaluation: EvaluationResult) -> dict[str, Any]:
    """The numbers of the tables, and their claim and circumstances."""
    fitted = [stage.fitted for stage in run.price.stages if stage.raw]
    spans = {name: evaluation.interval(name) for name in evaluation.values}
    return {
        "metrics": evaluation.metrics,
        "intervals": {name: [span.low, span.high] for name, span in spans.items()},
        "questions": int(evaluation.units.size),
        "candidates": evaluation.candidates,
        "treatment": evaluation.treatment,
        "devices": len(run.population),
        "device": "organisation" if among_organisations(run.plan) else "person",
        "rounds": len(run.rounds),
        "in_the_lab": fitted[0] if fitted else "",
        "bytes_up": run.bytes_up_per_device,
        "bytes_down": run.bytes_down_per_device,
        "claim": run.price.whole.to_dict(),
        "says": str(run.price.whole),
    }
