"""Price: what a plan costs, before anything runs. A pure function of the plan and the number of devices."""

import math

from tacit.plans import Plan, Stage
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.sampler import Pooled, build_sampler


def price(plan: Plan, devices: int) -> tuple[tuple[Claim, ...], ...]:
    """For each stage, what it guarantees: per message and per run.

    >>> from tacit.plans import Stage
    >>> [[claim]] = price(Plan("p", (Stage("mfu"),)), 10)
    >>> str(claim)
    'ε = 0 per run, local, unit user, replace-one, trust: nobody (nothing leaves the device)'
    """
    return tuple(_price_stage(stage, devices) for stage in plan.stages)


def _price_stage(stage: Stage, devices: int) -> tuple[Claim, ...]:
    sampler = build_sampler(stage.cohort)
    if isinstance(sampler, Pooled):
        raw = ("raw data: whole histories are pooled on one machine",)
        return (Claim("central", "user", "replace_one", math.inf, 0.0, "run", "corrected", "server", raw),)
    mechanism = build_mechanism(stage.privacy)
    if stage.rounds == 0:
        nothing = ("nothing leaves the device",)
        return (Claim("local", "user", "replace_one", 0.0, 0.0, "run", "corrected", "nobody", nothing),)
    exposure = sampler.exposure(stage.rounds, devices)
    if mechanism.messages is not None:
        exposure = exposure._replace(messages=min(exposure.messages, mechanism.messages))
    return mechanism.claim(exposure)
