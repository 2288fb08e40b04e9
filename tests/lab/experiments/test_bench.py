"""The bench on small logs: rows hold what was measured, are saved at once, and are made again where something changed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import PlanError, RunError
from tacit.lab.data.selection import take
from tacit.lab.evaluation.candidates import AllItems
from tacit.lab.evaluation.repeats import choose_repeats
from tacit.lab.evaluation.scoring import ranks, top_lists
from tacit.lab.experiments import bench as benched
from tacit.lab.experiments.bench import BenchOptions, ResultsFile, Worker, bench, rows
from tacit.lab.experiments.bench.rows import bench_log, measure, why_not
from tacit.lab.experiments.bench.tables import (
    NEEDS,
    advice,
    average_seeds,
    bench_tables,
    best_plans,
    claim_text,
    log_table,
)
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate

TINY = {
    "movies": {"users": 40, "items": 60},
    "movies-16": {"users": 48, "items": 60},
    "apps": {"users": 12, "days": 6},
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Synthetic logs of a few users, and no other log on this machine."""
    small = replace(rows.SIZES["small"], synthetic=TINY)
    monkeypatch.setitem(rows.SIZES, "small", small)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))


# ---- rows ----


@pytest.mark.slow
def test_a_row_has_the_metrics_of_the_devices_own_ranking():
    log = bench_log("movies", "small")
    row = measure(load_plan("fcf"), log, 0)
    found = ranks(simulate("fcf", log.split.train, quiet=True), log.split, AllItems())
    seen = np.isin(log.split.test.target, log.split.train.items)
    assert row["metrics"]["HR@10"] == pytest.approx(np.mean((found <= 10) & seen), abs=1 / 40)
    low, high = row["intervals"]["NDCG@10"]
    assert low <= row["metrics"]["NDCG@10"] <= high
    assert (row["devices"], row["device"], row["questions"]) == (40, "person", len(log.split.test))
    assert row["bytes_up"] > 0
    assert row["claim"]["epsilon"] == np.inf
    assert "ε = ∞ per run" in row["says"]
    assert row["candidates"] == "all training items not yet seen"


def test_with_many_repeats_items_of_the_user_are_listed():
    log = bench_log("apps", "small")
    assert choose_repeats(log.log).repeats == log.split.repeats == "all"
    assert choose_repeats(bench_log("movies", "small").log).repeats == "new"
    row = measure(load_plan("mfu"), log, 0)
    assert row["candidates"] == "all training items"
    assert row["metrics"]["HR@10"] > 0.5  # the most used item is often the next
    run = simulate("mfu", log.split.train, quiet=True)
    devices, lists = top_lists(run, log.split, 3, with_seen=True)
    own = [
        np.bincount(log.split.train.items[a:b]).argmax()
        for a, b in zip(run.population.offsets, run.population.offsets[1:])
    ]
    assert np.mean(lists[:, 0] == np.array(own)[devices]) > 0.9
    _, new = top_lists(run, log.split, 3)
    assert all(
        not set(some[some >= 0]) & set(run.population.items[run.population.offsets[d] : run.population.offsets[d + 1]])
        for d, some in zip(devices, new)
    )


@pytest.mark.slow
def test_organisations_train_and_users_are_tested(monkeypatch):
    log = bench_log("movies-16", "small")
    plan = load_plan("fedavg-seqrec").with_setting("rounds", 1).with_setting("hyper.steps", 1)
    row = measure(plan, log, 0)
    assert (row["devices"], row["device"]) == (16, "organisation")
    assert row["questions"] == len(log.split.test)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("fedseqrec", "for organisations, and this log has none"),
        ("handshake", "a first stage alone, which scores nothing"),
        ("fedseqrec-paper", "for organisations, and this log has none"),
    ],
)
def test_what_cannot_run_says_why(plan, why):
    row = measure(load_plan(plan), bench_log("movies", "small"), 0)
    assert row["why"] == why
    assert "metrics" not in row


def test_a_network_too_large_for_the_size_is_reported_with_its_size():
    assert why_not(load_plan("fedseqrec-paper"), bench_log("movies-16", "small")) == (
        "trains 1,884,406 numbers, too many for this size"
    )


def test_an_error_of_the_library_is_the_reason():
    log = bench_log("movies", "small")
    plan = load_plan("fcf").with_setting("trains", ["Q"])
    assert measure(plan, log, 0)["why"] == "fcf: trains names 'Q', but the parameters are ['items']."


def test_the_sample_of_users_is_fixed():
    log = bench_log("movies", "small").log
    one, other = rows.sample_users(log, 10), rows.sample_users(log, 10)
    assert one.digest == other.digest
    assert len(one) == 10
    assert rows.sample_users(log, 40) is log
    assert one.catalog.n_items == np.unique(one.items).size


# ---- the results file ----


def test_rows_are_saved_at_once_and_made_once(tmp_path, monkeypatch):
    out = tmp_path / "bench.json"
    options = BenchOptions(data=("movies",), plans=("random", "handshake"))
    results = bench(options, out)
    assert len(json.loads(out.read_text())["rows"]) == len(results.rows) == 2
    made = []
    monkeypatch.setattr(benched, "measure", lambda plan, *_: made.append(plan.name) or {})
    bench(options, out)
    assert made == []
    kept = json.loads(out.read_text())
    kept["rows"][0]["digest"] = "another"
    out.write_text(json.dumps(kept))
    monkeypatch.setattr(benched, "measure", lambda plan, log, seed: made.append(plan.name) or measure(plan, log, seed))
    bench(options, out)
    assert made == ["handshake"]


def test_a_changed_log_makes_a_row_again(tmp_path):
    log, plan = bench_log("movies", "small"), load_plan("random")
    results = ResultsFile(tmp_path / "b.json", "small", {})
    results.write(measure(plan, log, 0))
    assert results.holds(log, plan, 0)
    keep = np.arange(log.log.items.size) != 3
    assert not results.holds(replace(log, log=take(log.log, keep)), plan, 0)
    assert not results.holds(log, plan, 1)


def test_a_row_that_ran_out_of_time_is_repeated_with_more(tmp_path):
    log, plan = bench_log("movies", "small"), load_plan("random")
    results = ResultsFile(tmp_path / "b.json", "small", {})
    late = {**measure(plan, log, 0), "limit": 10.0}
    results.write(late)
    assert results.holds(log, plan, 0, 10.0)
    assert not results.holds(log, plan, 0, 20.0)
    assert not results.holds(log, plan, 0, None)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "b.json"
    path.write_text("{}")
    with pytest.raises(RunError, match=r"b\.json holds no rows of the bench; name another file with --out\."):
        ResultsFile.open(path, "small")
    path.write_text(json.dumps({"size": "paper", "rows": []}))
    with pytest.raises(RunError, match=r"holds rows of size paper, these are small; name another file with --out\."):
        ResultsFile.open(path, "small")


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(PlanError, match="The bench has no log 'movie'; did you mean 'movies'"):
        bench(BenchOptions(data=("movie",)), tmp_path / "b.json")
    with pytest.raises(PlanError, match="Tacit has no plan 'fcv'; did you mean 'fcf'"):
        bench(BenchOptions(plans=("fcv",)), tmp_path / "b.json")
    with pytest.raises(PlanError, match="The size of the bench must be small or paper, got 'tall'"):
        bench(BenchOptions(size="tall"), tmp_path / "b.json")


# ---- the worker ----


class Connection:
    """A connection to a process that never responds, or has ended."""

    def __init__(self, gone):
        self.gone = gone

    def send(self, job):
        self.job = job

    def poll(self, limit):
        if self.gone:
            raise EOFError
        return False


@pytest.mark.parametrize(
    ("gone", "why"), [(False, "more than 5 seconds here"), (True, "the system ended it; most often")]
)
def test_a_row_over_the_time_limit_is_given_up(monkeypatch, gone, why):
    worker = Worker("small", 5.0)
    monkeypatch.setattr(worker, "_start", lambda name: Connection(gone))
    row = worker.make(load_plan("random"), bench_log("movies", "small"), 0)
    assert row["why"].startswith(why)
    assert row["limit"] == 5.0


@pytest.mark.slow
def test_a_separate_process_makes_the_same_row():
    plan = load_plan("mfu")
    log = bench_log("groups", "small")
    with Worker("small", 300.0) as worker:
        row = worker.make(plan, log, 0)
    here = measure(plan, log, 0)
    assert {**row, "seconds": 0} == {**here, "seconds": 0}


# ---- tables and advice ----


def row(plan, ndcg, epsilon=np.inf, trust="server", data="films", **more):
    claim = {"epsilon": epsilon, "delta": 0.0, "per": "run", "unit": "user", "relation": "replace_one", "trust": trust}
    return {
        **{"data": data, "plan": plan, "seed": 0, "label": f"{data}, tiny", "claim": claim, "in_the_lab": ""},
        **{"metrics": {"NDCG@10": ndcg, "HR@10": 2 * ndcg, "Coverage@10": 0.5}, "device": "person", "seconds": 3.2},
        **{
            "intervals": {"NDCG@10": [ndcg - 0.01, ndcg + 0.01], "HR@10": [0.0, 0.1]},
            "bytes_up": 1200.0,
            "bytes_down": 0.0,
            "candidates": "all training items",
            "treatment": "repeats allowed, as requested",
        },
        **more,
    }


ROWS = [
    row("popularity", 0.05),
    row("fcf", 0.07),
    row("home", 0.04, epsilon=0.0, trust="nobody"),
    row("signs", 0.06, epsilon=4.5, trust="nobody"),
    row("noised", 0.03, epsilon=8.0),
    row("pot", 0.2, in_the_lab="pooled"),
    {
        "data": "films",
        "plan": "schools",
        "seed": 0,
        "label": "films, tiny",
        "why": "for organisations, and this log has none",
    },
]


def test_a_table_is_sorted_and_says_what_could_not_run():
    lines = log_table(average_seeds(ROWS)).splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == [
        "pot",
        "fcf",
        "signs",
        "popularity",
        "home",
        "noised",
        "schools",
    ]
    assert (
        lines[3]
        == "| `fcf` | 0.070 ± 0.010 | 0.140 ± 0.050 | 50.0% | 1 kB | nothing | 3 | ε = ∞ a run, user, replace-one, trust: server |"
    )
    assert "| raw data | a model |" in lines[2]
    assert lines[-1].endswith("| for organisations, and this log has none |")
    assert bench_tables(ROWS).startswith(
        "**films, tiny**\n\nAmong all training items; repeats allowed, as requested.\n\n| plan"
    )


def test_seeds_are_averaged():
    (one,) = average_seeds([row("fcf", 0.1), {**row("fcf", 0.3), "seed": 1}])
    assert one["metrics"]["NDCG@10"] == pytest.approx(0.2)
    assert one["seeds"] == [0, 1]


def test_logs_are_in_the_order_of_the_bench():
    rows = [row("fcf", 0.1, data=name) for name in ("films", "apps", "movies")]
    assert [one["data"] for one in average_seeds(rows)] == ["movies", "apps", "films"]


def test_an_infinite_epsilon_is_printed_as_infinity():
    assert claim_text(ROWS[0]["claim"]).startswith("ε = ∞ a run")
    assert claim_text({**ROWS[4]["claim"], "epsilon": "inf"}).startswith("ε = ∞ a run")
    assert claim_text({**ROWS[4]["claim"], "delta": 1e-6}).startswith("ε = 8, δ = 1e-06 a run")


def test_advice_is_the_best_that_meets_the_need():
    chosen = {need: rows["films"]["plan"] for need, rows in best_plans(ROWS).items()}
    assert chosen == {
        "nothing may leave the device": "home",
        "no party is trusted; the ε protects a user": "signs",
        "the server is trusted to add noise": "noised",
        "raw data stay on the device; no ε is promised": "fcf",
        "raw data may be pooled": "pot",
    }
    text = advice(ROWS)
    assert text.splitlines()[0] == "| if | films (0.050) |"
    assert "| *`noised` 0.030* |" in text  # not above the baseline
    assert "| `signs` 0.060 |" in text
    assert len(NEEDS) == 8


# ---- the command line ----


def invoke(*words):
    return CliRunner().invoke(app, ["reproduce", *words])


def test_the_bench_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.cli.reproduce.BENCH_LIMIT", {})
    out = tmp_path / "b.json"
    made = invoke("--all", "--data", "movies", "--plan", "random", "--plan", "handshake", "--out", str(out))
    if made.exception:
        raise made.exception
    assert "| `random` | 0." in made.stdout
    assert "a first stage alone" in made.stdout
    assert json.loads(out.read_text())["protocol"] == "bench"


def test_options_of_a_paper_are_refused():
    for words, option in ((["dplcf"], "paper"), (["--table", "1"], "--table")):
        found = invoke("--all", *words)
        assert found.exit_code != 0
        assert f"takes no {option}" in " ".join(found.output.split())
    assert "belong to --all" in " ".join(invoke("dplcf", "--plan", "fcf").output.replace("│", " ").split())
