"""Membership: attacks find what was planted for them to find, and nothing where there is nothing."""

import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from tacit.audit.inference import (
    ENCODINGS,
    ModelAnswers,
    Shadow,
    encoded,
    forest_scores,
    load_forest,
    loss_scores,
    score_membership,
)
from tacit.errors import DataError, PlanError
from tacit.lab.audits.membership import infer_membership, model_answers, shadow_models, split_people
from tacit.lab.data.synthetic import movies
from tacit.lab.data.synthetic.small import checkerboard
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.batched_runs import Models
from tacit.privacy.price import price
from tacit_papers import Options, paper
from tacit_papers.privrec import membership, study
from tacit_papers.privrec.membership import target_plan
from tacit_papers.privrec.study import STAND_IN

ITEMS = 20
TINY = {"hyper.dim": 4, "hyper.hidden": (4,), "hyper.epochs": 1, "hyper.most": 8, "rounds": 0}


def people(members: np.ndarray, seed: int, told: float, gap: float = 0.0) -> ModelAnswers:
    """People of whom lists begin with item 0 where they are members, so often; and whose losses are lower by the gap."""
    rng, count = np.random.default_rng(seed), members.size
    lists = np.stack([1 + rng.permutation(ITEMS - 1)[:10] for _ in range(count)])
    lists[:, 0] = np.where(members & (rng.random(count) < told), 0, lists[:, 0])
    losses = 10 * np.random.default_rng(99).random(count) - gap * members + 0.1 * rng.normal(size=count)
    return ModelAnswers(rng.normal(size=(count, 3)), lists, losses, np.eye(ITEMS))


def shadow(seed: int, told: float, gap: float = 0.0, count: int = 300) -> Shadow:
    used = np.random.default_rng([seed, 1]).random(count) < 0.8
    others = people(np.zeros(200, bool), seed + 50, 0.0, gap).losses
    return Shadow(used, people(used, seed, told, gap), others)


MEMBERS = np.arange(200) % 2 == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_forest_finds_what_lists_tell(encoding):
    found = score_membership(forest_scores(shadow(0, told=1.0), people(MEMBERS, 1, told=1.0), encoding), MEMBERS)
    assert found.auc > 0.9
    assert found.balanced > 0.85
    assert found.accuracy == pytest.approx(found.balanced)


def test_a_forest_says_in_of_half_where_there_is_nothing_to_find():
    """Four of five shadow people are in; who is not corrected for would say in of nearly everybody."""
    scores = forest_scores(shadow(0, told=0.0), people(MEMBERS, 1, told=0.0))
    assert 0.3 < (scores > 0).mean() < 0.7
    assert abs(score_membership(scores, MEMBERS).auc - 0.5) < 0.12


def test_losses_are_compared_with_those_of_strangers():
    """Some people are hard to explain for every model; less that, members stand out."""
    gap = 0.5
    target = people(MEMBERS, 7, 0.0, gap)
    found = score_membership(loss_scores([shadow(seed, 0.0, gap) for seed in range(4)], target), MEMBERS)
    raw = score_membership(-(target.losses - target.losses.mean()), MEMBERS)
    assert raw.auc < 0.65
    assert found.auc > 0.95
    assert found.tpr > 0.5


def test_losses_that_say_nothing():
    target = people(MEMBERS, 7, 0.0)
    found = score_membership(loss_scores([shadow(seed, 0.0) for seed in range(4)], target), MEMBERS)
    assert abs(found.auc - 0.5) < 0.12


def test_mistakes_get_a_sentence(monkeypatch):
    said = people(MEMBERS, 0, 0.0)
    with pytest.raises(PlanError, match=r"has no encoding 'id'; did you mean 'ids'\?"):
        encoded(said, "id")
    with pytest.raises(PlanError, match=r"needs at least 2 shadow models, to compare one with, got 1\."):
        loss_scores([shadow(0, 0.0)], said)
    with pytest.raises(DataError, match=r"shadow people must be at least 5 and leave 4 of 20 in question, got 18"):
        split_people(movies(20, 60), 18)
    plan = choose("popularity")
    with pytest.raises(PlanError, match=r"seeds must name at least one target, got none"):
        infer_membership(plan, split_people(movies(20, 60), 8), [], seeds=())
    with pytest.raises(
        DataError, match=r"needs people with features, and this log has none; the dataset 'movies' has some\."
    ):
        shadow_models(plan, split_people(checkerboard(20)[0], 8), 1)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(PlanError, match=r"needs scikit-learn, which is not installed; pip install 'tacit\[audit\]'\."):
        load_forest()


def test_targets_and_shadows_share_nobody():
    found = split_people(movies(40, 60), 15, seed=3)
    assert set(found.shadow) | set(found.private) == set(range(40))
    assert (found.shadow.size, found.private.size) == (15, 25)


def test_the_attacker_is_told_what_the_released_model_answers():
    """The list is the model's own for these features; the same whatever the history."""
    log = movies(30, 60)
    run = simulate(choose("privrec", TINY), log, quiet=True)
    other = {name: 0 * leaf for name, leaf in run.params.items()}
    both = {name: np.stack([other[name], leaf]) for name, leaf in run.params.items()}
    nothing, said = model_answers(Models(run.method, both), log, np.array([3, 17]))
    assert nothing.lists.tolist() == [list(range(10))] * 2, "a model of zeros prefers nothing"
    odds = np.asarray(run.method.odds(run.params, log.person[17], np.arange(60)))
    assert said.lists[1].tolist() == np.argsort(-odds, kind="stable")[:10].tolist()
    assert said.features.tolist() == log.person[[3, 17]].tolist()
    start, end = log.offsets[17], log.offsets[18]
    likes = np.isin(np.arange(60), log.items[start:end][log.labels[start:end] > 3])
    loss = np.log1p(np.exp(-odds))[likes].mean() + np.log1p(np.exp(odds))[~likes].mean()
    assert said.losses[1] == pytest.approx(loss, rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
def test_table_6_stands_beside_the_paper(monkeypatch):
    size = study.Size({"dim": 4, "hidden": (4,), "epochs": 1, "most": 8}, 20, (2,), (1,), (2,), (1.0,), targets=2)
    log = study.Log("movies, tiny", movies(120, 60), size)
    module = paper("privrec")
    monkeypatch.setattr(module, "movie_log", lambda *_: log)
    monkeypatch.setattr(module, "app_log", lambda *_: replace(log, label=STAND_IN, stand_in=STAND_IN, known={}))
    few = {row: membership.MOVIES[row] for row in ("PrivRec", "DP-PrivRec ε = 2", "LM-PrivRec ε = 15")}
    for name in ("MOVIES", "APPS"):
        monkeypatch.setattr(module, name, few)  # every row takes minutes to compile
    monkeypatch.setattr(membership, "SHADOWS", 2)
    table, other = module.reproduce(Options(parts=("table6",), seeds=(0,)))
    assert list(table.rows) == [target.name for target in membership.targets(few)]
    printed, private = (table.rows[f"DP-PrivRec ε = 2, {form}"] for form in ("as printed", "stage 1 private"))
    assert (printed["ε printed"].ours, printed["ε of the run"].ours, printed["at most"].ours) == (2.0, math.inf, 1.0)
    assert private["ε of the run"].ours == pytest.approx(2.0, rel=1e-3)
    assert private["at most"].ours == pytest.approx(0.881, abs=1e-3)
    assert (printed["accuracy"].paper, private["accuracy"].paper) == (0.51, None)
    assert table.rows["PrivRec"]["at most"].ours == 1.0
    assert table.rows["PrivRec"]["accuracy"].paper == 0.65
    rates = [cells[name].ours for cells in table.rows.values() for name in membership.COLUMNS[:7]]
    assert all(0 <= rate <= 1 for rate in rates)
    assert [re.split(" holds| does not hold", note)[0] for note in table.notes[:5]] == [
        "R7 by means, noise hides, as printed",
        "R7 by means, a larger ε shows more, as printed",
        "R7 by means, Laplace shows more",
        "R7 by means, noise hides, stage 1 private",
        "R7 by means, a larger ε shows more, stage 1 private",
    ]
    assert STAND_IN in other.title
    assert all(row.endswith(f"[{STAND_IN}]") for row in other.rows)


@pytest.mark.slow
def test_targets_of_table_6_are_two_stages_with_noise_at_the_server():
    """LM-PrivRec too: Laplace's noise on the sum, at the ε and δ of the row."""
    log = study.Log("movies, tiny", movies(20, 60), study.SIZES["small"])
    noisy = ("DP-PrivRec ε = 15, as printed", "LM-PrivRec ε = 15, as printed")
    shown = {one.name: one for one in membership.targets(membership.MOVIES)}
    plans = {row: target_plan(shown[row], log, 2520) for row in (*noisy, "DP-PrivRec ε = 15, stage 1 private")}
    for row in noisy:
        assert [stage.method for stage in plans[row].stages] == ["masks", "privrec"]
        cost = price(plans[row], 2520)
        assert cost.whole.epsilon == math.inf
        assert cost.stages[1].mechanism.always_releases
        run = next(claim for claim in cost.stages[1].claims if claim.per == "run")
        assert (run.epsilon, run.delta, run.trust) == (pytest.approx(15, rel=1e-3), 1e-5, "server")
    assert plans["LM-PrivRec ε = 15, as printed"].stages[1].privacy["place"] == "central"
    private = price(plans["DP-PrivRec ε = 15, stage 1 private"], 2520).whole
    assert (private.epsilon, private.trust) == (pytest.approx(15, rel=1e-3), "server")
