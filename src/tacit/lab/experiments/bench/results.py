"""Rows: one plan on one log with one seed, learned, asked and summed up; or the one sentence that says why not."""

import os
import platform
import time
from typing import Any

import jax

from tacit.core.plan import Plan
from tacit.device.method import method_class
from tacit.errors import TacitError
from tacit.lab.evaluation.protocols import Answers
from tacit.lab.evaluation.splits import Split
from tacit.lab.experiments.bench.logs import WAY, Place
from tacit.lab.experiments.compare import listening
from tacit.lab.plans.loader import numbers_trained
from tacit.lab.runs.run import Run, simulate
from tacit.privacy.sampler import build_sampler


def make(plan: Plan, where: Place, seed: int) -> dict[str, Any]:
    """The row, as plain values."""
    why = fits(plan, where)
    if why:
        return without(plan, where, seed, why)
    began, heard = time.perf_counter(), []
    try:
        with listening(heard):
            run, answers = _asked(plan, questions(plan, where), seed)
    except TacitError as problem:
        return without(plan, where, seed, str(problem))
    finally:
        jax.clear_caches()  # hundreds of rows, each with programs of its own
    found = _found(run, answers)
    notes = [*heard, *answers.doubts]
    return {**_head(plan, where, seed), **found, "seconds": time.perf_counter() - began, "notes": notes}


def without(plan: Plan, where: Place, seed: int, why: str, **more: Any) -> dict[str, Any]:
    """A row that says why there are no numbers."""
    return {**_head(plan, where, seed), "why": why, **more}


def _head(plan: Plan, where: Place, seed: int) -> dict[str, Any]:
    made_of = {"digest": plan.digest, "people": where.log.digest, "label": where.label}
    return {"data": where.name, "plan": plan.name, "seed": seed, **made_of, "machine": _machine()}


def _machine() -> dict[str, Any]:
    """What a row was made on: rows of one book may come from several."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "device": jax.devices()[0].device_kind,
        "cores": cores,
        "jax": jax.__version__,
        "system": platform.machine(),
    }


def fits(plan: Plan, where: Place) -> str:
    """Why a plan is not run on a log; empty where it is."""
    if not method_class(plan.stages[-1].method).scores:
        return "a first stage alone, which scores nothing"
    if among_organisations(plan) and where.log.silo is None:
        return "for organisations, and this log has none"
    numbers = max(numbers_trained(plan))
    if numbers > where.size.largest:
        return f"trains {numbers:,} numbers, too many for this size"
    return ""


def among_organisations(plan: Plan) -> bool:
    """Whether a device of this plan is an organisation."""
    last = plan.stages[-1]
    return method_class(last.method).for_organisations and build_sampler(last.cohort).fitted == "rounds"


def questions(plan: Plan, where: Place) -> Split:
    """The same questions for every plan; who learns depends on it."""
    return where.among_organisations if among_organisations(plan) else where.split


def _asked(plan: Plan, split: Split, seed: int) -> tuple[Run, Answers]:
    run = simulate(plan, split.train, seed=seed, quiet=True)
    return run, WAY.ask(run, split)


def _found(run: Run, answers: Answers) -> dict[str, Any]:
    """What the table shows, and what makes it mean something."""
    fitted = [stage.fitted for stage in run.price.stages if stage.raw]
    spans = {name: answers.interval(name) for name in answers.values}
    return {
        "metrics": answers.metrics,
        "intervals": {name: [span.low, span.high] for name, span in spans.items()},
        "questions": int(answers.units.size),
        "candidates": answers.candidates,
        "treatment": answers.treatment,
        "devices": len(run.population),
        "device": "organisation" if among_organisations(run.plan) else "person",
        "rounds": len(run.rounds),
        "in_the_lab": fitted[0] if fitted else "",
        "bytes_up": run.bytes_up_per_device,
        "bytes_down": run.bytes_down_per_device,
        "claim": run.price.whole.to_dict(),
        "says": str(run.price.whole),
    }
