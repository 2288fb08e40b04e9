"""Searching for settings: what is tried, that the test part stays out of it, and what it would cost real people."""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import tacit
from tacit.cli.compare import command as compare_plans
from tacit.cli.tune import command as tune_plan
from tacit.core.plan import Plan
from tacit.errors import DataError, PlanError
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.protocols import Protocol, load_protocol
from tacit.lab.experiments.search import Range, draw_settings, parse_search
from tacit.lab.experiments.trial import trial
from tacit.lab.experiments.tune import CHEAPER, Tuning, metric_of, total_cost, tune
from tacit.lab.plans.loader import choose, load_plan
from tacit.privacy.accounting.accountant import compose, total_delta
from tacit.privacy.price import price

LOG = taste_groups(users=70, items=40, events=12)
FCF = tacit.plan("fcf").with_setting("hyper.dim", 4)
SEARCH = {"rounds": [1, 3]}


@pytest.fixture(scope="module")
def found() -> Tuning:
    """One search that most tests look at."""
    return tune(FCF, LOG, SEARCH, quiet=True)


# ---- what is tried ----


def test_a_small_grid_is_tried_whole_and_a_large_one_by_a_seeded_draw():
    space = {"a": [1, 2, 3], "b": ["x", "y"]}
    assert draw_settings(space, 6) == [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y")]
    some = draw_settings(space, 4, seed=1)
    assert len({json.dumps(one) for one in some}) == 4
    assert draw_settings(space, 4, seed=1) == some
    assert draw_settings(space, 4, seed=2) != some


def test_a_search_of_few_values_ends():
    assert sorted(one["a"] for one in draw_settings({"a": Range(1, 3)}, 20)) == [1, 2, 3]


@given(st.integers(-50, 50), st.integers(1, 50), st.integers(0, 1000))
def test_whole_numbers_stay_whole_and_inside(low, width, seed):
    values = [one["a"] for one in draw_settings({"a": Range(low, low + width)}, 10, seed)]
    assert all(type(value) is int and low <= value <= low + width for value in values)


@given(st.floats(1e-6, 10), st.floats(1.001, 1000), st.booleans(), st.integers(0, 1000))
def test_numbers_stay_inside(low, factor, log, seed):
    values = [one["a"] for one in draw_settings({"a": Range(low, low * factor, log)}, 10, seed)]
    assert all(type(value) is float and low <= value <= low * factor for value in values)


@pytest.mark.parametrize("log", [False, True])
def test_ranges_are_even_on_their_scale(log):
    values = np.array([one["a"] for one in draw_settings({"a": Range(0.01, 10.0, log)}, 2000)])
    ends = np.log([0.01, 10.0]) if log else np.array([0.01, 10.0])
    even = stats.uniform(ends[0], np.ptp(ends))
    assert stats.kstest(np.log(values) if log else values, even.cdf).pvalue > 0.01


def test_whole_numbers_on_a_log_scale_are_drawn_by_their_logarithm():
    rng = np.random.default_rng(0)
    values = np.array([Range(1, 7, log=True).draw(rng) for _ in range(6000)])
    expected = np.log(np.arange(2, 9) / np.arange(1, 8)) / np.log(8)
    assert stats.chisquare(np.bincount(values)[1:], 6000 * expected).pvalue > 0.01


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("hyper.dim=8,16,32", ("hyper.dim", [8, 16, 32])),
        ("hyper.weights=all,own", ("hyper.weights", ["all", "own"])),
        ("rounds=5", ("rounds", [5])),
        ("rounds=5..9", ("rounds", Range(5, 9))),
        ("server.rate=0.01..0.1", ("server.rate", Range(0.01, 0.1))),
        ("server.rate=0.01..0.1 log", ("server.rate", Range(0.01, 0.1, log=True))),
        ("server.rate=0.01..0.1[log]", ("server.rate", Range(0.01, 0.1, log=True))),
        ("server.rate=1e-3 .. 1 [log]", ("server.rate", Range(1e-3, 1, log=True))),
    ],
)
def test_a_search_is_read_as_it_is_written(text, read):
    assert parse_search(text) == read


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: parse_search("hyper.dim"), "^A search is written name=values, got 'hyper.dim'; write hyper.dim=8,16"),
        (lambda: parse_search("hyper.dim="), "^A search is written name=values, got 'hyper.dim='"),
        (lambda: parse_search("a=x..y"), r"^A range goes from one number to another, got 'x..y'; write 0.01..0.1"),
        (lambda: parse_search("a=2..1"), r"^A range goes from a smaller to a larger number, got 2..1;"),
        (lambda: parse_search("a=0..1 log"), r"^A range on a log scale begins above 0, got 0..1 log; begin higher"),
        (lambda: draw_settings({"a": []}, 3), "^A search over a needs at least one value, got none."),
        (lambda: draw_settings({"a": [1]}, 0), "^trials must be at least 1, got 0; 20 is usual."),
        (lambda: tune(FCF, LOG, {"hyper.dmi": [1]}), r"^fcf has no setting 'hyper.dmi'; did you mean 'hyper.dim'\?"),
        (lambda: tune(FCF, LOG, {"privacy.epsilon": [1]}), "is an empty promise: mechanism 'none' adds no noise"),
        (lambda: tune(FCF, LOG, {"hyper.dim": [4, 0]}), "^fcf hyper.dim=0: .* must be at least 1, got 0"),
        (lambda: tune(FCF, LOG, SEARCH, metric="NDGC@10"), r"has no metric 'NDGC'; did you mean 'NDCG'\?"),
        (
            lambda: tune(FCF, LOG, SEARCH, metric="NDCG@5"),
            r"^The protocol full has no metric 'NDCG@5'; did you mean 'NDCG@10'\?",
        ),
        (lambda: tune(FCF, LOG, SEARCH, protocol="ful"), r"did you mean 'full'\?"),
        (lambda: tune("fcff", LOG, SEARCH), r"did you mean 'fcf'\?"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_runs(call, sentence, monkeypatch):
    monkeypatch.setattr("tacit.lab.experiments.tune.trial", None)  # nothing may run
    with pytest.raises(PlanError, match=sentence):
        call()


def test_a_plan_that_does_not_fit_the_people_stops_the_search_before_it_begins(monkeypatch):
    monkeypatch.setattr("tacit.lab.experiments.tune.trial", None)
    with pytest.raises(PlanError, match=r"^fcf cohort.sampler=fixed cohort.count=99: cohort.count must be at most"):
        tune(FCF, LOG, {"cohort.sampler": ["fixed"], "cohort.count": [9, 99]})
    with pytest.raises(DataError, match="99 negatives need as many items"):
        tune(FCF, LOG, SEARCH, protocol="dplcf")


def test_a_metric_may_be_written_in_any_way():
    assert metric_of(load_protocol("full"), "hits@10") == "HR@10"
    assert metric_of(load_protocol("privrec"), "HR@5") == "Hits@5"
    assert metric_of(load_protocol("full"), None) == "NDCG@10"
    assert metric_of(load_protocol("fpl"), None) == "P@10"


# ---- the validation part and the test part ----


def test_the_best_wins_and_is_asked_once_on_the_test_part(found):
    assert found.metric == "NDCG@10"
    assert [one.variant.setting for one in found.attempts] == [{"rounds": 1}, {"rounds": 3}]
    assert found.best.value == max(one.value for one in found.attempts)
    alone = trial(found.best.variant.plan, LOG, quiet=True)
    assert found.tested == pytest.approx(alone.evaluation.metrics["NDCG@10"])
    inner = trial(found.best.variant.plan, load_protocol("full").split(LOG).train, quiet=True)
    assert found.best.value == pytest.approx(inner.evaluation.metrics["NDCG@10"])
    assert found.best.interval == inner.evaluation.interval("NDCG@10")


def test_the_search_is_blind_to_the_test_part(found):
    # Whatever everybody did last, the search tries the same, sees the same, and chooses the same.
    items, last = LOG.items.copy(), LOG.offsets[1:] - 1
    items[last] = (items[last] + 7) % 40
    other = tune(FCF, replace(LOG, items=items), SEARCH, quiet=True)
    for mine, theirs in zip(found.attempts, other.attempts, strict=True):
        assert (mine.variant, mine.value, mine.interval) == (theirs.variant, theirs.value, theirs.interval)
    assert other.tested != found.tested


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["full", "privrec"])
def test_no_question_of_the_test_part_is_asked_or_learned_from_before_the_last(protocol, monkeypatch):
    # Every event has an item of its own, so an event that leaks is recognised by its item.
    log = replace(
        LOG, catalog=replace(LOG.catalog, n_items=LOG.items.size), items=np.arange(LOG.items.size, dtype=np.int32)
    )
    held = set(load_protocol(protocol).split(log, 0).test.target.tolist())
    seen, ask = [], Protocol.evaluate

    def spy(self, run, split, seed=0):
        parts = (
            split.train.items,
            split.test.target,
            split.log.items,
            split.test_population.items,
            run.population.items,
        )
        seen.append(set(np.concatenate(parts).tolist()))
        return ask(self, run, split, seed)

    monkeypatch.setattr(Protocol, "evaluate", spy)
    tune("itemknn", log, {"hyper.neighbours": [2, 3]}, protocol=protocol, metric="NDCG@10", quiet=True)
    assert len(seen) == 3
    assert [bool(events & held) for events in seen] == [False, False, True]


def test_the_same_seed_gives_the_same_search():
    again = tune(FCF, LOG, {"rounds": Range(1, 3)}, trials=2, seed=5, quiet=True)
    twice = tune(FCF, LOG, {"rounds": Range(1, 3)}, trials=2, seed=5, quiet=True)
    assert [(one.variant, one.value) for one in again.attempts] == [(one.variant, one.value) for one in twice.attempts]
    assert again.tested == twice.tested


def test_everything_is_plain_values(found):
    made = json.loads(json.dumps(tacit.core.run_folder.plain(found.to_dict())))
    assert [one["setting"] for one in made["trials"]] == [{"rounds": 1}, {"rounds": 3}]
    assert {"value", "interval", "seconds", "epsilon", "digest", "setting"} == set(made["trials"][0])
    assert made["best"]["plan"] == found.best.variant.plan.to_dict()
    assert made["test"]["value"] == found.tested
    assert made["privacy"]["search"]["epsilon"] == "inf"
    assert made["search"] == {"rounds": [1, 3]}


# ---- what it would cost ----


def promised(mechanism: str, epsilon: float, **more) -> Plan:
    return choose(FCF, {"rounds": 4, "privacy": {"mechanism": mechanism, "epsilon": epsilon}, **more})


POISSON = {"cohort": {"sampler": "poisson", "rate": 0.1}}
FIXED = {"cohort": {"sampler": "fixed", "count": 10}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plans", "relation"),
    [
        ([promised("laplace", 1.0), promised("laplace", 2.0)], "replace_one"),
        ([promised("gaussian", 1.0), promised("gaussian", 2.0)], "replace_one"),
        ([promised("gaussian", e, **POISSON) for e in (1.0, 2.0)], "add_remove"),
        ([promised("gaussian", 1.0, **FIXED), promised("gaussian", 1.0, **POISSON)], "replace_one"),
        ([promised("gaussian", 2.0), promised("laplace", 1.0)], "replace_one"),
    ],
)
def test_the_bill_is_the_accountants(plans, relation):
    prices = [price(plan, 100) for plan in plans]
    bill = total_cost(prices)
    spent = [part for one in prices for stage in one.stages for part in stage.spent]
    assert bill.relation == relation
    assert bill.delta == total_delta(one.whole.delta for one in prices)
    assert bill.epsilon == compose(spent, bill.delta, relation).epsilon
    assert bill.runs == 2
    for one in prices:
        assert bill.epsilon >= total_cost([one], bill.delta).epsilon


def test_one_run_on_the_bill_is_its_own_price():
    for plan in (promised("laplace", 1.5), promised("gaussian", 2.0), promised("gaussian", 2.0, **POISSON)):
        cost = price(plan, 100)
        assert total_cost([cost]).epsilon == pytest.approx(cost.whole.epsilon, rel=1e-6)


def test_runs_that_protect_different_units_have_no_common_bill():
    cost = price(promised("laplace", 1.0), 100)
    finer = replace(cost, whole=replace(cost.whole, unit="interaction"))
    assert total_cost([finer, finer]).epsilon == 2.0
    assert total_cost([finer, finer]).unit == "interaction"
    assert total_cost([cost, finer]).epsilon == float("inf")


def test_no_noise_has_no_bound_and_nothing_sent_costs_nothing():
    assert total_cost([price(FCF, 100)]).epsilon == float("inf")
    assert total_cost([price(load_plan("mfu"), 100)]).epsilon == 0.0
    free = total_cost([price(load_plan("mfu"), 100), price(promised("laplace", 1.0), 100)])
    assert (free.epsilon, free.runs) == (1.0, 2)


def with_prices(found: Tuning, *plans: Plan) -> Tuning:
    """The search as if these had been its plans."""
    prices = [price(plan, 100) for plan in plans]
    attempts = tuple(replace(found.attempts[0], price=one) for one in prices)
    run = replace(found.test.run, price=prices[0])
    return replace(found, attempts=attempts, test=replace(found.test, run=run))


def test_the_cost_of_a_search_is_said_in_words(found):
    assert (
        "one run of the best plan costs ε = ∞; the 2 trials, each a run of the same people, together ε = ∞"
        in found.privacy
    )
    assert "∞ means that no bound holds: no noise is added, in a single run either." in found.privacy
    assert found.privacy.endswith(CHEAPER)
    plans = promised("laplace", 1.0), promised("laplace", 1.0)
    assert with_prices(found, *plans).privacy == (
        "On real devices, one run of the best plan costs ε = 1; the 2 trials, each a run of the same people, together "
        "ε = 2; with the run that follows, ε = 3 (δ = 1.4e-17, unit user, replace-one). Reporting how well each trial did would come "
        f"on top. {CHEAPER}"
    )
    mixed = with_prices(found, promised("laplace", 1.0), FCF).privacy
    assert "costs ε = 1; the 2 trials" in mixed
    assert "∞ means that no bound holds: not every trial adds noise." in mixed
    gaussian = with_prices(found, promised("gaussian", 1.0)).privacy
    assert "the 1 trial, each" in gaussian
    assert "(δ = 1.0e-05, unit user, replace-one)" in gaussian
    free = with_prices(found, load_plan("mfu")).privacy
    assert free == "Nothing leaves a device in 1 trial or in the run that follows, so the search is free: ε = 0."


def test_trials_that_look_hopeless_are_noted_in_one_line():
    plan = choose("popularity", {"privacy": {"mechanism": "gaussian", "epsilon": 0.5}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tune(plan, LOG, {"rounds": [1, 2]}, quiet=True)
    (note,) = found.notes
    assert note.startswith("2 of 2 trials were warned about; the first: Stage 1 of popularity looks hopeless")
    bills = found.costs
    spent = [part for one in found.attempts for stage in one.price.stages for part in stage.spent]
    assert bills["search"].epsilon == compose(spent, bills["search"].delta).epsilon
    assert bills["one_run"].epsilon <= bills["search"].epsilon <= bills["search_and_run"].epsilon
    assert bills["one_run"].epsilon == pytest.approx(0.5, rel=1e-3)


# ---- the command ----


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """`tacit tune …` in this process: the exit code and what was printed."""
    import tacit.cli

    app = typer.Typer()
    app.command(name="compare")(compare_plans)
    app.command(name="tune")(tune_plan)
    monkeypatch.setattr(tacit.cli, "app", app)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("tacit.lab.data.datasets.open_log", lambda *_: LOG)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["tacit", "tune", *words])
        try:
            tacit.cli.main()
            code = 0
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_the_command_prints_both_numbers_and_the_bill_and_writes_a_plan_that_runs(command, found):
    code, out, err = command("fcf", "--set", "hyper.dim=4", "--search", "rounds=1,3", "--out", "made/best.toml")
    assert (code, err) == (0, "")
    assert f"validation NDCG@10: {found.best.value:.3f} ± " in out
    assert "the highest of 2, so it is optimistic" in out
    assert f"test NDCG@10: {found.tested:.3f} ± " in out
    assert "each a run of the same people, together ε = ∞" in out
    assert "`tacit run made/best.toml` runs it" in out
    assert load_plan("made/best.toml") == found.best.variant.plan
    assert Path("made/best.toml").read_text(encoding="utf-8").startswith("# The best of 2 trials by NDCG@10 (full): 0.")


def test_the_command_speaks_json(command):
    words = ["--search", "rounds=1..3", "--trials", "2", "--metric", "hr@10", "--seed", "3", "--json"]
    code, out, err = command("fcf", "--set", "hyper.dim=4", *words)
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert made["search"] == {"rounds": "1..3"}
    assert (made["metric"], len(made["trials"]), made["seed"]) == ("HR@10", 2, 3)
    assert made["out"] is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--search", "hyper.dmi=1,2"], "did you mean 'hyper.dim'?"),
        (["--search", "hyper.dim"], "A search is written name=values"),
        (["--search", "rounds=1,2", "--metric", "NDGC@10"], "did you mean 'NDCG'?"),
        (["--search", "rounds=1,2", "--metric", "NDCG@9"], "did you mean 'NDCG@10'?"),
        (["--search", "rounds=1,2", "--out", "best.json"], "--out takes a file that ends in .toml, got 'best.json'."),
        (["--search", "rounds=1,2", "--trials", "0"], "0 is not in the range"),
        (["--search", "rounds=1,2", "--set", "hyper.dmi=2"], "did you mean 'dim'?"),
        ([], "--search"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(command, words, sentence):
    code, out, err = command("fcf", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
