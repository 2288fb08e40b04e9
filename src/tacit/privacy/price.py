"""Price: what a plan costs, before anything runs. A pure function of the plan and the number of devices."""

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.core.plan import Plan, Stage
from tacit.errors import PlanError
from tacit.privacy.accounting.events import (
    LEAST_DELTA,
    Drawn,
    Event,
    RawData,
    Relation,
    Unbounded,
    event_to_dict,
    undrawn,
)
from tacit.privacy.budget import COARSENESS, Entry
from tacit.privacy.claim import Claim, Trust, Unit
from tacit.privacy.mechanism import Mechanism, build_mechanism
from tacit.privacy.sampler import DRAWN, Exposure, Fitted, build_sampler, sampler_of

SEEDED = "simulated: the noise follows from the seed of the run, and whoever knows the seed can subtract it"
_NOTHING = Claim("local", "user", "replace_one", 0.0, 0.0, "run", "corrected", "nobody", ("nothing leaves the device",))


@dataclass(frozen=True)
class StagePrice:
    """What one stage costs a device, and what is visible in spite of the noise."""

    claims: tuple[Claim, ...]
    visible: tuple[str, ...]
    mechanism: Mechanism | None = None  # settled; None where nothing is sent
    exposure: Exposure | None = None
    event: Event | None = None
    covers: int = 1  # rounds covered by one event
    fitted: Fitted = "rounds"  # as the stage's sampler says

    @property
    def raw(self) -> bool:
        """Whether the stage needs raw data, for which no bytes are counted."""
        return self.fitted != "rounds"

    @property
    def others(self) -> int:
        """How many devices never take part in this stage."""
        return self.exposure.others if self.exposure is not None else 0

    @property
    def messages(self) -> int:
        """The most reports a device sends in this stage."""
        if self.mechanism is None or self.exposure is None:
            return 0
        return self.exposure.at_most(self.mechanism.messages).messages

    @property
    def spent(self) -> tuple[tuple[Event, int], ...]:
        """The events of the most exposed device, for the accountant."""
        if self.event is None:
            return ()
        times = 1 if self.raw else self.messages if self.covers == 1 else self.covers
        return ((self.event, times),)

    @property
    def undrawn(self) -> "StagePrice":
        """The same stage for a device that answers as often as it ever would, whoever chose the cohorts."""
        if not isinstance(self.event, Drawn):
            return self
        claims = tuple(claim for claim in self.claims if claim.per == "run")[1:]
        return replace(self, claims=claims, event=undrawn(self.event), covers=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        mechanism = self.mechanism.name if self.mechanism else None
        return {
            "mechanism": mechanism,
            "messages": self.messages,
            "fitted": self.fitted,
            "sends": "raw data" if self.raw else mechanism or "nothing sent",
            "noise": self.mechanism.describe() if self.mechanism else {},
            "event": event_to_dict(self.event) if self.event else None,
            "claims": [claim.to_dict() for claim in self.claims],
            "visible": list(self.visible),
        }


@dataclass(frozen=True)
class Price:
    """What a plan costs for so many devices: stage by stage, and the whole."""

    plan: Plan
    devices: int
    stages: tuple[StagePrice, ...]
    whole: Claim  # of the run; where a stage has volunteers only: for all other users
    beside: tuple[Claim, ...] = ()  # for volunteers, for a finer unit, and if a stage without a guarantee were public

    @property
    def raw(self) -> bool:
        """Whether any stage needs raw data: then the bytes of messages do not measure what was revealed."""
        return any(stage.raw for stage in self.stages)

    @property
    def covered(self) -> tuple[StagePrice, ...]:
        """The stages that the claim of the run covers."""
        return tuple(stage for stage in self.stages if not stage.others)

    @property
    def undrawn(self) -> Claim | None:
        """The claim of the run however the cohorts are chosen; None where none is drawn at random."""
        return next(iter(_if_chosen(self.stages)), None)

    @property
    def claims(self) -> tuple[tuple[Claim, ...], ...]:
        """For each stage, its claims."""
        return tuple(stage.claims for stage in self.stages)

    @property
    def claim_rows(self) -> list[dict[str, Any]]:
        """Every claim with its stage, for JSON."""
        return [{"stage": number, **claim.to_dict()} for number, stage in enumerate(self.claims, 1) for claim in stage]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "plan": self.plan.name,
            "digest": self.plan.digest,
            "devices": self.devices,
            "whole": self.whole.to_dict(),
            "beside": [claim.to_dict() for claim in self.beside],
            "stages": [stage.to_dict() for stage in self.stages],
        }


def price(plan: Plan, devices: int) -> Price:
    """What the plan guarantees and what is visible, for a population of this size.

    >>> str(price(Plan("p", (Stage("mfu"),)), 10).whole)
    'ε = 0 per run, local, unit user, replace-one, trust: nobody (nothing leaves the device)'
    """
    if devices < 1:
        raise PlanError(f"The number of devices must be at least 1, got {devices}.")
    stages = tuple(_price_stage(stage, devices, number) for number, stage in enumerate(plan.stages, 1))
    whole = _compose(tuple(stage for stage in stages if not stage.others))
    _check_shares(plan, whole)
    if any(stage.others for stage in stages):
        whole = _with_condition(whole, f"for all other users, each replaced by any user: {_volunteered(plan, stages)}")
    return Price(
        plan,
        devices,
        stages,
        whole,
        (*_of_volunteers(plan, stages), *_of_finest_unit(stages), *_if_public(stages), *_if_chosen(stages)),
    )


def of_simulation(price: Price) -> Price:
    """The price of a simulated run: every claim that rests on noise has the condition that the seed stays secret."""

    def seeded(claim: Claim) -> Claim:
        rests_on_noise = 0 < claim.epsilon < math.inf
        return replace(claim, conditions=(*claim.conditions, SEEDED)) if rests_on_noise else claim

    def each(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        return tuple(seeded(claim) for claim in claims)

    stages = tuple(replace(stage, claims=each(stage.claims)) for stage in price.stages)
    return replace(price, stages=stages, whole=seeded(price.whole), beside=each(price.beside))


def _check_shares(plan: Plan, whole: Claim) -> None:
    """Refuse an ε that several stages share and do not keep."""
    promised = [stage.privacy["epsilon"] for stage in plan.stages if "share" in stage.privacy]
    if promised and whole.epsilon > min(promised) * (1 + 1e-6):
        raise PlanError(
            f"privacy.epsilon = {min(promised):g} is a promise that the stages of {plan.name} do not keep together: they "
            f"cost {whole.epsilon:.4g}. Let their shares sum to 1, and every other stage send nothing."
        )


def ledger_entry_of(stage: StagePrice, plan: str, run: str, number: int, now: float, size: int) -> Entry:
    """The ledger entry of one message of a stage."""
    assert stage.event is not None
    # Raw data is handed over once: the claim for the run is also that of the single entry.
    alone = next((claim for claim in reversed(stage.claims) if claim.per in ("round", "message")), stage.claims[0])
    unit, relation = stage.claims[0].unit, stage.claims[0].relation
    return Entry(now, plan, run, number, 0, unit, relation, stage.event, alone.epsilon, alone.delta, size, stage.covers)


def settle(stage: Stage, devices: int, number: int = 1) -> tuple[Mechanism, Exposure]:
    """A stage's mechanism with the noise that keeps its promise, and the exposure it was found for."""
    where = f"Plan stage {number}: privacy"
    exposure = build_sampler(stage.cohort).exposure(stage.rounds, devices)
    return build_mechanism(stage.privacy, where).settle(exposure), exposure


def _price_stage(stage: Stage, devices: int, number: int) -> StagePrice:
    sampler = sampler_of(stage)
    if not stage.trains:
        return StagePrice((_NOTHING,), ())
    if sampler.fitted != "rounds":
        raw = Claim("central", "user", "replace_one", math.inf, 0.0, "run", "corrected", "server", sampler.sees)
        return StagePrice((raw,), sampler.sees, event=RawData("raw data"), fitted=sampler.fitted)
    mechanism, exposure = settle(stage, devices, number)
    event, covers = mechanism.event(exposure)
    priced = StagePrice(mechanism.claim(exposure), mechanism.visible(), mechanism, exposure, event, covers)
    return _with_undrawn(priced) if isinstance(event, Drawn) else priced


def _with_undrawn(stage: StagePrice) -> StagePrice:
    """The stage with one claim more: what it costs where the server does not draw the cohorts as the plan says."""
    assert isinstance(stage.event, Drawn)
    run = _two_sided(stage.claims)
    epsilon = _epsilon(((undrawn(stage.event), stage.messages),), run.delta, run.relation)
    words = f"however the cohorts are chosen: a device answers at most {stage.messages} times"
    rest = tuple(word for word in run.conditions if word != DRAWN)
    return replace(stage, claims=(*stage.claims, replace(run, epsilon=epsilon, conditions=(words, *rest))))


def _compose(stages: tuple[StagePrice, ...], unit: Unit | None = None) -> Claim:
    """All stages together, in one accountant: the output of a stage is the next one's broadcast.

    `unit` may be a finer one than some stages promise for. Any two histories of a user include two that differ in an
    interaction, so a promise for a user under replace-one covers it.
    """
    costly = [stage for stage in stages if stage.event is not None]
    runs = [_two_sided(stage.claims) for stage in costly]
    if len(runs) < 2:
        return runs[0] if runs else _NOTHING
    from tacit.privacy.accounting import accountant

    units, conditions = (
        {run.unit for run in runs},
        tuple(dict.fromkeys(word for run in runs for word in run.conditions)),
    )
    if len(units) > 1 and unit is None:
        differ = ("stages protect different units, so no single number covers the plan; see each stage",)
        return replace(runs[0], epsilon=math.inf, unit="user", conditions=differ)
    relation = "replace_one" if len(units) > 1 else _common(tuple(run.relation for run in runs))
    spent = tuple(part for stage in costly for part in stage.spent)
    delta = accountant.total_delta(run.delta for run in runs)
    epsilon = _epsilon(spent, delta, relation)
    if math.isinf(epsilon) and delta < LEAST_DELTA:  # where there is no guarantee, nothing of it is left to the tables
        delta = 0.0
    return Claim(
        "local" if all(run.model == "local" for run in runs) else "central",
        unit or runs[0].unit,
        relation,
        epsilon,
        delta,
        "run",
        "paper" if any(run.fidelity == "paper" for run in runs) else "corrected",
        _trusted([run.trust for run in runs]),
        conditions,
    )


def _of_volunteers(plan: Plan, stages: tuple[StagePrice, ...]) -> tuple[Claim, ...]:
    """The claim for the volunteers, who take part in more stages than the others."""
    if not any(stage.others for stage in stages):
        return ()
    return (_with_condition(_compose(stages), f"for volunteers: {_volunteered(plan, stages)}"),)


def _volunteered(plan: Plan, stages: tuple[StagePrice, ...]) -> str:
    """How many volunteer, and in which stage."""
    words = {
        "consent": "{0:,} agreed to take part in stage {1}",
        "public": "the histories of {0:,} in stage {1} are public",
    }
    said = [
        words[stage.cohort.get("because", "consent")].format(priced.exposure.devices, number)
        for number, (stage, priced) in enumerate(zip(plan.stages, stages), 1)
        if priced.others and priced.exposure is not None
    ]
    return ", ".join(said)


def _of_finest_unit(stages: tuple[StagePrice, ...]) -> tuple[Claim, ...]:
    """Where stages promise for different units, what the plan promises for the finest of them."""
    units: set[Unit] = {
        _two_sided(stage.claims).unit for stage in stages if stage.event is not None and not stage.others
    }
    if len(units) < 2:
        return ()
    return (
        _compose(tuple(stage for stage in stages if not stage.others), min(units, key=lambda unit: COARSENESS[unit])),
    )


def _if_public(stages: tuple[StagePrice, ...]) -> tuple[Claim, ...]:
    """What the stages with a guarantee would be worth if the results of the stages without one were public anyway.

    It is not the plan's claim: those results were learned from the same people.
    """
    priced = [(number, stage) for number, stage in enumerate(stages, 1) if stage.event is not None and not stage.others]
    open_ones = [number for number, stage in priced if isinstance(stage.event, Unbounded)]
    rest = tuple(stage for number, stage in priced if number not in open_ones)
    if not open_ones or not rest:
        return ()
    listed = " and ".join(map(str, open_ones))
    return (_with_condition(_compose(rest), f"only if what stage {listed} learned were public, and it was not"),)


def _if_chosen(stages: tuple[StagePrice, ...]) -> tuple[Claim, ...]:
    """What the run costs where the server does not draw the cohorts as the plan says, but chooses them."""
    covered = [stage for stage in stages if not stage.others] or list(stages)
    if not any(isinstance(stage.event, Drawn) for stage in covered):
        return ()
    return (_compose(tuple(stage.undrawn for stage in covered)),)


def _with_condition(claim: Claim, words: str) -> Claim:
    """The claim with one more condition, which comes first."""
    return replace(claim, conditions=(words, *claim.conditions))


def _two_sided(claims: tuple[Claim, ...]) -> Claim:
    """The claim of the run that protects in both directions."""
    return next(claim for claim in claims if claim.per == "run" and claim.relation != "one_sided_1_to_0")


def _trusted(trusts: list[Trust]) -> Trust:
    """Who must be trusted in any of the stages."""
    order: tuple[Trust, ...] = ("server", "organisation", "nobody")
    return next(trust for trust in order if trust in trusts)


def _common(relations: tuple[Relation, ...]) -> Relation:
    """The relation of all stages; where they differ, replace-one, which covers adding and removing."""
    return relations[0] if len(set(relations)) == 1 else "replace_one"


def _epsilon(spent: tuple, delta: float, relation: Relation) -> float:
    from tacit.privacy.accounting import accountant

    return accountant.compose(spent, delta, relation).epsilon
