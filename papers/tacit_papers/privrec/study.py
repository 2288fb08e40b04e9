"""PrivRec's experiment on one log: all methods trained on the same users and evaluated on the same test cases, seed by seed."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, Field
from tacit.core.plan import Plan
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.lab.data import Population
from tacit.lab.data.datasets import dataset
from tacit.lab.data.selection import owners
from tacit.lab.data.synthetic.apps import BEGIN, generate_apps
from tacit.lab.data.synthetic.apps import apps_settings as settings_of
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.splits import Split
from tacit.lab.evaluation.statistics import ConfidenceInterval, interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.buckets import prepare_devices
from tacit.lab.simulation.federation import Performance
from tacit_papers.dplcf.study import first_present

WAY = load_protocol("privrec")
ROWS = {
    "NCF": "ncf",
    "PrivRec-CEN": "privrec-central",
    "PrivRec": "privrec",
    "FedGNN": "fedgnn",
    "FOFL-SELF": "privrec-ids-only",
    "NN-SELF": "privrec-maml",
    "FCF": "fcf",
    "PrivRec-SGD": "privrec-sgd",
    "popularity": "popularity",
    "untrained": "privrec",
}
STAND_IN = "synthetic stand-in for Frappe"
_FIELDS = {"daytime": 4, "weekday": 7, "isweekend": 2, "homework": 3, "weather": 9, "country": 80, "city": 233}
CHANCE = "by chance"  # whether a person is ranked so
ONE_STEP = ("PrivRec-SGD", "NN-SELF")  # their number of epochs is what they are


class Size(NamedTuple):
    """How large everything is."""

    hyper: dict[str, Any]  # of every row with PrivRec's network
    asked: int  # held-out people, at most
    rounds: tuple[int, ...]
    epochs: tuple[int, ...]
    cohorts: tuple[int, ...]
    epsilons: tuple[float, ...]
    window: int = 50  # newest events of which masked copies are made
    quick: Mapping[str, Any] = {}  # what is less in parts that train many models
    trained: int = 80  # E₁, rounds of PrivRec's network
    cohort: int = 20  # M, people a round where there is no noise
    clip: float = 40.0  # S, where there is
    targets: int = 10  # models of each row that membership is asked of


SIZES = {
    "small": Size(
        {"dim": 16, "hidden": (16, 8, 8, 4), "epochs": 10, "most": 100},
        *(200, (20, 40, 60, 80), (5, 10, 20), (5, 20), (1.0, 8.0), 20),
        {"epochs": 5, "most": 50},
        targets=3,
    ),
    "paper": Size(
        {"dim": 64, "hidden": (64, 32, 16, 8), "epochs": 100, "most": 200},
        *(2000, (5, 20, 40, 60, 80, 100), (5, 20, 40, 60, 80, 100, 120), (2, 5, 10, 20, 30, 40)),
        (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    ),
}


def quicker(size: Size) -> Size:
    """Less to do at home, for parts that train many models; the paper's size stays as it is."""
    return size._replace(hyper={**size.hyper, **size.quick})


@dataclass(eq=False)
class Log:
    """A log and what to call it; what one part of the paper asked, another need not ask again."""

    label: str
    people: Population
    size: Size
    stand_in: str = ""  # what is said in every title and row where the log stands for another
    known: dict[Any, Any] = field(default_factory=dict, repr=False)

    def told(self, name: str) -> str:
        """A title or a row's name, with what the log stands for."""
        return f"{name} [{self.stand_in}]" if self.stand_in else name

    @property
    def grid(self) -> tuple[int]:
        """One length for all histories: most of the time goes into compiling programs, and this makes them few."""
        return (max(1, int(self.people.lengths.max())),)

    def split(self, seed: int) -> Split:
        """The protocol's split; of the people held out, no more are asked than the size says."""
        if seed not in self.known:
            split = WAY.split(self.people, seed)
            self.known[seed] = split.among(np.unique(split.test.device)[: self.size.asked])
        return self.known[seed]

    def values(self, plan: Plan, seed: int) -> dict[str, np.ndarray]:
        """What a plan answers on a seed's split: for every metric, and for `CHANCE`, a value for each person."""
        if (plan.digest, seed) not in self.known:
            run = simulate(plan, self.split(seed).train, seed=seed, quiet=True, performance=Performance(grid=self.grid))
            answers = WAY.evaluate(run, self.split(seed), seed)
            self.known[plan.digest, seed] = {**answers.values, CHANCE: np.isin(answers.units, answers.by_chance)}
        return self.known[plan.digest, seed]


def movie_log(data: str | None, size: str) -> Log:
    """MovieLens-1M, or a synthetic log like it."""
    name = data or first_present(("ml-1m",))
    if name is None:
        users = 1500 if size == "small" else 6000
        return Log(f"movies, synthetic, {users:,} people", dataset("movies", users=users), SIZES[size])
    return Log(name, dataset(name), SIZES[size])


def app_log(size: str) -> Log:
    """Frappe where it is, else launches of its shape; with the paper's E₁ = 40, M = 30 and S = 35."""
    chosen = SIZES[size]._replace(trained=40, cohort=30, clip=35.0)
    name = first_present(("frappe",))
    if name is not None:
        return Log(name, at_home(dataset(name)), chosen)
    people = frappe_like()
    words = f"{len(people):,} people, {people.catalog.n_items:,} apps, {people.items.size:,} launches"
    return Log(f"{STAND_IN}: {words}", people, chosen, STAND_IN)


def at_home(log: Population) -> Population:
    """The log with each person's most frequent surroundings as fields of their own.

    The paper counts an event's surroundings among a user's features; here a person's fields are the same in every event.
    """
    own = [(at, one) for at, one in enumerate(log.catalog.event_fields) if one.kind == "categorical"]
    context = np.zeros((log.items.size, len(log.catalog.event_fields))) if log.context is None else log.context
    person = [_most_frequent(log, context[:, at].astype(int), one.size) for at, one in own]
    fields = tuple(one for _, one in own)
    catalog = Catalog(log.catalog.n_items, log.catalog.attributes, log.catalog.item_fields, fields)
    return replace(log, catalog=catalog, context=None, person=np.stack(person, axis=1).astype(np.float32))


def _most_frequent(log: Population, values: np.ndarray, size: int) -> np.ndarray:
    """Of each person; -1 where no value is known."""
    known, counts = values >= 0, np.zeros((len(log), size), int)
    np.add.at(counts, (owners(log)[known], values[known]), 1)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), -1)


def frappe_like(users: int = 957, apps: int = 4082, seed: int = 0) -> Population:
    """Synthetic launches with as many people, apps and fields as Frappe has. No person lives in them.

    The part of the day, the weekday and the weekend are those of a person's launches; the other fields, and the price
    of an app, are drawn and tell nothing.
    """
    fewer = {"n_median": 20.0, "sessions": 0.8, "installs": 0.6}  # apps of a person, and launches
    made = generate_apps(replace(settings_of("apps500"), apps=apps, **fewer), users, seed)
    rng, moments = np.random.default_rng([seed, 0xF4]), made.require_times("frappe_like")
    day = ((moments - BEGIN) // 86_400).astype(int)
    known = {"daytime": ((moments % 86_400) // 21_600).astype(int), "weekday": (day + 3) % 7}
    known["isweekend"] = (known["weekday"] >= 5).astype(int)
    person = [
        _most_frequent(made, known[name], size) if name in known else rng.integers(size, size=users)
        for name, size in _FIELDS.items()
    ]
    fields = tuple(Field(name, "categorical", size) for name, size in _FIELDS.items())
    costs = jnp.asarray(rng.random(apps) < 0.2, jnp.float32)
    catalog = Catalog(apps, {"cost": costs}, (Field("cost", "categorical", 2),), fields)
    return replace(made, catalog=catalog, person=np.stack(person, axis=1).astype(np.float32))


@dataclass
class Study:
    """What each row answered: for every metric, a value for each asked person of every seed."""

    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    inactive: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # fewer than 20 items in the second half

    def mean(self, row: str, metric: str) -> float:
        """The metric, over people and seeds."""
        return float(self.values[row][metric].mean())

    def interval(self, row: str, metric: str) -> ConfidenceInterval:
        """The same with its interval."""
        return interval(self.values[row][metric])


def plan_of(row: str, size: Size, settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan behind a row, in a size, with other settings where they are given."""
    plan = choose(ROWS.get(row, row))
    methods = [stage.method for stage in plan.stages]
    if methods == ["privrec"] and row != "dp-privrec-one":  # whose size is part of what it promises to be worth
        hyper = {name: value for name, value in size.hyper.items() if name != "epochs" or row not in ONE_STEP}
        plan = choose(plan, {**{f"hyper.{name}": value for name, value in hyper.items()}, **_as_trained(plan, size)})
    if methods == ["masks", "privrec"] and row != "dp-privrec-two":
        hyper = {f"2.hyper.{name}": value for name, value in size.hyper.items()}
        window = {f"{number}.hyper.window": size.window for number in (1, 2)}
        plan = choose(plan, {"1.hyper.dim": size.hyper["dim"], **hyper, **window, **_as_trained(plan, size)})
    if row == "untrained":
        plan = replace(plan, stages=(replace(plan.stages[0], trains=(), rounds=0),))
    return choose(plan, settings)


def _as_trained(plan: Plan, size: Size) -> dict[str, Any]:
    """E₁, and M where there is no noise or S where there is, in the stages that train PrivRec's network in rounds."""
    found: dict[str, Any] = {}
    for number, stage in enumerate(plan.stages, 1):
        if stage.method == "privrec" and "count" in stage.cohort:
            bound = {"privacy.clip": size.clip} if "clip" in stage.privacy else {"cohort.count": size.cohort}
            found |= {f"{number}.{name}": value for name, value in {"rounds": size.trained, **bound}.items()}
    return found


def run_study(log: Log, seeds: Iterable[int], rows: Iterable[str]) -> Study:
    """Every row on every seed's split."""
    made, found, inactive = Study(), {}, []
    for seed in seeds:
        split = log.split(seed)
        for row in rows:
            plan = plan_of(row, log.size)
            made.digests[row] = plan.digest
            found.setdefault(row, []).append(log.values(plan, seed))
        lengths = split.log.lengths[np.unique(split.test.device)]
        inactive.append(lengths - lengths // 2 < 20)
    for row, parts in found.items():
        made.values[row] = {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}
    made.inactive = np.concatenate(inactive)
    return made


def answer(log: Log, plan: Plan, seed: int, metric: str = "Hits@20") -> float:
    """One number of one plan on one seed's split."""
    return float(log.values(plan, seed)[metric].mean())


def by_round(log: Log, plan: Plan, seed: int, wanted: tuple[int, ...], metric: str = "Hits@20") -> dict[int, float]:
    """The metric after some numbers of a run's rounds."""
    if (plan.digest, seed, wanted) in log.known:
        return log.known[plan.digest, seed, wanted]
    split, every, found = log.split(seed), int(np.gcd.reduce(wanted)), {}
    calls = iter(range(every, 10**9, every))

    def look(run: Run) -> dict[str, float]:
        done = next(calls)
        if done in wanted and done not in found:
            found[done] = WAY.evaluate(run, split, seed).metrics[metric]
        return {}

    simulate(
        plan, split.train, seed=seed, quiet=True, performance=Performance(grid=log.grid), evaluate=look, every=every
    )
    log.known[plan.digest, seed, wanted] = found
    return found


def milliseconds(log: Log, plans: Mapping[str, Plan], count: int, repeats: int = 5) -> dict[str, float]:
    """What so many devices' work in a round takes, plan by plan, turn by turn in one process: the medians."""
    turns = {name: _work(plan, log.people, count) for name, plan in plans.items()}
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repeats + 1):
        for name, turn in turns.items():
            began = time.perf_counter()
            jax.block_until_ready(turn())
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: float(np.median(took[1:])) for name, took in times.items()}  # the first compiles


def _work(plan: Plan, people: Population, count: int) -> Callable[[], Any]:
    """The local work of the first devices, as one program; histories are cut to 64 events, so that all are alike."""
    method, key = build(plan.stages[0], people.catalog), jax.random.key(0, impl=KEYS)
    own = prepare_devices(method, people, np.arange(count), 64)
    work = jax.jit(jax.vmap(lambda params, key, own: method.local(key, params, {}, own)[1], (None, 0, 0)))
    return partial(work, method.init(key), jax.random.split(key, count), own)
