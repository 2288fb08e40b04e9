"""Correlated noise: how much noise a model has after its last round, at equal ε, with independent and with correlated noise.

    python benchmarks/correlated_noise.py                                    # plans of the library, longer and shorter
    python benchmarks/correlated_noise.py --plan dp-privrec-one --rounds 200 1000 --people 6040 --share 0.02 --epsilon 2

Nothing is trained: the noise follows from the plan's rounds and from how often a device reports. A number is the standard
deviation of the noise in the sum of all rounds' mean updates, times a million, in clip bounds; what is learned in so many
rounds adds up to the same in every column.

all        everybody in every round
fixed      cohorts of a fixed size, drawn at random: amplified by sampling, as long as the draw stays secret
pass       everybody once per pass, shuffled anew for each pass
blt        everybody once per pass, in the same order, with privacy.correlation = "blt"
"""

import argparse
from typing import Any

from tacit.core.plan import Plan
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose
from tacit.privacy.price import settle

ROUNDS, SHARES, EPSILONS = (0, 200, 1000), (0.02, 0.1), (1.0, 8.0)  # 0: as many rounds as in the plan
WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "fixed": {"cohort.sampler": "fixed"},
    "pass": {"cohort.sampler": "pass"},
    "blt": {"cohort.sampler": "pass", "cohort.shuffle": "once", "privacy.correlation": "blt"},
}


def final_noise(plan: Plan, way: str, people: int, share: float) -> float | None:
    """The noise after the last round, in clip bounds; None where no noise keeps the promise."""
    count = {} if way == "all" else {"cohort.count": max(1, round(share * people))}
    stage = choose(plan, {"cohort": {"sampler": "all"}, **WAYS[way], **count}).stages[0]
    try:
        mechanism, exposure = settle(stage, people)
    except PlanError:
        return None
    one = mechanism.spread(1, exposure.cohort)
    return one.noise / one.signal * mechanism.noise_over(stage.rounds)


def main() -> None:
    """Print a table for each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", nargs="+", default=["fpl-dp", "dp-privrec-one"])
    parser.add_argument("--rounds", nargs="+", type=int, default=ROUNDS)
    parser.add_argument("--people", type=int, default=6040)
    parser.add_argument("--share", nargs="+", type=float, default=SHARES)
    parser.add_argument("--epsilon", nargs="+", type=float, default=EPSILONS)
    asked = parser.parse_args()
    for name in asked.plan:
        print(f"\n{name}, {asked.people:,} people\n  rounds  share     ε" + "".join(f"{way:>10}" for way in WAYS))
        for rounds in asked.rounds:
            plan = choose(name, {"rounds": rounds} if rounds else {})
            for share in asked.share:
                for epsilon in asked.epsilon:
                    promised = choose(plan, {"privacy.epsilon": epsilon})
                    found = [final_noise(promised, way, asked.people, share) for way in WAYS]
                    cells = "".join(f"{'–' if noise is None else f'{1e6 * noise:,.0f}':>10}" for noise in found)
                    print(f"{plan.stages[0].rounds:>8}{share:>7.0%}{epsilon:>6g}{cells}", flush=True)


if __name__ == "__main__":
    main()
