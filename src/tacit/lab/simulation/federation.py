"""A federation in memory: the homes of all devices, the server's parameters, and the rounds of each stage.

It holds the plan and the population, but no folder, progress bar or clock. `simulate` drives it.
"""

import math
import secrets
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Schema
from tacit.core.plan import Plan
from tacit.device.histories import check_people
from tacit.device.ledger.population_ledger import Ledgers
from tacit.device.method import build
from tacit.device.round import Home
from tacit.errors import PlanError
from tacit.lab.baselines.baseline import fit_in_lab
from tacit.lab.data import Population
from tacit.lab.plans.loader import complete
from tacit.lab.simulation.buckets import GRID, bucket_cost, empty_buckets, enter_stage, homes_by_id, with_homes
from tacit.lab.simulation.engine import CHUNK, RoundTally, State
from tacit.lab.simulation.setup import build_job, check_trains, init_key, initial_params, run_keys
from tacit.lab.simulation.stage_runner import RoundOptions, Rounds, has_tiny_cohorts, rounds_per_program
from tacit.lab.simulation.thread_pool import worker_count
from tacit.privacy.budget import Budget, Entry
from tacit.privacy.price import Price, ledger_entry_of, of_simulation, price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import Memory, begin
from tacit.server.rule import rule_of

COPIED = 0.02  # the cost of a padded event that is copied and not read, relative to one that is read

Executor = Literal["fast", "debug"]


class Performance(NamedTuple):
    """How a run uses the machine; nothing here changes what it learns, but for rounding.

    Args:
        executor: `debug` runs one device at a time without jit, raises at the first fault and names the device.
        chunk: the most devices stepped at a time.
        grid: history lengths that share a compiled program.
        save_seconds: how often to save the state, at least.
    """

    executor: Executor = "fast"
    chunk: int = CHUNK
    grid: Sequence[int] = GRID
    save_seconds: float = 30.0


DEFAULTS = Performance()


class Start(NamedTuple):
    """Parameters and homes of an earlier run, from which a run continues."""

    params: dict
    homes: Home  # of the earlier run, in the order of its devices
    place: np.ndarray  # for every device of this run, its place in the earlier run; -1: it is new


class Federation:
    """The devices and the server of one run."""

    def __init__(
        self,
        plan: Plan,
        population: Population,
        *,
        seed: int = 0,
        performance: Performance = DEFAULTS,
        budget: Budget | None = None,
        ledgers: Ledgers | None = None,
        now: float | None = None,
        start: Start | None = None,
    ):
        if performance.executor not in ("fast", "debug"):
            raise PlanError(f"Performance.executor must be 'fast' or 'debug', got {performance.executor!r}.")
        self.plan, self.population, self.seed = complete(plan), population, int(seed)
        homes, self.noise = run_keys(self.seed)
        self.methods = [build(stage, population.catalog) for stage in self.plan.stages]
        for stage, method in zip(self.plan.stages, self.methods):
            if getattr(method, "needs_times", False):
                population.require_times(stage.method)
            check_people(stage, population)
            if getattr(method, "needs_ratings", False):
                population.require_ratings(stage.method)
        self.start = start
        self.params = initial_params(init_key(self.seed), self.methods)
        if start is not None:
            self.params = {name: _grown(leaf, start.params.get(name)) for name, leaf in self.params.items()}
        for stage in self.plan.stages:
            check_trains(stage, self.params)
        self.price = of_simulation(price(self.plan, len(population)))
        _check_budget(self.price, budget)
        names = population.device_names
        self.ledgers = Ledgers(names) if ledgers is None else ledgers.follow(names)
        self.budget, self.now = budget, time.time() if now is None else now
        self.run = secrets.token_hex(8)  # the name of the run in the ledgers
        self.number = 0  # the stage that was entered last
        self.schemas: dict[int, Schema | None] = {}  # the messages of each stage that costs anything; None: raw data
        self.rows: dict[int, list[jax.Array]] = {}  # by stage and bucket: the rows that each device has written
        # A later run of the same devices must not draw the same noise again, on the devices or at the server, nor the
        # same cohorts, even with the same seed.
        earlier = len(self.ledgers.pages)
        if earlier:
            homes, self.noise = (jax.random.fold_in(key, earlier) for key in (homes, self.noise))
        self.cohort_seed = self.seed + (earlier << 64)
        self.options = RoundOptions(self.cohort_seed, self.noise, performance.executor == "debug", performance.chunk)
        self.buckets = empty_buckets(homes, population, performance.grid, *self._layout())
        self.memory = Memory((), {})

    def _layout(self) -> tuple[int, float]:
        """For how many workers buckets are split, and how many padded events cost as much as one more bucket.

        One worker plays scanned rounds. Rounds with few devices copy only those, so padding costs them nothing.
        """
        plan, population = self.plan, self.population
        if all(has_tiny_cohorts(stage, len(population)) for stage in plan.stages):
            return 1, bucket_cost(0.0)
        scanned = all(rounds_per_program(*one, population) > 1 for one in zip(plan.stages, self.methods))
        read = all(method.reads is None for method in self.methods)
        most_work = max(method.work for method in self.methods)
        merged = bucket_cost(_participations(plan, len(population)), 1.0 if read else COPIED) / most_work
        return 1 if scanned else worker_count(), merged

    def begin(self, number: int) -> Rounds | None:
        """All devices enter a stage; returns its rounds, or None where it has none."""
        self.number, stage, method = number, self.plan.stages[number], self.methods[number]
        allowed = self._allowances(number)
        self.buckets = [enter_stage(method, number, self.population, bucket, allowed) for bucket in self.buckets]
        self._restore_earlier(number)
        priced = self.price.stages[number]
        rule = rule_of(stage.server, priced, method.catalog)
        self.memory = begin(priced.mechanism, rule, stage.trains, self.params)
        if not stage.trains:
            return None
        if priced.raw:
            self.schemas[number] = None
            self.params = {**self.params, **fit_in_lab(priced.fitted, stage.method, method, self.population.shared)}
            return None
        job = build_job(stage, number, method, self.price, self.params, self.buckets[-1].length)
        assert job.update is not None
        self.memory = self.memory._replace(noise=job.mechanism.noise_state(job.update.like()))
        rounds = Rounds(job, stage, self.population, self.buckets, self.state, self.options)
        self._count_messages(rounds.schema)
        return rounds

    def play(self, rounds: Rounds, first: int, last: int) -> tuple[list[int], RoundTally]:
        """Play rounds first .. last − 1 of the stage, at most a block: the size of each cohort, and the counts."""
        state, cohorts, tally = rounds.play(self.state, first, last)
        self.set_state(state)
        return cohorts, tally

    def _count_messages(self, schema: Schema) -> None:
        """Note the form of the stage's messages; where their size depends on the rows they name, count those."""
        self.schemas[self.number] = schema
        if schema.has_rows:
            self.rows[self.number] = [jnp.zeros((b.ids.size, schema.tables), jnp.int32) for b in self.buckets]

    def _restore_earlier(self, number: int) -> None:
        """Devices of an earlier run keep their private state, where it still has the same shape."""
        earlier = None if self.start is None else self.start.homes.local.get(str(number))
        if self.start is None or earlier is None:
            return
        homes, place = homes_by_id(self.buckets), self.start.place
        local = jax.tree.map(lambda new, old: _kept(new, old, place), homes.local[str(number)], earlier)
        self.buckets = with_homes(self.buckets, homes._replace(local={**homes.local, str(number): local}))

    def _allowances(self, number: int) -> np.ndarray | None:
        """How many messages of a stage each device's budget covers; None where there is no budget."""
        stage = self.price.stages[number]
        if self.budget is None or stage.mechanism is None:
            return None
        return self.ledgers_now(number).allowances(self._page(number, 0), stage.messages, self.budget)

    def ledgers_now(self, stages: int | None = None) -> Ledgers:
        """The ledgers of all devices after so many stages of this run (all, by default)."""
        ledgers, homes = self.ledgers, homes_by_id(self.buckets)
        for number, schema in sorted(self.schemas.items()):
            if stages is None or number < stages:
                ledgers = ledgers.write(*self._entered(number, schema, homes))
        return ledgers

    def _entered(self, number: int, schema: Schema | None, homes: Home) -> tuple[Entry, np.ndarray, np.ndarray]:
        """A stage's page, and how many messages and bytes of it each device has sent."""
        if schema is None:  # the raw data of all devices, once
            return self._page(number, 0), np.ones(len(self.population), np.int64), np.zeros(len(self.population))
        sent, allowed = np.asarray(homes.spent[str(number)]), homes.allowance.get(str(number))
        absent = ~build_sampler(self.plan.stages[number].cohort).reach(len(self.population))
        absent |= (
            False if allowed is None else np.asarray(allowed) == 0
        )  # a device that may send nothing does not take part
        size = schema.bytes_of(sent, self.rows_of(number))
        mean = round(size.sum() / sent.sum()) if sent.any() else int(schema.bytes(0))
        return self._page(number, mean), np.where(absent, -1, sent), size

    def rows_of(self, number: int) -> np.ndarray:
        """Rows of each table that each device has written in a stage, int32[devices, tables], in the order of ids."""
        if number not in self.rows:
            return np.zeros((len(self.population), 0), np.int32)
        order = np.argsort(np.concatenate([bucket.ids for bucket in self.buckets]))
        return np.concatenate([np.asarray(some) for some in self.rows[number]])[order]

    def set_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Restore what `rows_of` returned for some stages."""
        for number, written in rows.items():
            self.rows[int(number)] = [jnp.asarray(written[bucket.ids]) for bucket in self.buckets]

    def _page(self, number: int, size: int) -> Entry:
        return ledger_entry_of(self.price.stages[number], self.plan.digest, self.run, number, self.now, size)

    def set_state(self, state: State) -> None:
        """Replace everything a round changes."""
        self.params, self.memory = state.params, state.memory
        if state.rows is not None:
            self.rows[self.number] = state.rows
        self.buckets = [bucket._replace(home=home) for bucket, home in zip(self.buckets, state.homes)]

    @property
    def state(self) -> State:
        """Everything a round changes, as arrays."""
        homes = [bucket.home for bucket in self.buckets]
        return State(self.params, self.memory, homes, self.rows.get(self.number))


def _check_budget(price: Price, budget: Budget | None) -> None:
    """Refuse to take raw data from devices with a budget: no finite ε covers it."""
    if budget is None or math.isinf(budget.epsilon):
        return
    for number, stage in enumerate(price.stages, 1):
        if stage.raw:
            raise PlanError(
                f"A budget of ε = {budget.epsilon:g} does not cover stage {number} of {price.plan.name}, which needs raw "
                "data (ε = ∞); leave the budget out, or choose a plan that is fitted by rounds."
            )


def _grown(new: jax.Array, old: Any) -> jax.Array:
    """A fresh leaf with the learned one in its first rows and columns: what is new keeps its initial values."""
    if old is None or old.ndim != new.ndim or any(a > b for a, b in zip(old.shape, new.shape)):
        return new
    return new.at[tuple(slice(0, size) for size in old.shape)].set(jnp.asarray(old, new.dtype))


def _kept(new: np.ndarray, old: np.ndarray, place: np.ndarray) -> np.ndarray:
    if new.shape[1:] != old.shape[1:]:
        return new
    known = (place >= 0).reshape((-1,) + (1,) * (new.ndim - 1))
    return np.where(known, np.asarray(old)[np.maximum(place, 0)], new)


def _participations(plan: Plan, devices: int) -> float:
    """In how many rounds of the run a device takes part, on average."""
    return sum(stage.rounds * build_sampler(stage.cohort).size(devices) / devices for stage in plan.stages)
