"""The bench on logs that are made in a second: rows are what was measured, kept at once, and made again when they must be."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import PlanError, RunError
from tacit.lab.data.selection import take
from tacit.lab.evaluation.candidates import Everything
from tacit.lab.evaluation.repeats import choose_repeats
from tacit.lab.evaluation.scoring import ranks, top_lists
from tacit.lab.experiments import bench as benched
from tacit.lab.experiments.bench import Book, Options, bench, logs, make, place
from tacit.lab.experiments.bench.advice import NEEDS, advice, best
from tacit.lab.experiments.bench.results import fits
from tacit.lab.experiments.bench.tables import claimed, merged, table, tables
from tacit.lab.experiments.bench.worker import Worker
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate

TINY = {
    "movies": {"users": 40, "items": 60},
    "movies-16": {"users": 48, "items": 60},
    "apps": {"users": 12, "days": 6},
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """Worlds of a few people, and no other log on this machine."""
    small = replace(logs.SIZES["small"], world=TINY)
    monkeypatch.setitem(logs.SIZES, "small", small)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "nothing"))


# ---- rows ----


def test_a_row_says_what_the_device_s_own_ranking_says():
    where = place("movies", "small")
    row = make(load_plan("fcf"), where, 0)
    found = ranks(simulate("fcf", where.split.train, quiet=True), where.split, Everything())
    seen = np.isin(where.split.test.target, where.split.train.items)
    assert row["metrics"]["HR@10"] == pytest.approx(np.mean((found <= 10) & seen), abs=1 / 40)
    low, high = row["intervals"]["NDCG@10"]
    assert low <= row["metrics"]["NDCG@10"] <= high
    assert (row["devices"], row["device"], row["questions"]) == (40, "person", len(where.split.test))
    assert row["bytes_up"] > 0
    assert row["claim"]["epsilon"] == np.inf
    assert "ε = ∞ per run" in row["says"]
    assert row["candidates"] == "all training items not yet seen"


def test_where_people_come_back_what_they_have_is_listed():
    where = place("apps", "small")
    assert choose_repeats(where.log).repeats == where.split.repeats == "all"
    assert choose_repeats(place("movies", "small").log).repeats == "new"
    row = make(load_plan("mfu"), where, 0)
    assert row["candidates"] == "all training items"
    assert row["metrics"]["HR@10"] > 0.5  # what somebody uses most is what they use next
    run = simulate("mfu", where.split.train, quiet=True)
    devices, lists = top_lists(run, where.split, 3, again=True)
    own = [
        np.bincount(where.split.train.items[a:b]).argmax()
        for a, b in zip(run.population.offsets, run.population.offsets[1:])
    ]
    assert np.mean(lists[:, 0] == np.array(own)[devices]) > 0.9
    _, new = top_lists(run, where.split, 3)
    assert all(
        not set(some[some >= 0]) & set(run.population.items[run.population.offsets[d] : run.population.offsets[d + 1]])
        for d, some in zip(devices, new)
    )


@pytest.mark.slow
def test_organisations_learn_and_people_are_asked(monkeypatch):
    where = place("movies-16", "small")
    plan = load_plan("fedavg-seqrec").with_setting("rounds", 1).with_setting("hyper.steps", 1)
    row = make(plan, where, 0)
    assert (row["devices"], row["device"]) == (16, "organisation")
    assert row["questions"] == len(where.split.test)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("fedseqrec", "for organisations, and this log has none"),
        ("handshake", "a first stage alone, which scores nothing"),
        ("fedseqrec-paper", "for organisations, and this log has none"),
    ],
)
def test_what_cannot_run_says_why(plan, why):
    row = make(load_plan(plan), place("movies", "small"), 0)
    assert row["why"] == why
    assert "metrics" not in row


def test_a_network_too_large_for_the_size_is_said_with_its_size():
    assert fits(load_plan("fedseqrec-paper"), place("movies-16", "small")) == (
        "trains 1,884,406 numbers, too many for this size"
    )


def test_a_refusal_of_the_library_is_the_reason():
    where = place("movies", "small")
    plan = load_plan("fcf").with_setting("trains", ["Q"])
    assert make(plan, where, 0)["why"] == "fcf: trains names 'Q', but the parameters are ['items']."


def test_some_people_are_always_the_same_ones():
    log = place("movies", "small").log
    one, other = logs.some(log, 10), logs.some(log, 10)
    assert one.digest == other.digest
    assert len(one) == 10
    assert logs.some(log, 40) is log
    assert one.catalog.n_items == np.unique(one.items).size


# ---- the book ----


def test_rows_are_kept_at_once_and_made_once(tmp_path, monkeypatch):
    out = tmp_path / "bench.json"
    asked = Options(data=("movies",), plans=("random", "handshake"))
    book = bench(asked, out)
    assert len(json.loads(out.read_text())["rows"]) == len(book.rows) == 2
    made = []
    monkeypatch.setattr(benched.worker, "make", lambda plan, *_: made.append(plan.name) or {})
    bench(asked, out)
    assert made == []
    kept = json.loads(out.read_text())
    kept["rows"][0]["digest"] = "another"
    out.write_text(json.dumps(kept))
    monkeypatch.setattr(
        benched.worker, "make", lambda plan, where, seed: made.append(plan.name) or make(plan, where, seed)
    )
    bench(asked, out)
    assert made == ["handshake"]


def test_other_people_make_a_row_again(tmp_path):
    where, plan = place("movies", "small"), load_plan("random")
    book = Book(tmp_path / "b.json", "small", {})
    book.write(make(plan, where, 0))
    assert book.holds(where, plan, 0)
    keep = np.arange(where.log.items.size) != 3
    assert not book.holds(replace(where, log=take(where.log, keep)), plan, 0)
    assert not book.holds(where, plan, 1)


def test_a_row_that_ran_out_of_time_is_tried_with_more(tmp_path):
    where, plan = place("movies", "small"), load_plan("random")
    book = Book(tmp_path / "b.json", "small", {})
    late = {**make(plan, where, 0), "limit": 10.0}
    book.write(late)
    assert book.holds(where, plan, 0, 10.0)
    assert not book.holds(where, plan, 0, 20.0)
    assert not book.holds(where, plan, 0, None)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "b.json"
    path.write_text("{}")
    with pytest.raises(RunError, match=r"b\.json holds no rows of the bench; name another file with --out\."):
        Book.open(path, "small")
    path.write_text(json.dumps({"size": "paper", "rows": []}))
    with pytest.raises(RunError, match=r"holds rows of size paper, these are small; name another file with --out\."):
        Book.open(path, "small")


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(PlanError, match="The bench has no log 'movie'; did you mean 'movies'"):
        bench(Options(data=("movie",)), tmp_path / "b.json")
    with pytest.raises(PlanError, match="The shelf has no plan 'fcv'; did you mean 'fcf'"):
        bench(Options(plans=("fcv",)), tmp_path / "b.json")
    with pytest.raises(PlanError, match="The size of the bench must be small or paper, got 'tall'"):
        bench(Options(size="tall"), tmp_path / "b.json")


# ---- the worker ----


class Line:
    """A process that never answers, or is gone."""

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
def test_what_takes_too_long_is_given_up_and_says_so(monkeypatch, gone, why):
    worker = Worker("small", 5.0)
    monkeypatch.setattr(worker, "_start", lambda name: Line(gone))
    row = worker.make(load_plan("random"), place("movies", "small"), 0)
    assert row["why"].startswith(why)
    assert row["limit"] == 5.0


@pytest.mark.slow
def test_a_process_of_its_own_makes_the_same_row():
    plan = load_plan("mfu")
    where = place("groups", "small")
    with Worker("small", 300.0) as worker:
        row = worker.make(plan, where, 0)
    here = make(plan, where, 0)
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


def test_a_table_is_in_order_and_says_what_could_not_run():
    lines = table(merged(ROWS)).splitlines()
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
    assert tables(ROWS).startswith(
        "**films, tiny**\n\nAmong all training items; repeats allowed, as requested.\n\n| plan"
    )


def test_seeds_are_averaged():
    (one,) = merged([row("fcf", 0.1), {**row("fcf", 0.3), "seed": 1}])
    assert one["metrics"]["NDCG@10"] == pytest.approx(0.2)
    assert one["seeds"] == [0, 1]


def test_logs_stand_in_the_order_of_the_bench():
    rows = [row("fcf", 0.1, data=name) for name in ("films", "apps", "movies")]
    assert [one["data"] for one in merged(rows)] == ["movies", "apps", "films"]


def test_infinity_is_printed_as_it_is():
    assert claimed(ROWS[0]["claim"]).startswith("ε = ∞ a run")
    assert claimed({**ROWS[4]["claim"], "epsilon": "inf"}).startswith("ε = ∞ a run")
    assert claimed({**ROWS[4]["claim"], "delta": 1e-6}).startswith("ε = 8, δ = 1e-06 a run")


def test_advice_is_the_best_that_meets_the_need():
    chosen = {need: rows["films"]["plan"] for need, rows in best(ROWS).items()}
    assert chosen == {
        "nothing may leave the device": "home",
        "nobody is trusted; a whole person is hidden": "signs",
        "the server is trusted to add noise": "noised",
        "raw data stay at home; nothing is promised": "fcf",
        "raw data may be pooled": "pot",
    }
    text = advice(ROWS)
    assert text.splitlines()[0] == "| if | films (0.050) |"
    assert "| *`noised` 0.030* |" in text  # it does not beat the yardstick
    assert "| `signs` 0.060 |" in text
    assert len(NEEDS) == 8


# ---- the face ----


def said(*words):
    return CliRunner().invoke(app, ["reproduce", *words])


def test_the_bench_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.cli.bench.LIMIT", {})
    out = tmp_path / "b.json"
    made = said("--all", "--data", "movies", "--plan", "random", "--plan", "handshake", "--out", str(out))
    if made.exception:
        raise made.exception
    assert "| `random` | 0." in made.stdout
    assert "a first stage alone" in made.stdout
    assert json.loads(out.read_text())["protocol"] == "bench"


def test_what_belongs_to_a_paper_is_refused():
    for words, option in ((["dplcf"], "paper"), (["--table", "1"], "--table")):
        found = said("--all", *words)
        assert found.exit_code != 0
        assert f"takes no {option}" in " ".join(found.output.split())
    assert "belong to --all" in " ".join(said("dplcf", "--plan", "fcf").output.replace("│", " ").split())
