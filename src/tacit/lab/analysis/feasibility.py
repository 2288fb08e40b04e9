"""Feasibility: whether a plan can work, before it runs: signal against noise, bytes, memory, arithmetic."""

import math
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from scipy.optimize import brentq

from tacit.core.catalog import Catalog
from tacit.core.messages import schema_of
from tacit.core.plan import Plan, Stage
from tacit.core.settings import thaw
from tacit.core.sparse_rows import dense_tree
from tacit.device.history import plain_history
from tacit.device.method import Method, build
from tacit.device.round import KEYS, enter, new_home, seeded_noise_key, step
from tacit.errors import PlanError
from tacit.lab.plans.loader import complete
from tacit.privacy.mechanism import Mechanism, mechanism_class
from tacit.privacy.price import Price, StagePrice, price, settle
from tacit.server.round import open_round

INFEASIBLE, WEAK = (
    2.0,
    10.0,
)  # signal to noise over the run, if all devices agreed; measured by benchmarks/feasibility.py
_RANGE = (1e-3, 1e4)  # of ε that is searched
_NOISES = ("noise", "scale", "epsilon", "epsilon_per_message")  # the settings that set the noise
Verdict = Literal["nothing sent", "raw data", "no noise", "workable", "weak", "hopeless"]


class FeasibilityWarning(UserWarning):
    """The noise of a plan is so large that the plan is likely to learn little or nothing."""


@dataclass(frozen=True)
class Feasibility:
    """What one stage costs a device, and the signal to noise of what the server estimates."""

    numbers: int  # D: how many numbers an update has
    reports: float  # in a round
    signal_to_noise: float  # of one number of the mean update over all rounds, if all devices agreed
    devices_needed: float  # for a workable signal to noise
    bytes_up: float  # of one report
    bytes_down: float  # of one broadcast
    bytes_up_run: float  # of all reports of one device
    memory: int  # bytes a device holds in a round
    operations: float  # arithmetic of a device in a round
    verdict: Verdict
    advice: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def assess_feasibility(plan: Plan, catalog: Catalog, devices: int, events: int = 50) -> tuple[Feasibility, ...]:
    """Assess every stage, for devices with histories of this length."""
    plan = complete(plan)
    return assess_priced_plan(plan, price(plan, devices), catalog, events)


def assess_priced_plan(plan: Plan, cost: Price, catalog: Catalog, events: int = 50) -> tuple[Feasibility, ...]:
    """As `assess_feasibility`, where the price is known already."""
    methods = [build(stage, catalog) for stage in plan.stages]
    params = _shapes(methods)
    return tuple(
        _stage(stage, priced, method, number, params, events)
        for number, (stage, priced, method) in enumerate(zip(plan.stages, cost.stages, methods))
    )


def warn_if_infeasible(plan: Plan, cost: Price, methods: list[Method]) -> None:
    """Warn before a run that it is likely to learn little or nothing, and name what would help."""
    params = _shapes(methods)
    for number, (stage, priced, method) in enumerate(zip(plan.stages, cost.stages, methods), 1):
        if priced.mechanism is None:
            continue
        ratio, needed = _signal(stage, priced, _numbers(method, params))
        if ratio < WEAK:
            words = (
                f"Stage {number} of {plan.name} looks {_verdict(ratio)}: signal to noise is {ratio:.2g} a number over "
                f"the run at best, and about {needed:,.0f} devices would make it {WEAK:g}. "
                f"What helps: {'; '.join(_advice(stage, priced))}."
            )
            warnings.warn(words, FeasibilityWarning, stacklevel=3)


def _shapes(methods: list[Method]) -> dict:
    key = jax.random.key(0, impl=KEYS)
    params: dict = {}
    for method in methods:
        params = {**jax.eval_shape(method.init, key), **params}
    return params


def _numbers(method: Method, params: dict) -> int:
    """How many numbers an update has, dense; nothing is run."""
    key = jax.random.key(0, impl=KEYS)

    def update(params: dict, items: jax.Array) -> dict:
        own = method.prepare(plain_history(items, method.catalog))
        return dense_tree(method.local(key, params, method.enter(key, own), own)[1])

    made = jax.eval_shape(update, params, jax.ShapeDtypeStruct((8,), jnp.int32))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(made))


def _stage(stage: Stage, priced: StagePrice, method: Method, number: int, params: dict, events: int) -> Feasibility:
    mechanism, exposure = priced.mechanism, priced.exposure
    down = schema_of(params, 0).bytes()
    if mechanism is None or exposure is None:
        return Feasibility(
            0, 0, math.inf, 0, 0, down, 0, _size(params), 0, "raw data" if priced.raw else "nothing sent"
        )
    numbers = _numbers(method, params)
    down += 4 * len(mechanism.public_state)
    memory, operations, up = _device(method, mechanism, number, params, events)
    ratio, needed = _signal(stage, priced, numbers)
    verdict = _verdict(ratio)
    advice = _advice(stage, priced) if verdict in ("weak", "hopeless") else ()
    return Feasibility(
        numbers, exposure.cohort, ratio, needed, up, down, up * priced.messages, memory, operations, verdict, advice
    )


def _signal(stage: Stage, priced: StagePrice, numbers: int) -> tuple[float, float]:
    """Signal to noise over the run, and how many devices would make it workable."""
    mechanism, exposure = priced.mechanism, priced.exposure
    assert mechanism is not None
    assert exposure is not None

    def ratio(reports: float) -> float:
        signal, noise = mechanism.spread(numbers, reports)
        # The signal adds up over rounds; the noise as the square root, or less where it is correlated.
        return math.inf if noise == 0 else signal / noise * stage.rounds / mechanism.noise_over(stage.rounds)

    now = ratio(exposure.cohort)
    if not 0 < now < math.inf:
        return now, 0.0
    growth = math.log2(ratio(2 * exposure.cohort) / now)  # ½ where devices add noise, 1 where the server does
    return now, math.ceil(exposure.devices * (WEAK / now) ** (1 / growth))


def _verdict(ratio: float) -> Verdict:
    if math.isinf(ratio):
        return "no noise"
    return "hopeless" if ratio < INFEASIBLE else "weak" if ratio < WEAK else "workable"


def _advice(stage: Stage, priced: StagePrice) -> tuple[str, ...]:
    ways = ["more devices", "a larger epsilon", "fewer numbers (a smaller hyper.dim, or fewer leaves in trains)"]
    local = any(claim.model == "local" and claim.trust == "nobody" for claim in priced.claims)
    if local and priced.messages > 1:
        ways.append(f"fewer messages than {priced.messages} a device (privacy.messages, or sampler 'pass')")
    if local:
        ways.append("noise at the server (mechanism 'gaussian'), if users can trust it")
    elif stage.cohort["sampler"] in ("fixed", "poisson"):
        ways.append("larger cohorts")
    return tuple(ways)


def _device(method: Method, mechanism: Mechanism, number: int, params: dict, events: int) -> tuple[int, float, float]:
    """Bytes in memory, arithmetic and bytes of a report, of one device in one round; nothing is run."""
    secret = jax.random.key_data(jax.random.key(0, impl=KEYS))
    own = jax.eval_shape(
        lambda items: method.prepare(plain_history(items, method.catalog)), jnp.zeros(events, jnp.int32)
    )
    home = jax.eval_shape(lambda own: enter(method, number, new_home(secret), own), own)

    def turn(params: dict, home: Any, own: Any) -> Any:
        noise = seeded_noise_key(home, number, 0)
        return step(method, mechanism, number, open_round(0, params), home, own, noise)

    report = jax.eval_shape(turn, params, home, own)[1]
    cost = jax.jit(turn).lower(params, home, own).cost_analysis() or {}
    bytes_up = schema_of(jax.eval_shape(dense_tree, report.payload), report.weight.shape[0], mechanism.wire).bytes()
    return _size((params, home, own, report)), float(cost.get("flops", math.nan)), bytes_up


def _size(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


# ---- from which ε on ----


def feasible_epsilons(plan: Plan, devices: int, numbers: tuple[int, ...]) -> dict[str, Any] | None:
    """The ε of a run at which the verdict changes from hopeless to weak, and from weak to workable.

    `numbers` is how many numbers an update has, stage by stage. None where no single stage adds all the noise, or
    where its noise cannot be set by an ε. An ε out of range is 0 or ∞.
    """
    noisy = [number for number, stage in enumerate(plan.stages) if stage.rounds and numbers[number]]
    if len(noisy) != 1 or plan.stages[noisy[0]].privacy["mechanism"] == "none":
        return None
    stage, count = plan.stages[noisy[0]], numbers[noisy[0]]
    try:
        found = [_epsilon(stage, devices, count, ratio) for ratio in (INFEASIBLE, WEAK)]
    except PlanError:  # a setting for which there is no ε
        return None
    return {"method": stage.method, "mechanism": stage.privacy["mechanism"], "weak": found[0], "workable": found[1]}


def _epsilon(stage: Stage, devices: int, numbers: int, ratio: float) -> float:
    """The ε at which signal to noise over the run is `ratio`."""
    if name := mechanism_class(stage.privacy["mechanism"]).noise_setting:  # finding the noise for an ε is slow
        noise = _ratio(_with(stage, **{name: 1.0}), devices, numbers) / ratio
        mechanism, exposure = settle(_with(stage, **{name: noise}), devices)
        epsilon = next(claim.epsilon for claim in mechanism.claim(exposure) if claim.per == "run")
        return epsilon if _RANGE[0] <= epsilon <= _RANGE[1] else 0.0 if epsilon < 1 else math.inf

    def excess(log_epsilon: float) -> float:
        return math.log(_ratio(_with(stage, epsilon=math.exp(log_epsilon)), devices, numbers) / ratio)

    first, last = map(math.log, _RANGE)
    high = first  # upwards step by step: a mechanism need not have an answer for an ε far beyond what it needs
    while excess(high) < 0:
        high += 1.0
        if high > last:
            return math.inf
    if high == first:
        return 0.0
    return math.exp(float(brentq(excess, high - 1.0, high, xtol=1e-3)))  # pyright: ignore[reportArgumentType]


def _ratio(stage: Stage, devices: int, numbers: int) -> float:
    """Signal to noise over the run: the signal adds up over rounds, the noise less."""
    mechanism, exposure = settle(stage, devices)
    signal, noise = mechanism.spread(numbers, exposure.cohort)
    return signal / noise * stage.rounds / mechanism.noise_over(stage.rounds)


def _with(stage: Stage, **noise: float) -> Stage:
    kept = {name: value for name, value in thaw(stage.privacy).items() if name not in _NOISES}
    return replace(stage, privacy={**kept, **noise})
