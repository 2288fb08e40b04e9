"""How fast is a round? Against a NumPy loop, and an epoch against `implicit`. Ratios, interleaved in one process.

    make bench                       # or: python benchmarks/speed.py [--only W1|SeqMF|ML-1M]

The MovieLens-1M epoch needs ratings.dat in $TACIT_DATA/ml-1m (from grouplens.org); without it that race is left out.
"""

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse as sparse
from harness import RESULTS, machine, race, rounds_of, write

from tacit.core.plan import Plan, Stage
from tacit.lab.data import Population, from_events
from tacit.lab.data.synthetic.small import random_histories

DIM, PENALTY, RATE = 32, 0.1, 0.1


def fcf(weights: str) -> Plan:
    hyper = {"dim": DIM, "penalty": PENALTY, "weights": weights, "spread": 0.3}
    server = {"rule": "sgd", "rate": RATE, "scale": "sum" if weights == "own" else "mean"}
    return Plan(f"fcf-{weights}", (Stage("fcf", hyper, ("items",), server=server, rounds=10**6),))


def numpy_round(table: np.ndarray, people: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """One device after another, as a careful NumPy programmer writes it."""
    total, eye = np.zeros_like(table), PENALTY * np.eye(DIM, dtype=table.dtype)
    for items, c in people:
        rows = table[items]
        weighted = rows.T * c
        p = np.linalg.solve(weighted @ rows + eye, weighted.sum(1))
        total[items] += np.outer(c * (rows @ p - 1), p)
    return table - RATE * total


def seqmf(dim: int = DIM) -> Plan:
    hyper = {"dim": dim, "penalty": PENALTY, "spread": 0.3}
    server = {"rule": "sgd", "rate": RATE, "scale": "sum"}
    return Plan("seqmf", (Stage("seqmf", hyper, ("items",), server=server, rounds=10**6),))


def numpy_seqmf_round(table: np.ndarray, people: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """The same for SeqMF: each device's own small matrix of steps beside its counts."""
    total, eye = np.zeros_like(table), PENALTY * np.eye(DIM, dtype=table.dtype)
    for items, c, steps in people:
        rows = table[items]
        carried = steps @ rows
        h = (rows * carried).sum(axis=1)
        weighted = rows.T * c
        p = np.linalg.solve(weighted @ rows + eye, weighted @ (1 - h))
        w = c * (rows @ p + h - 1)
        total[items] += np.outer(w, p) + w[:, None] * carried + steps.T @ (w[:, None] * rows)
    return table - RATE * total


def steps_of(population: Population) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    people = []
    for u in range(len(population)):
        history = population.items[population.offsets[u] : population.offsets[u + 1]]
        items, place, d = np.unique(history, return_inverse=True, return_counts=True)
        steps = np.zeros((items.size, items.size), np.float32)
        np.add.at(steps, (place[:-1], place[1:]), 1)
        people.append((items, (d / d.sum()).astype(np.float32), steps / d[:, None].astype(np.float32)))
    return people


def people_of(population: Population) -> list[tuple[np.ndarray, np.ndarray]]:
    people = []
    for u in range(len(population)):
        items, d = np.unique(population.items[population.offsets[u] : population.offsets[u + 1]], return_counts=True)
        people.append((items, (d / d.sum()).astype(np.float32)))
    return people


def check(turn, table: np.ndarray, people: list, by_hand=numpy_round) -> float:
    """The first round against float64, relative to the size of the step."""
    wide = [(items, *(part.astype(float) for part in rest)) for items, *rest in people]
    right = by_hand(table.astype(float), wide)
    error = np.linalg.norm(np.asarray(turn()["items"]) - right) / np.linalg.norm(right - table)
    assert error < 1e-5, error
    return float(error)


def first_table(plan: Plan, population: Population) -> np.ndarray:
    from tacit.lab.simulation.federation import Federation

    return np.asarray(Federation(plan, population).params["items"])


def w1(repeats: int = 41) -> dict:
    """1000 devices, 2000 items, about 60 each."""
    population, plan = random_histories(1000, 2000, 60), fcf("own")
    people, table = people_of(population), first_table(plan, population)
    error = check(rounds_of(plan, population), table, people)
    runners = {"NumPy loop": lambda: numpy_round(table, people), "Tacit": rounds_of(plan, population)}
    return {"runners": race(runners, repeats), "error_against_float64": error, "target": "at least 4 times faster"}


def sequence(repeats: int = 41) -> dict:
    """The same people, what follows what included."""
    population, plan = random_histories(1000, 2000, 60), seqmf()
    people, table = steps_of(population), first_table(plan, population)
    error = check(rounds_of(plan, population), table, people, numpy_seqmf_round)
    runners = {"NumPy loop": lambda: numpy_seqmf_round(table, people), "Tacit": rounds_of(plan, population)}
    return {"runners": race(runners, repeats), "error_against_float64": error, "target": "at least 4 times faster"}


def movielens(folder: Path) -> Population:
    lines = (folder / "ratings.dat").read_text(encoding="latin-1").splitlines()
    table = np.array([line.split("::")[:2] for line in lines]).astype(int)
    user, item = (np.unique(table[:, column], return_inverse=True)[1] for column in (0, 1))
    return from_events(user, item)


def implicit_iteration(population: Population):
    """One ALS-CG iteration, both sides, native code, two threads."""
    import implicit
    from threadpoolctl import threadpool_limits

    user = np.repeat(np.arange(len(population)), population.lengths)
    ones = np.ones(user.size, np.float32)
    seen = sparse.csr_matrix((ones, (user, population.items)), (len(population), population.catalog.n_items))
    turned = seen.T.tocsr()
    model: Any = implicit.als.AlternatingLeastSquares(DIM, use_cg=True, use_native=True, num_threads=2, iterations=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(seen, show_progress=False)

    def iteration() -> None:
        with threadpool_limits(1, "blas"):  # as implicit itself advises
            for counts, mine, theirs in (
                (seen, model.user_factors, model.item_factors),
                (turned, model.item_factors, model.user_factors),
            ):
                model.solver(counts, mine, theirs, model.regularization, cg_steps=model.cg_steps, num_threads=2)

    return iteration


def epoch(folder: Path, repeats: int = 25) -> dict:
    """Every MovieLens-1M user once: FCF with row-sparse and with dense updates, and one ALS-CG iteration."""
    population = movielens(folder)
    error = check(rounds_of(fcf("own"), population), first_table(fcf("own"), population), people_of(population))
    runners = {
        "implicit ALS-CG": implicit_iteration(population),
        "Tacit, row-sparse": rounds_of(fcf("own"), population),
        "Tacit, dense": rounds_of(fcf("all"), population),
    }
    return {
        "runners": race(runners, repeats),
        "error_against_float64": error,
        "target": "row-sparse at least as fast (times_faster >= 1)",
        "note": "an ALS-CG iteration solves both sides by three warm steps; an FCF epoch solves users to rounding and sums "
        "the item gradient",
    }


def show(title: str, result: dict) -> None:
    print(f"\n{title}   (target: {result['target']}; error {result['error_against_float64']:.1e})")
    for name, numbers in result["runners"].items():
        print(f"  {name:<20} {numbers['ms']:8.2f} ms   {numbers['times_faster']:6.2f} times as fast as the first")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["W1", "SeqMF", "ML-1M"])
    only = parser.parse_args().only
    file = RESULTS / f"speed-{jax.default_backend()}.json"
    before = json.loads(file.read_text()) if only and file.exists() else {}  # the others' results stay
    results: dict = {**before, "machine": machine()}
    if only in (None, "W1"):
        results["W1"] = w1()
        show("W1: a round of 1000 devices", results["W1"])
    if only in (None, "SeqMF"):
        results["SeqMF"] = sequence()
        show("SeqMF: a round of 1000 devices", results["SeqMF"])
    folder = Path(os.environ.get("TACIT_DATA", "data")) / "ml-1m"
    if only in (None, "ML-1M"):
        if (folder / "ratings.dat").exists():
            results["ML-1M"] = epoch(folder)
            show("MovieLens-1M: one epoch", results["ML-1M"])
        else:
            print("\nMovieLens-1M: left out; put ratings.dat into $TACIT_DATA/ml-1m.")
    write(file.stem, results)


if __name__ == "__main__":
    main()
