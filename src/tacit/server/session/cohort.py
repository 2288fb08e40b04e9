"""Cohorts of a deployment: whom the plan's sampler asks in a round, among those who have enrolled."""

import numpy as np

from tacit.deploy.bundle import Kit
from tacit.privacy.sampler import Volunteers, build_sampler
from tacit.server.session.enrolment import Roll


def draw(kit: Kit, roll: Roll, seed: int, stage: int, round: int) -> dict[str, np.ndarray]:
    """Node -> who of its people. The same seed, stage and round draw the same people of the plan.

    Volunteers are drawn among as many as the price counts on, those who came first: with more of them, some are never
    asked; with fewer, the run does not begin.
    """
    sampler = build_sampler(kit.plan.stages[stage].cohort)
    if isinstance(sampler, Volunteers):
        return roll.asked(sampler.draw_among(seed, stage, round, roll.volunteers[: kit.volunteers(stage)]))
    return roll.asked(sampler.draw(seed, stage, round, kit.people))
