"""A simulated federation on one machine: price a plan, run it, evaluate it, recommend.

python examples/simulate.py
"""

import tacit


def main() -> None:
    log = tacit.dataset("groups", users=1000)
    plan = tacit.plan("fcf").with_setting("privacy", {"mechanism": "gaussian", "epsilon": 8.0})
    print(f"plan {plan.name}, digest {plan.digest}")
    print(" ", tacit.price(plan, len(log)).whole)
    run = tacit.simulate(plan, log, protocol="full", seed=0)
    print(run.metrics)
    print(run.recommend(users=[17], k=3))
    print(f"each device sent {run.bytes_up_per_device:,.0f} bytes and received {run.bytes_down_per_device:,.0f}")


if __name__ == "__main__":
    main()
