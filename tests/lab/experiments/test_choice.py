"""Which plan for a log: candidates keep the promise, the best are tried, and the sentence is what the numbers say."""

import json
import math

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.experiments import choice
from tacit.lab.experiments.choice import choose_plan, promising

LOG = taste_groups(users=60, items=20, events=8)
RANKS = {"nobody": 0, "organisation": 1, "server": 2}


@pytest.mark.parametrize(("trust", "unit"), [("nobody", "user"), ("nobody", "interaction"), ("server", "user")])
def test_candidates_keep_the_promise(trust, unit):
    found = {cost.plan.name: cost.whole for cost in promising(4.0, trust, unit, 500)}
    assert all(claim.epsilon <= 4 * (1 + 1e-9) for claim in found.values())
    assert all(RANKS[claim.trust] <= RANKS[trust] for claim in found.values())
    assert all(claim.unit == "user" for claim in found.values()) or unit == "interaction"
    assert ("dplcf" in found) == (unit == "interaction")
    assert ("steps" in found) == (trust == "server")
    assert "on-device" in found
    assert not {"bert4rec", "fedgnn", "popularity", "top-pop"} & set(found)


@pytest.mark.slow
def test_the_best_are_tried_beside_private_popularity():
    found = choose_plan(LOG, epsilon=6.0, tries=1, quiet=True)
    assert len(found.tried.names) == 2
    assert found.tried.reference == "popularity"
    epsilons = [trial[0].run.price.whole.epsilon for trial in found.tried.trials.values()]
    assert all(math.isfinite(epsilon) and epsilon <= 6.0 * (1 + 1e-9) for epsilon in epsilons)
    scores = dict(found.ranked)
    assert found.best == "popularity" or scores[found.best].mean > scores["popularity"].mean
    assert found.best in found.sentence or "No plan tried is better" in found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["▲", ""])
def test_a_plan_is_chosen_only_if_it_beats_popularity_beyond_chance(monkeypatch, mark):
    found = choose_plan(LOG, epsilon=6.0, trust="nobody", tries=1, quiet=True)
    other = next(name for name in found.tried.names if name != "popularity")
    monkeypatch.setattr(choice.Score, "mark", property(lambda score: "" if score.difference is None else mark))
    assert found.best == (other if mark else "popularity")


@pytest.mark.slow
def test_the_command_ends_in_a_sentence_and_a_command(tmp_path):
    words = ["choose", "groups", "--users", "40", "--tries", "1", "--trust", "nobody"]
    lines = CliRunner().invoke(app, words).output.strip().splitlines()
    assert lines[-1].startswith("tacit run ")
    assert "private popularity" in lines[-2]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["best"] in lines[-1]
    assert "--trust is one of nobody" in CliRunner().invoke(app, ["choose", "groups", "--trust", "me"]).output
