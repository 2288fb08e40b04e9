"""A federation on one machine: price it, run it, ask it.

python examples/simulate.py
"""

import tacit
from tacit.lab.evaluate import leave_last_out_metrics
from tacit.lab.split import leave_last_out
from tacit.lab.synthetic import tastes


def main() -> None:
    split = leave_last_out(tastes(devices=1000, items=200))
    plan = tacit.plan("fcf").with_setting("hyper.dim", 16)
    print(f"plan {plan.name}, digest {plan.digest}")
    for claim in tacit.price(plan, len(split.train))[0]:
        print(" ", claim)
    run = tacit.simulate(plan, split.train, seed=0)
    print(leave_last_out_metrics(run, split))
    print(f"each device sent {run.bytes_up_per_device:,.0f} bytes and received {run.bytes_down_per_device:,.0f}")


if __name__ == "__main__":
    main()
