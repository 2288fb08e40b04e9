"""What does it cost to protect pairwise learning? F1@10 against ε, and what attacks find, variant by variant.

    python benchmarks/fpl_privacy.py                                   # three seeds, every log that is there
    python benchmarks/fpl_privacy.py --log ml-latest-small --seed 0    # a part, into a file of its own
    python benchmarks/fpl_privacy.py --log ml-1m --only "lies first"   # the variants with these words
    python benchmarks/fpl_privacy.py --merge                           # parts into what is kept; theirs count
    python benchmarks/fpl_privacy.py --people 500 2000 8000 32000      # how many people it takes, on a synthetic log
    python benchmarks/fpl_privacy.py --shares                          # what each share reveals; `tacit device share` shows it

Everybody's newest fifth is asked (protocol `fpl`). Attacks see what leaves the device, or, where the server is trusted and
adds the noise, what leaves the server. Where there is noise the attacker is told how many items everybody has.
"""

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, machine, write

import tacit.device.methods
from tacit.audit.attacks import load_attack, score_reconstruction
from tacit.core.plan import Plan
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.audits.fpl_reconstruction import Tap, leakage, public_facts
from tacit.lab.data import Population
from tacit.lab.data.cleaning import of_marked_items
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.selection import owners
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.scoring import seen_mask
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import GRID, collect_reports, cooccurrence_job, enter_devices
from tacit_papers.dplcf.readings import CollectedReports
from tacit_papers.dplcf.readings import log_from_bits as said_log
from tacit_papers.fpl.study import Log, log_of

LOGS = ("ml-1m", "foursquare-italy", "ml-latest-small", "groups")  # the last is synthetic, and always there
EPOCHS, MESSAGES, ATTACKED = 20, (1, 10, 100), 100
SEEDS = (0, 1, 2)
CENTRAL, LOCAL, FIRST = (2.0, 8.0, 32.0, 128.0), (8.0, 128.0), (2.0, 4.0, 6.0)
SHARES, SHARED_ON, HIDDEN = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0), ("groups", "ml-1m"), 0.2
REVEALED = Path(tacit.device.methods.__path__[0]) / "fpl.json"  # ships with the package


def variants(log: Log) -> Iterator[tuple[str, Plan]]:
    """Name and plan of everything that is learned by rounds."""
    rounds = EPOCHS * log.triples
    yield "Top-Pop", choose("top-pop")
    for pi in (0.0, 0.5, 1.0):
        yield f"pFPL, π = {pi:g}", choose("fpl", {"rounds": rounds, "hyper.pi": pi})
    yield "pFPL, π = 0.5, kept coins", choose("fpl", {"rounds": rounds, "hyper.pi": 0.5, "hyper.pi_memo": True})
    for epsilon in CENTRAL:
        yield f"noise at the server, ε = {epsilon:g}", choose("fpl-dp", epsilon=epsilon)
    for epsilon in LOCAL:
        privacy = {"mechanism": "qharmony", "form": "clip", "bound": 0.5, "epsilon": epsilon}
        yield f"noise at home, ε = {epsilon:g}", choose("fpl-dp", {"privacy": privacy, "rounds": 5})


def measured(name: str, log: Log, run: Run, seed: int, truth: bool = False) -> dict[str, Any]:
    """Quality, what is promised, and what attacks find."""
    split = log.split if not truth else replace(log.split, people=log.split.train)
    answers, whole = load_protocol("fpl").evaluate(run, split, seed), run.price.whole
    made = {"name": name, "seed": seed, "metrics": answers.metrics, "epsilon": whole.epsilon, "delta": whole.delta}
    made |= {"unit": whole.unit, "trust": whole.trust, "attacks": []}
    if run.plan.stages[0].method == "fpl":
        noisy = run.plan.stages[0].privacy["mechanism"] != "none"
        options: dict[str, Any] = {"rounds": (5,), "attacks": ("sign",)} if noisy else {"rounds": MESSAGES}
        leaks = leakage(run, devices=ATTACKED, truth=log.split.train, **options)
        made["attacks"] = [one.to_dict() for one in leaks]
    return made


def lies_of(people: Population, epsilon: float, seed: int) -> tuple[Population, np.ndarray]:
    """Everybody's history through randomised response, by the devices' own code; as a log and as bits."""
    plan = choose("dplcf", epsilon=epsilon)
    federation = Federation(plan, people, seed=seed, performance=Performance(grid=GRID))
    job = cooccurrence_job(federation)
    enter_devices(federation, job)
    reports = collect_reports(federation, job)
    bits = np.unpackbits(reports.packed, axis=1, count=reports.width).astype(bool)
    return said_log(CollectedReports(federation, job, reports, np.zeros((0, 0), np.int32))), bits


def randomised_first(log: Log, epsilon: float, seed: int) -> dict[str, Any]:
    """Learn from lies, which may be told to anybody; answer at home from the truth."""
    people = log.split.train
    lies, bits = lies_of(people, epsilon, seed)
    plan = choose("fpl", {"rounds": EPOCHS * log.triples, "hyper.pi": 1.0, "hyper.steps": 1000})
    run = simulate(plan, lies, seed=seed, quiet=True)
    made = measured(f"lies first, ε = {epsilon:g}", log, run, seed, truth=True)
    had = seen_mask(people, np.arange(len(people)), np.arange(people.catalog.n_items))
    said = {"attack": "believe every word", "rounds": 1, **score_reconstruction(bits, had)._asdict()}
    promised = {"epsilon": epsilon, "delta": 0.0, "unit": "interaction", "trust": "nobody"}
    return {**made, **promised, "attacks": [*made["attacks"], said]}


def everything(log: Log) -> Iterator[tuple[str, Callable[[int], dict[str, Any]]]]:
    """Name of each variant, and what makes its row from a seed."""
    for label, plan in variants(log):
        yield label, partial(learned, label, plan, log)
    for epsilon in FIRST:
        yield f"lies first, ε = {epsilon:g}", partial(randomised_first, log, epsilon)


def learned(label: str, plan: Plan, log: Log, seed: int) -> dict[str, Any]:
    return measured(label, log, simulate(plan, log.split.train, seed=seed, quiet=True), seed)


def run_study(name: str, seeds: Sequence[int], only: str) -> Iterator[dict[str, Any]]:
    """Rows of one log, of the variants whose name has these words."""
    log = log_of(name, dataset(name))
    for seed, (label, make) in product(seeds, list(everything(log))):
        if only in label:
            began = time.perf_counter()
            row = {"log": name, **make(seed)}
            print(_line(row, time.perf_counter() - began), flush=True)
            yield row


def among(users: int) -> Iterator[dict[str, Any]]:
    """What protects, beside Top-Pop, among so many people."""
    log = log_of("movies", dataset("movies", users=users))
    for seed in SEEDS:
        for label, make in everything(log):
            if label.startswith(
                ("Top-Pop", "noise at the server, ε = 2", "noise at the server, ε = 8", "lies first, ε = 2")
            ):
                row = {"people": users, **make(seed)}
                kept = {name: row[name] for name in ("people", "name", "seed", "epsilon", "delta", "unit", "trust")}
                print(f"{users:,} people, {label}: F1@10 {row['metrics']['F1@10']:.4f}", flush=True)
                yield {**kept, "F1@10": row["metrics"]["F1@10"]}


# ---- what each share reveals ----


def share_row(log: Log, pi: float, seed: int = 0) -> dict[str, Any]:
    """What a share shows in the open, and what the best attack finds all the same: parts of what a person has."""
    plan = choose("fpl", {"rounds": EPOCHS * log.triples, "hyper.pi": pi})
    run = simulate(plan, log.split.train, seed=seed, quiet=True)
    leaks = {one.attack: one.success for one in leakage(run, MESSAGES[-1:], devices=ATTACKED)}
    best = max((name for name in leaks if name not in ("chance", "popularity")), key=lambda name: leaks[name].f1)
    found = {"shown": leaks["sign"].recall, "attack": best, "found": leaks[best].recall, "right": leaks[best].precision}
    return {"log": log.label, "pi": pi, **found, "popular": leaks["popularity"].recall}


def never_row(log: Log, seed: int = 0) -> dict[str, Any]:
    """What is found of items never shared, a fifth of what everybody has, where all else is shown.

    `ranked` is how often the vector that was found puts an item never shared above one that the person does not have;
    `popular` is how often the more popular one of the two is it. The F1@10 of the lists stand beside those of people who
    share everything.
    """
    people = log.split.train
    marked = np.random.default_rng(seed).random(people.items.size) < HIDDEN
    people = replace(people, never=of_marked_items(owners(people), people.items, marked))
    plan = choose("fpl", {"rounds": EPOCHS * log.triples, "hyper.pi": 1.0})
    run, all_shared = (simulate(plan, one, seed=seed, quiet=True) for one in (people, log.split.train))
    lists = [load_protocol("fpl").evaluate(one, log.split, seed).metrics["F1@10"] for one in (run, all_shared)]
    ids = np.sort(np.random.default_rng(seed).permutation(len(people))[:ATTACKED])
    tap, attacks = Tap(run, ids), [load_attack(name)(public_facts(run), ids.size) for name in ("sign", "inversion")]
    for _ in range(MESSAGES[-1]):
        seen = tap.next()
        for attack in attacks:
            attack.read(seen)
    every = np.arange(people.catalog.n_items)
    had, shared = seen_mask(people, ids, every), seen_mask(people.shared, ids, every)
    guess = attacks[0].guess() | attacks[1].guess()
    vectors = np.stack([attacks[1].person[place] for place in range(ids.size)])  # type: ignore[attr-defined]
    scores = vectors @ np.asarray(run.params["items"]).T + np.asarray(run.params["bias"])
    counts = np.broadcast_to(np.bincount(people.shared.items, minlength=every.size), scores.shape)
    return {
        "log": log.label,
        "hidden": HIDDEN,
        "found": score_reconstruction(guess, had & ~shared).recall,
        "found_of_the_rest": score_reconstruction(guess, shared).recall,
        "ranked": above(scores, had & ~shared, ~had),
        "popular": above(counts, had & ~shared, ~had),
        "F1@10": lists[0],
        "F1@10, all shared": lists[1],
    }


def above(scores: np.ndarray, these: np.ndarray, those: np.ndarray) -> float:
    """How often one of these stands above one of those, by person, on average; equals count half."""
    made = []
    for row, one, other in zip(scores, these, those):
        if one.any() and other.any():
            low = np.sort(row[other])
            places = np.searchsorted(low, row[one], "left") + np.searchsorted(low, row[one], "right")
            made.append(places.mean() / 2 / low.size)
    return float(np.mean(made))


def shares() -> None:
    """Measure, and write what ships with the package."""
    rows, never = [], []
    for name in SHARED_ON:
        log = log_of(name, dataset(name))
        for pi in SHARES:
            rows.append(share_row(log, pi))
            print(rows[-1], flush=True)
        never.append(never_row(log))
        print(never[-1], flush=True)
    about = {"command": "python benchmarks/fpl_privacy.py --shares", "messages": MESSAGES[-1], "people": ATTACKED}
    made = {**about, "epochs": EPOCHS, "machine": machine(), "rows": rows, "never": never}
    REVEALED.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {REVEALED}")


def _line(row: dict[str, Any], seconds: float) -> str:
    best = max((one["f1"] for one in row["attacks"] if one["attack"] not in ("chance", "popularity")), default=0.0)
    return (
        f"{row['log']} {row['name']}: F1@10 {row['metrics']['F1@10']:.4f}, best attack's F1 {best:.3f}, {seconds:.0f} s"
    )


def merged() -> list[dict[str, Any]]:
    parts = sorted(RESULTS.glob("fpl-privacy-*.json"))
    files = [path for path in (RESULTS / "fpl-privacy.json", *parts) if path.exists()]
    rows = [row for path in files for row in json.loads(path.read_text())["rows"]]
    newest = {(row["log"], row["name"], row["seed"]): row for row in rows}
    for part in parts:
        part.unlink()
    return list(newest.values())


def keep(name: str, about: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Row by row: what is done is kept."""
    made: list[dict[str, Any]] = []
    for row in rows:
        made.append(row)
        write(name, {**about, "rows": made})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", choices=LOGS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", default="", help="words in the names of the variants")
    parser.add_argument("--people", type=int, nargs="*", default=[])
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--shares", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    about = {"machine": machine(), "epochs": EPOCHS, "attacked": ATTACKED}
    if options.shares:
        shares()
        return
    if options.merge:
        write("fpl-privacy", {**about, "rows": merged()})
        return
    for users in options.people:
        keep(f"fpl-people-{users}", {"machine": machine(), "epochs": EPOCHS}, among(users))
    if options.people:
        return
    names = [name for name in ([options.log] if options.log else LOGS) if about_dataset(name).present]
    seeds = list(SEEDS) if options.seed is None else [options.seed]
    named = " ".join(str(one) for one in (options.log, options.seed, options.only) if one is not None)
    name = "-".join(["fpl-privacy", *re.findall(r"\w+", named)])
    keep(name, about, (row for log in names for row in run_study(log, seeds, options.only)))


if __name__ == "__main__":
    main()
