"""Spent budgets and sent bytes of plans that are fitted by rounds, from pooled raw data, or with a helper."""

import json
import math

import numpy as np
import pytest

from support.toys import small_world
from tacit.cli.common import _spent
from tacit.core.messages import pack
from tacit.core.plan import Plan, Stage
from tacit.core.run_folder import write_arrays
from tacit.deploy.bundle import Bundle
from tacit.device.ledger.population_ledger import Ledgers
from tacit.errors import PlanError
from tacit.lab.analysis.feasibility import assess_feasibility
from tacit.lab.analysis.report_data import report_data
from tacit.lab.data import from_events
from tacit.lab.experiments.trial import trial
from tacit.lab.experiments.tune import total_cost
from tacit.lab.experiments.variants import plan_settings
from tacit.lab.plans.loader import choose, complete, load_plan, plan_names
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.federation import Performance
from tacit.privacy.budget import Budget
from tacit.privacy.card import card, to_markdown
from tacit.privacy.price import price
from tacit.privacy.sampler import Pooled, build_sampler
from tacit.report.page import report_page as render

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
LAPLACE = {"privacy": {"mechanism": "laplace", "epsilon_per_message": 0.5}, "rounds": 2, "hyper.dim": 2}
RAW = [name for name in plan_names() if any(build_sampler(s.cohort).fitted != "rounds" for s in load_plan(name).stages)]


@pytest.fixture
def unfitted(monkeypatch):
    """Spending does not depend on what is learned, so nothing is fitted, to save time."""
    monkeypatch.setattr("tacit.lab.simulation.federation.fit_in_lab", lambda *_: {})


def test_the_plans_that_need_raw_data_are_found():
    assert {
        "itemknn",
        "bpr-mf",
        "gmf",
        "vae",
        "fedgnn",
        "fedrec-plus",
        "seqmf-popularity-prior",
        "fedseqrec-central",
    } <= set(RAW)
    assert not {"fcf", "popularity", "mfu", "fpl", "seqmf"} & set(RAW)


@pytest.mark.parametrize("name", RAW)
def test_a_plan_that_needs_raw_data_says_so_everywhere(name, unfitted):
    run = simulate(name, small_world(5), quiet=True)
    spent = run.spent()
    assert spent["epsilon"] == {"median": math.inf, "worst": math.inf}
    assert spent["raw_data"] == {"median": True, "worst": True}
    assert spent["bytes"] == spent["messages"] == {"median": None, "worst": None}, "not counted, and not 0"
    assert run.ledgers.spent(Budget(math.inf), run.ledgers.pages[0].time).tolist() == [math.inf] * 5
    assert run.bytes_up_per_device is None
    assert run.bytes_down_per_device is None
    assert run.sent == "raw data"
    assert "raw data" in run._repr_html_()
    page = to_markdown(run.card)
    assert "nothing sent" not in page
    assert "| bytes | raw data | raw data |" in page
    assert "| epsilon | ∞ | ∞ |" in page
    assert "stay on devices" not in run.card["purpose"]


@pytest.mark.parametrize("name", ["itemknn", "fedgnn"])
def test_tables_and_reports_say_raw_data(name, unfitted):
    found = trial(load_plan(name), small_world(6), quiet=True)
    assert found.sent == "raw data"
    assert found.to_dict()["sent"] == "raw data"
    assert found.to_dict()["bytes_up_per_device"] is None
    assert "ε ∞ and ∞ (no budget); raw data" in _spent(found.run.spent())
    made = report_data(found)
    assert made["outlook"][0]["verdict"] == "raw data"
    assert made["specimen"]["kind"] == "raw"
    json.dumps(made, allow_nan=False)
    beside = report_data(trial(choose("popularity"), small_world(6), quiet=True))
    page = render([made, beside])
    assert "raw data" in page
    assert "nothing sent" not in render([made])


def test_a_comparison_has_no_bytes_for_raw_data(unfitted):
    from tacit.lab.experiments.compare import compare

    found = compare(["itemknn", "popularity"], small_world(8), "full", [0], quiet=True)
    raw, counted = found.to_dict()["plans"]
    assert (raw["bytes_up_per_device"], raw["sent"]) == (None, "raw data")
    assert counted["bytes_up_per_device"] > 0


def test_a_finite_budget_does_not_cover_raw_data(unfitted):
    with pytest.raises(PlanError, match="budget of ε = 100 does not cover stage 1 of itemknn") as caught:
        simulate("itemknn", small_world(4), quiet=True, budget=Budget(100.0))
    assert "\n" not in str(caught.value)
    free = simulate("itemknn", small_world(4), quiet=True, budget=Budget(math.inf))
    assert free.spent()["epsilon"]["worst"] == math.inf


def test_raw_data_uses_up_the_budget_of_later_runs(unfitted, tmp_path):
    world, budget = small_world(4), Budget(9.0)
    first = simulate("itemknn", world, quiet=True, out=tmp_path / "raw")
    private = choose("fcf", LAPLACE)
    for before in (first, tmp_path / "raw"):
        run = simulate(private, world, quiet=True, budget=budget, after=before)
        assert [row["reports"] for row in run.rounds] == [0, 0]
        assert run.spent()["epsilon"]["worst"] == math.inf
        assert run.spent()["raw_data"]["worst"] is True
        assert run.sent == "nothing", "this run itself sent nothing"


def test_ledgers_continue_when_a_run_is_resumed_loaded_or_updated(unfitted, tmp_path):
    world = small_world(4)
    run = simulate("itemknn", world, quiet=True, out=tmp_path / "run")
    again = simulate("itemknn", world, quiet=True, out=tmp_path / "run", resume=True)
    assert again.ledgers.pages == run.ledgers.pages
    assert Ledgers.load(tmp_path / "run", world.device_names).pages == run.ledgers.pages
    run.save(tmp_path / "kept")
    loaded = type(run).load(tmp_path / "kept")
    assert loaded.spent()["epsilon"] == {"median": math.inf, "worst": math.inf}
    later = run.update(from_events(np.array([0, 1]), np.array([3, 4]), n_items=world.catalog.n_items), quiet=True)
    assert len(later.ledgers.pages) == 2
    assert later.spent()["epsilon"]["worst"] == math.inf


def test_one_stage_of_raw_data_is_enough(unfitted):
    raw, private = load_plan("itemknn").stages[0], choose("fcf", LAPLACE).stages[0]
    run = simulate(Plan("both", (raw, private)), small_world(5), quiet=True)
    assert run.price.whole.epsilon == math.inf
    assert run.spent()["epsilon"]["median"] == math.inf
    assert run.sent == "raw data"
    assert report_data(run)["specimen"]["kind"] == "raw"
    assert [page.bytes > 0 for page in run.ledgers.pages] == [False, True], "messages are counted beside it"


def test_several_runs_over_raw_data_have_no_finite_cost_together():
    raw, private = (price(plan, 50) for plan in (load_plan("itemknn"), choose("fcf", LAPLACE)))
    assert total_cost([private] * 2).epsilon == pytest.approx(2.0)
    assert total_cost([raw] * 2).epsilon == total_cost([raw, private]).epsilon == math.inf


class Elsewhere(Pooled):
    """A sampler of another name."""

    name = "elsewhere"


def test_the_sampler_says_how_a_stage_is_fitted_whatever_its_name(unfitted, monkeypatch):
    from tacit.privacy import sampler

    monkeypatch.setitem(sampler.SAMPLERS, "elsewhere", Elsewhere)
    plan = choose("itemknn", {"cohort": {"sampler": "elsewhere"}})
    run = simulate(plan, small_world(4), quiet=True)
    assert run.sent == "raw data"
    assert run.spent()["epsilon"]["worst"] == math.inf
    assert plan_settings(plan) == plan_settings(load_plan("itemknn"))
    assert assess_feasibility(plan, run.population.catalog, 4)[0].verdict == "raw data"
    with pytest.raises(PlanError, match="cannot be deployed: stage 1 pools raw histories"):
        Bundle(plan, run.population.catalog, {}, 4, (None,))


def test_a_helped_plan_has_no_rounds_to_set():
    assert not [name for name in plan_settings(load_plan("fedgnn")) if not name.startswith(("method", "hyper"))]


def test_without_anything_to_train_nothing_is_pooled():
    control = load_plan("itemknn").with_setting("rounds", 0)
    run = simulate(control, small_world(4), quiet=True)
    assert run.price.whole.epsilon == 0
    assert run.spent()["epsilon"]["worst"] == 0
    assert run.sent == "nothing"
    assert not np.any(run.params["similarity"]), "as it began"


def test_a_stage_that_never_trains_is_refused_when_it_is_priced():
    with pytest.raises(PlanError, match="promises to train items in 0 rounds"):
        price(Plan("p", (Stage("fcf", trains=("items",)),)), 10)


def test_a_card_before_the_run_says_raw_data():
    page = to_markdown(card(price(complete(load_plan("gmf")), 100)))
    assert "## Stage 1: gmf, raw data" in page


# ---- bytes of messages that name rows ----


def rows_plan(rounds=3, **more):
    return choose("fpl", {"rounds": rounds, "hyper.dim": 3, "privacy.wire": "rows", **more})


def bytes_left(monkeypatch):
    """A debug run in which every report is packed as a device would; how many bytes each device sent."""
    from tacit.lab.simulation import debug

    left: list[int] = []
    plain = debug._one

    def packed(job, broadcast, home, own, where):
        made = plain(job, broadcast, home, own, where)
        if bool(made[1].sent):
            from tacit.lab.simulation.engine import wire_schema

            left.append(len(pack(wire_schema(job, broadcast.params), made[1])))
        return made

    monkeypatch.setattr(debug, "_one", packed)
    return left


@pytest.mark.parametrize("messages", [None, 2])
def test_bytes_in_the_ledger_are_those_that_left(monkeypatch, messages):
    plan = rows_plan(**({} if messages is None else {"privacy.messages": messages}))
    world = small_world(7, items=60)
    left = bytes_left(monkeypatch)
    by_hand = simulate(plan, world, quiet=True, performance=Performance("debug"))
    each = np.array(left).reshape(-1, 7).sum(0)  # round by round, in the order of the devices
    fast = simulate(plan, world, quiet=True)
    for run in (by_hand, fast):
        np.testing.assert_array_equal(run.ledgers.bytes[:, 0], each)
        assert run.spent()["bytes"] == {"median": float(np.sort(each)[3]), "worst": float(each.max())}
        assert run.bytes_up_per_device == pytest.approx(each.mean())
        assert run.ledgers.pages[0].bytes == round(each.sum() / len(left))
        assert sum(row["bytes_up"] for row in run.rounds) == each.sum()
    assert np.unique(each).size > 1, "people who have more send more"


@pytest.mark.parametrize(
    "cohort", [{"sampler": "one"}, pytest.param({"sampler": "fixed", "count": 90}, marks=pytest.mark.slow)]
)
def test_every_executor_counts_the_same_bytes(cohort):
    """Scanned rounds of few devices, and rounds of many on all cores."""
    world = small_world(120, items=200)
    plan = rows_plan(2, cohort=cohort)
    run, slow = (simulate(plan, world, quiet=True, performance=Performance(way)) for way in ("fast", "debug"))
    np.testing.assert_array_equal(run.ledgers.bytes, slow.ledgers.bytes)
    assert run.ledgers.bytes.sum() == sum(row["bytes_up"] for row in run.rounds)
    assert (run.ledgers.bytes[:, 0] > 0).tolist() == (run.ledgers.sent[:, 0] > 0).tolist()


def test_bytes_survive_a_folder(tmp_path):
    world, plan = small_world(7, items=60), rows_plan(4)
    whole = simulate(plan, world, quiet=True)
    calls = []

    def stop(run):
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        simulate(
            plan,
            world,
            quiet=True,
            out=tmp_path / "cut",
            performance=Performance(save_seconds=0.0),
            evaluate=stop,
            every=1,
        )
    run = simulate(plan, world, quiet=True, out=tmp_path / "cut", resume=True)
    np.testing.assert_array_equal(run.ledgers.bytes, whole.ledgers.bytes)
    kept = Ledgers.load(tmp_path / "cut", world.device_names)
    np.testing.assert_array_equal(kept.bytes, whole.ledgers.bytes)
    after = simulate(plan, world, quiet=True, after=tmp_path / "cut")
    np.testing.assert_array_equal(after.ledgers.bytes[:, 0], whole.ledgers.bytes[:, 0])


def test_ledgers_without_bytes_of_their_own_are_read_as_before(tmp_path):
    run = simulate(choose("popularity"), small_world(4), quiet=True)
    run.ledgers.save(tmp_path)
    write_arrays(tmp_path / "ledgers.npz", {"counts": run.ledgers.counts})
    assert Ledgers.load(tmp_path, run.ledgers.users).summary(Budget(math.inf)) == run.ledgers.summary(Budget(math.inf))
