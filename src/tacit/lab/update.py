"""Update: a run goes on with a longer log."""

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.lab.buckets import homes_of
from tacit.lab.data.datasets import as_population
from tacit.lab.data.merge import merge
from tacit.lab.federation import Start
from tacit.lab.run import Run
from tacit.lab.simulate import simulate


def update(run: Run, log: Any, rounds: int | None = None, **options: Any) -> Run:
    """More rounds on the old log and the new, from where the run ended; see `Run.update`."""
    population = merge(run.population, as_population(log, [run.plan]))
    plan = run.plan
    if rounds is not None:
        stages = tuple(stage.with_rounds(rounds) if stage.rounds else stage for stage in plan.stages)
        plan = replace(plan, stages=stages)
    known = {str(name): place for place, name in enumerate(run.population.device_names)}
    place = np.array([known.get(str(name), -1) for name in population.device_names], np.int64)
    start = Start(run.params, homes_of(run.buckets), place)
    seed = options.pop("seed", run.environment.get("seed", 0))
    budget = options.pop("budget", run.budget)
    return simulate(plan, population, seed=seed, budget=budget, after=run, start=start, **options)
