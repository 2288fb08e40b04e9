"""A federation in memory: everybody's homes, the server's parameters, and the rounds between them.

It knows the plan and the people; it knows no folder, no bar and no clock. `lab/simulate` drives it.
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
from tacit.core.plan import Plan, Stage
from tacit.device.histories import check_people
from tacit.device.ledger.population_ledger import Ledgers
from tacit.device.method import Method, build
from tacit.device.round import Home
from tacit.errors import PlanError
from tacit.lab.baselines import central, helpers
from tacit.lab.data import Population
from tacit.lab.plans.loader import complete
from tacit.lab.simulation import stage_runner
from tacit.lab.simulation.buckets import GRID, furnish, homes_of, move_homes, move_in, worth
from tacit.lab.simulation.engine import CHUNK, State
from tacit.lab.simulation.setup import check_trains, job_of, run_keys, start_key, start_params
from tacit.lab.simulation.stage_runner import Rounds
from tacit.lab.simulation.thread_pool import hands
from tacit.privacy.budget import Budget, Entry
from tacit.privacy.price import Price, ledger_entry_of, price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import Memory, begin
from tacit.server.rule import build_rule

COPIED = 0.02  # what a padded event costs that is copied and not read, against one that is

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
    """Where a run begins that goes on from an earlier one."""

    params: dict
    homes: Home  # of the earlier run, in the order of its devices
    place: np.ndarray  # for every device now, its place then; -1: it is new


class Federation:
    """The people and the server of one run."""

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
        self.executor, self.chunk = performance.executor, performance.chunk
        homes, self.noise = run_keys(self.seed)
        self.methods = [build(stage, population.catalog) for stage in self.plan.stages]
        for stage, method in zip(self.plan.stages, self.methods):
            if getattr(method, "needs_times", False):
                population.require_times(stage.method)
            check_people(stage, population)
            if getattr(method, "needs_ratings", False):
                population.require_ratings(stage.method)
        self.start = start
        self.params = start_params(start_key(self.seed), self.methods)
        if start is not None:
            self.params = {name: _grown(leaf, start.params.get(name)) for name, leaf in self.params.items()}
        for stage in self.plan.stages:
            check_trains(stage, self.params)
        self.price = price(self.plan, len(population))
        _check_budget(self.price, budget)
        names = population.device_names
        self.ledgers = Ledgers(names) if ledgers is None else ledgers.follow(names)
        self.budget, self.now = budget, time.time() if now is None else now
        self.run = secrets.token_hex(8)  # the run's name in the ledgers
        self.number = 0  # the stage that was begun last
        self.schemas: dict[int, Schema | None] = {}  # of each stage that costs anything, its messages; None: raw data
        self.rows: dict[int, list[jax.Array]] = {}  # by stage and bucket, the rows that each device has written
        # A later run of the same people must not draw the same noise again, at home or at the server, nor the same
        # cohorts, even with the same seed.
        earlier = len(self.ledgers.pages)
        if earlier:
            homes, self.noise = (jax.random.fold_in(key, earlier) for key in (homes, self.noise))
        self.draws = self.seed + (earlier << 64)  # the seed of the cohorts
        self.buckets = furnish(homes, population, performance.grid, *self._layout())
        self.memory = Memory((), {})

    def _layout(self) -> tuple[int, float]:
        """How many hands buckets are cut for, and what one bucket less is worth.

        Scanned rounds are played by one hand. Rounds of a few devices gather those alone: padding costs them nothing.
        """
        plan, people = self.plan, self.population
        if all(stage_runner.tiny(stage, len(people)) for stage in plan.stages):
            return 1, worth(0.0)
        scanned = all(stage_runner.at_once(*one, people) > 1 for one in zip(plan.stages, self.methods))
        read = all(method.reads is None for method in self.methods)
        return 1 if scanned else hands(), worth(_turns(plan, len(people)), 1.0 if read else COPIED)

    def begin(self, number: int) -> "Rounds | None":
        """Everybody enters a stage; its rounds, or None where it has none."""
        self.number, stage, method = number, self.plan.stages[number], self.methods[number]
        allowed = self._allowances(number)
        self.buckets = [move_in(method, number, self.population, bucket, allowed) for bucket in self.buckets]
        self._remember(number)
        rule = build_rule(stage.server)
        self.memory = begin(self.price.stages[number].mechanism, rule, stage.trains, self.params)
        if not stage.trains:
            return None
        if self.price.stages[number].raw:
            self._fit(stage, method)
            return None
        job = job_of(stage, number, method, self.price, self.params, self.buckets[-1])
        return Rounds(self, job, stage)

    def _fit(self, stage: Stage, method: Method) -> None:
        """Find the parameters of a stage that needs raw data, and note that it was given."""
        self.schemas[self.number] = None
        fit = {"pooled": central.fit, "helped": helpers.fit}[self.price.stages[self.number].fitted]
        self.params = {**self.params, **fit(stage.method, method, self.population.shared)}

    def expect(self, schema: Schema) -> None:
        """The stage asks for messages of this form; where their size depends on the rows they name, rows are counted."""
        self.schemas[self.number] = schema
        if schema.has_rows:
            self.rows[self.number] = [jnp.zeros((b.ids.size, schema.tables), jnp.int32) for b in self.buckets]

    def _remember(self, number: int) -> None:
        """People who were there before keep their private state, where it still has the same shape."""
        earlier = None if self.start is None else self.start.homes.local.get(str(number))
        if self.start is None or earlier is None:
            return
        homes, place = homes_of(self.buckets), self.start.place
        local = jax.tree.map(lambda new, old: _kept(new, old, place), homes.local[str(number)], earlier)
        self.buckets = move_homes(self.buckets, homes._replace(local={**homes.local, str(number): local}))

    def _allowances(self, number: int) -> np.ndarray | None:
        """How many messages of a stage each device's budget covers; None where nobody has one."""
        stage = self.price.stages[number]
        if self.budget is None or stage.mechanism is None:
            return None
        return self.ledgers_now(number).allowances(self._page(number, 0), stage.messages, self.budget)

    def ledgers_now(self, stages: int | None = None) -> Ledgers:
        """Everybody's ledgers after so many stages of this run (all, by default)."""
        ledgers, homes = self.ledgers, homes_of(self.buckets)
        for number, schema in sorted(self.schemas.items()):
            if stages is None or number < stages:
                ledgers = ledgers.write(*self._entered(number, schema, homes))
        return ledgers

    def _entered(self, number: int, schema: Schema | None, homes: Home) -> tuple[Entry, np.ndarray, np.ndarray]:
        """A stage's page, and how many messages and bytes of it each device has sent."""
        if schema is None:  # everybody's raw data, once
            return self._page(number, 0), np.ones(len(self.population), np.int64), np.zeros(len(self.population))
        sent, allowed = np.asarray(homes.spent[str(number)]), homes.allowance.get(str(number))
        absent = ~build_sampler(self.plan.stages[number].cohort).reach(len(self.population))
        absent |= False if allowed is None else np.asarray(allowed) == 0  # who may send nothing is not there
        size = schema.bytes_of(sent, self.rows_of(number))
        mean = round(size.sum() / sent.sum()) if sent.any() else int(schema.bytes(0))
        return self._page(number, mean), np.where(absent, -1, sent), size

    def rows_of(self, number: int) -> np.ndarray:
        """Rows of each table that each device has written in a stage, int32[devices, tables], in the order of ids."""
        if number not in self.rows:
            return np.zeros((len(self.population), 0), np.int32)
        order = np.argsort(np.concatenate([bucket.ids for bucket in self.buckets]))
        return np.concatenate([np.asarray(some) for some in self.rows[number]])[order]

    def keep_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Take over what `rows_of` said of some stages."""
        for number, written in rows.items():
            self.rows[int(number)] = [jnp.asarray(written[bucket.ids]) for bucket in self.buckets]

    def _page(self, number: int, size: int) -> Entry:
        return ledger_entry_of(self.price.stages[number], self.plan.digest, self.run, number, self.now, size)

    def keep(self, state: State) -> None:
        """Take over what a round left."""
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
    """Refuse to take raw data from people who set a limit: no finite ε covers it."""
    if budget is None or math.isinf(budget.epsilon):
        return
    for number, stage in enumerate(price.stages, 1):
        if stage.raw:
            raise PlanError(
                f"A budget of ε = {budget.epsilon:g} does not cover stage {number} of {price.plan.name}, which needs raw "
                "data (ε = ∞); leave the budget out, or choose a plan that is fitted by rounds."
            )


def _grown(new: jax.Array, old: Any) -> jax.Array:
    """A fresh leaf with the learned one in its corner: what is new starts as it always does."""
    if old is None or old.ndim != new.ndim or any(a > b for a, b in zip(old.shape, new.shape)):
        return new
    return new.at[tuple(slice(0, size) for size in old.shape)].set(jnp.asarray(old, new.dtype))


def _kept(new: np.ndarray, old: np.ndarray, place: np.ndarray) -> np.ndarray:
    if new.shape[1:] != old.shape[1:]:
        return new
    known = (place >= 0).reshape((-1,) + (1,) * (new.ndim - 1))
    return np.where(known, np.asarray(old)[np.maximum(place, 0)], new)


def _turns(plan: Plan, devices: int) -> float:
    """How often a device will be awake over the run, on average."""
    return sum(stage.rounds * build_sampler(stage.cohort).size(devices) / devices for stage in plan.stages)
