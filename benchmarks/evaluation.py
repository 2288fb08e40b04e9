"""How long does it take to rank every item for everybody? Against one matrix product of the same shape and its top 10.

python benchmarks/evaluation.py        # MovieLens-1M from $TACIT_DATA/ml-1m, else a synthetic log of its shape
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from harness import machine, race, write
from speed import fcf, movielens

from tacit.core.plan import Plan
from tacit.lab.data import Population
from tacit.lab.data.synthetic.small import random_histories
from tacit.lab.evaluation.scoring import ranks, top_lists
from tacit.lab.evaluation.splits import leave_last_out
from tacit.lab.runs.run import Run
from tacit.lab.simulation.federation import Federation


def started(plan: Plan, train: Population) -> Run:
    """The first round of a long run: buckets are cut for a thousand rounds, one is enough to score with."""
    federation = Federation(plan, train)
    rounds = federation.begin(0)
    assert rounds is not None
    federation.play(rounds, 0, 1)
    return Run.of(federation, [])


def main(repeats: int = 7) -> None:
    folder = Path(os.environ.get("TACIT_DATA", "data")) / "ml-1m"
    real = (folder / "ratings.dat").exists()
    split = leave_last_out(movielens(folder) if real else random_histories(6040, 3706, 165))
    run = started(fcf("own").with_setting("rounds", 1000), split.train)
    users = jnp.asarray(np.random.default_rng(0).normal(size=(len(split.train), 32)), jnp.float32)
    table = run.params["items"]
    product = jax.jit(lambda p, q: jax.lax.top_k(p @ q.T, 10))
    by_numpy = np.asarray(users), np.asarray(table)

    def numpy_product() -> np.ndarray:
        scores = by_numpy[0] @ by_numpy[1].T
        return np.argpartition(-scores, 10, axis=1)[:, :10]

    runners = {
        "JAX product + top 10": lambda: product(users, table),
        "NumPy product + top 10": numpy_product,
        "Tacit, rank of every target": lambda: ranks(run, split),
        "Tacit, top 10 for everybody": lambda: top_lists(run, split)[1],
    }
    result = {
        "machine": machine(),
        "real_data": real,
        "target": "at most twice a product and top 10",
        "runners": race(runners, repeats),
    }
    for name, numbers in result["runners"].items():
        print(f"{name:<28} {numbers['ms']:8.1f} ms   {1 / numbers['times_faster']:5.2f} times as long as the first")
    write(f"evaluation-{jax.default_backend()}", result)


if __name__ == "__main__":
    main()
