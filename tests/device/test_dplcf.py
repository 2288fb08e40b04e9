"""DPLCF and its baselines: the table of neighbours, scores on the device, the paper's errors, and the tiled computation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import close, same
from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows
from tacit.device.methods.dplcf import DPLCF
from tacit.errors import PlanError
from tacit.lab.data import from_events
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import held_out_users, leave_last_out
from tacit.lab.plans.loader import choose, load_plan
from tacit.lab.runs.run import simulate
from tacit.lab.simulation import cooccurrence
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence
from tacit.privacy.sampler import build_sampler
from tacit.server.rule import build_rule
from tacit_papers.dplcf.readings import channel, inverse, printed_inverse

HAD = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 1]])  # five people, three items
SAID = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 0], [0, 1, 1]])
LOUD = "ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"


def table(said, recipe="clamp", measure="jaccard", k=2, strength=3.0, **odds):
    """Similarities of all items as the rule finds them, [N, N], 0 where there is none."""
    mechanism = build_mechanism({"mechanism": "cooccurrence", **(odds or {"p": 1.0, "q": 0.0})})
    mechanism = mechanism.settle(build_sampler({"sampler": "all"}).exposure(1, said.shape[0]))
    zero = mechanism.zero({"items": jnp.zeros(said.shape[1])}, 1)
    packed = {"items": jnp.asarray(np.packbits(said, axis=1))}
    total = mechanism.add(zero, packed, jnp.ones((said.shape[0], 1)), jnp.ones(said.shape[0], bool))
    estimate = mechanism.estimate(jax.random.key(0), total, jnp.asarray(5), {})
    rule = build_rule({"rule": "similarity", "recipe": recipe, "measure": measure, "strength": strength})
    n = said.shape[1]
    start = {"neighbours": jnp.full((n, k), n, jnp.int32), "similarity": jnp.zeros((n, k))}
    made, _ = rule.finish(start, estimate, jnp.asarray(5), ())
    found = np.zeros((n, n + 1))
    np.put_along_axis(found, np.asarray(made["neighbours"]), np.asarray(made["similarity"]), 1)
    return found[:, :n]


# ---- the table ----


def test_jaccard_of_true_and_randomised_bits():
    np.testing.assert_allclose(table(HAD)[np.triu_indices(3, 1)], [0.5, 0.25, 0], atol=1e-6)
    np.testing.assert_allclose(table(SAID)[np.triu_indices(3, 1)], [0.6, 0.4, 0.4], atol=1e-6)
    np.testing.assert_allclose(table(SAID, epsilon=1.0, debias=False)[0, 1:], [0.6, 0.4], atol=1e-6)


@pytest.mark.parametrize(
    ("odds", "similar"),
    [
        ({"epsilon": 0.5}, (1.0, 0.0971020)),
        ({"epsilon": 1.0}, (0.9727647, 0.3166405)),
        ({"epsilon": 3.0}, (0.6296157, 0.3972243)),
        ({"epsilon": 0.5, "form": "asymmetric"}, (0.0, 0.0)),
        ({"epsilon": 1.0, "form": "asymmetric"}, (0.3672093, 0.05081398)),
        ({"epsilon": 3.0, "form": "asymmetric"}, (0.5790418, 0.3685626)),
    ],
)
def test_five_people_by_hand(odds, similar):
    made = table(SAID, **odds)
    np.testing.assert_allclose(made[0, 1:], similar, atol=2e-6)
    np.testing.assert_allclose(made, made.T)
    assert not np.diagonal(made).any()


def test_raw_estimates_are_left_as_they_are():
    """Three estimates and nothing else: n̂₀₁ = −0.083 of a union of 5, and −2.624 of 5."""
    made = table(SAID, "raw", epsilon=0.5, form="asymmetric")
    np.testing.assert_allclose(made[0, 1:], [-0.0165976, -0.5248964], atol=1e-5)


def test_cosine():
    np.testing.assert_allclose(table(HAD, measure="cosine")[0, 1:], [2 / 3, 1 / math.sqrt(6)], atol=1e-6)


def test_without_noise_all_recipes_but_one_agree():
    said = np.random.default_rng(0).random((400, 12)) < 0.3
    right = table(said, k=11)
    for recipe in ("floor", "error", "bound", "raw"):
        np.testing.assert_allclose(table(said, recipe, k=11), right, atol=1e-6)
    np.testing.assert_allclose(table(said, "expected", k=11), right, atol=1e-5)


def test_shrinking_shrinks_and_more_errors_shrink_more():
    said = np.random.default_rng(1).random((3000, 12)) < 0.4
    clamp = table(said, k=11, epsilon=1.0)
    for recipe in ("floor", "error", "bound"):
        gentle, harsh = (table(said, recipe, k=11, strength=z, epsilon=1.0) for z in (1.0, 3.0))
        assert (gentle <= clamp + 1e-6).all()
        assert (harsh <= gentle + 1e-6).all()
        assert 0 < gentle.sum() < clamp.sum() or recipe == "floor"


def test_similarities_within_noise_are_shrunk_to_popularity():
    """Independent items under loud noise: estimates scatter, shrunk ones stand at n_i·n_j/M."""
    rng, people = np.random.default_rng(2), 4000
    had = rng.random((people, 30)) < np.linspace(0.1, 0.5, 30)
    p, q = 0.7310585786, 0.2689414214
    said = rng.random(had.shape) < np.where(had, p, q)
    each = had.sum(0)
    chance = np.outer(each, each) / people
    right = chance / (each[:, None] + each - chance)
    off = ~np.eye(30, dtype=bool)
    wrong = {
        recipe: np.abs(table(said, recipe, k=29, epsilon=1.0) - right)[off].mean() for recipe in ("clamp", "expected")
    }
    assert wrong["expected"] < 0.6 * wrong["clamp"], wrong


def test_the_rule_says_what_it_needs():
    rule, params = build_rule({"rule": "similarity"}), {"neighbours": jnp.zeros((3, 2), jnp.int32)}
    with pytest.raises(
        PlanError, match=r"server\.rule 'similarity' needs counts of pairs; set privacy\.mechanism = 'cooccurrence'"
    ):
        rule.finish(params, ({"items": jnp.zeros((1, 3))}, jnp.ones(1)), jnp.asarray(1), ())
    with pytest.raises(PlanError, match=r"server\.recipe must be one of 'raw', 'clamp'"):
        build_rule({"rule": "similarity", "recipe": "best"})


@pytest.mark.bitwise
def test_many_items_are_ranked_block_by_block(monkeypatch):
    said = np.random.default_rng(3).random((200, 50)) < 0.3
    whole = table(said, k=5)
    monkeypatch.setattr("tacit.server.rules.similarity.BLOCK", 50 * 7)
    np.testing.assert_array_equal(table(said, k=5), whole)


# ---- scores at home ----


def score(neighbours, similarity, items):
    n = len(neighbours)
    method = DPLCF(catalog=Catalog(n), neighbours=len(neighbours[0]))
    params = {"neighbours": jnp.asarray(neighbours), "similarity": jnp.asarray(similarity, jnp.float32)}
    own = Rows(jnp.asarray([*items, n], jnp.int32), jnp.asarray([1] * len(items) + [0]), n)
    return np.asarray(method.score(params, {}, own, jnp.full(1, -1), jnp.arange(n)))


def test_the_score_sums_the_candidate_s_own_neighbours():
    np.testing.assert_allclose(score([[1, 2], [0, 3], [0, 3]], [[0.5, 0.25], [0.5, 0], [0.25, 0]], [1]), [0.5, 0, 0])
    # Item 0 is a neighbour of item 1, and item 1 none of item 0: having 0 speaks for 1, having 1 not for 0.
    assert score([[2], [0], [0]], [[0.3], [0.5], [0.3]], [0]).tolist() == pytest.approx([0, 0.5, 0.3])
    assert score([[2], [0], [0]], [[0.3], [0.5], [0.3]], [1]).tolist() == pytest.approx([0, 0, 0])


@pytest.mark.slow
@pytest.mark.filterwarnings(LOUD)
def test_it_learns_similarities_and_serves_new_users():
    log = taste_groups(users=600, items=120, events=15)
    plan = choose("dplcf", {"hyper.neighbours": 10}, epsilon=3.0)
    for split in (leave_last_out(log), held_out_users(log, seed=0)):
        private = (ranks(cooccurrence.learn(plan, split.train), split) <= 10).mean()
        popular = (ranks(simulate("popularity", split.train, quiet=True), split) <= 10).mean()
        assert private > popular + 0.1


# ---- piece by piece ----


@pytest.fixture(scope="module")
def log():
    return taste_groups(users=300, items=150)


@pytest.mark.bitwise
@pytest.mark.filterwarnings(LOUD)
@pytest.mark.parametrize("name", ["dplcf", "dplcf-paper", "lcf-ap"])
def test_tiles_learn_the_same_table(log, name):
    whole = simulate(name, log, quiet=True, seed=4)
    for tiled in (False, True):
        run = cooccurrence.learn(name, log, seed=4, tiled=tiled)
        np.testing.assert_array_equal(run.params["neighbours"], whole.params["neighbours"])
        close(run.params["similarity"], whole.params["similarity"], 1e-6)
    same(run.price.whole.epsilon, whole.price.whole.epsilon)
    assert run.bytes_up_per_device == whole.bytes_up_per_device
    assert run.bytes_down_per_device == whole.bytes_down_per_device
    assert run.spent() == whole.spent()


def test_a_gpu_does_it_at_once(log, monkeypatch):
    """The way of a GPU, computed here: the same table, and the homes have spoken."""
    there = cooccurrence.learn("lcf-ub", log, seed=4)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(cooccurrence, "collect_reports", None)
    run = cooccurrence.learn("lcf-ub", log, seed=4)
    np.testing.assert_array_equal(run.params["neighbours"], there.params["neighbours"])
    close(run.params["similarity"], there.params["similarity"], 1e-6)
    assert run.spent() == there.spent()
    assert all((bucket.home.spent["0"] == 1).all() for bucket in run.buckets)


def test_too_many_items_for_a_table_are_done_in_tiles(log, monkeypatch):
    """Above the limit the table of all pairs is never made, and what is learned is the same; nobody has to ask for it."""
    whole = simulate("lcf-ub", log, quiet=True)
    monkeypatch.setattr(cooccurrence, "MOST", 149)
    monkeypatch.setattr(cooccurrence, "count_pairs", None)  # what would hold all pairs
    run = cooccurrence.learn("lcf-ub", log)
    np.testing.assert_array_equal(run.params["neighbours"], whole.params["neighbours"])


def test_tiles_hold_one_row_of_tiles_at_a_time(log, monkeypatch):
    """The table of all pairs is never made, and no more rows of tiles than hands can hold."""
    monkeypatch.setattr(cooccurrence, "count_pairs", None)
    run = cooccurrence.learn("lcf-ub", log, tiled=True)
    assert run.params["neighbours"].shape == (150, 20)
    told = []
    cooccurrence.learn("lcf-ub", log, tiled=True, on_progress=lambda what, share: told.append((what, share)))
    assert told[-1] == ("pairs", 1.0)
    assert ("devices", 1.0) in told


def test_progress_is_shown_on_a_terminal(log, monkeypatch, capsys):
    cooccurrence.learn("lcf-ub", log)
    assert not capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cooccurrence.learn("lcf-ub", log)
    said = capsys.readouterr().err
    assert "\rdevices  100 %\n" in said
    assert "\rpairs    100 %\n" in said


def test_tiles_refuse_what_they_cannot_learn(log):
    with pytest.raises(
        PlanError, match=r"mechanism 'cooccurrence' and rule 'similarity', got popularity; use tacit\.simulate"
    ):
        cooccurrence.learn("popularity", log)


# ---- what the paper printed ----

COUNTS = np.array([700, 100, 120, 80])
SP, AP = (0.7310585786300049, 0.2689414213699951), (1.0, math.exp(-1))


@pytest.mark.parametrize(
    ("odds", "row", "column", "value"),
    [
        (SP, 0, 0, 2.502650301),
        (SP, 0, 1, -0.9206735942),
        (SP, 3, 0, 0.3386968873),
        (AP, 1, 0, -0.9206735942),
        (AP, 3, 0, 0.3386968873),
        (AP, 3, 1, -0.5819767069),
        (AP, 1, 1, 1.581976707),
        ((0.9, 0.2), 3, 3, 1.306122449),
    ],
)
def test_the_inverse_against_worked_numbers(odds, row, column, value):
    assert inverse(*odds)[row, column] == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(inverse(*odds) @ channel(*odds), np.eye(4), atol=1e-12)


def test_the_printed_inverse_is_wrong_and_by_how_much():
    said = channel(*AP) @ COUNTS
    assert said[0] == pytest.approx(279.7034806, abs=1e-6)
    assert said[3] == pytest.approx(255.6681753, abs=1e-6)
    assert (inverse(*AP) @ said)[3] == pytest.approx(80, abs=1e-8)
    printed = printed_inverse(AP[1]) @ said
    assert printed[3] == pytest.approx(22.05324585, abs=1e-8)
    assert printed[1] == pytest.approx(357.5, abs=0.1)
    assert printed[0] == pytest.approx(700, abs=1e-6)


def test_three_numbers_are_enough():
    """n̂₁₁ by the inverse of the four counts is n̂_ij by the formula of three."""
    said = channel(*SP) @ COUNTS
    c1, c2, g = said[2] + said[3], said[1] + said[3], said[3]
    p, q = SP
    assert (g - q * (c1 + c2) + 1000 * q * q) / (p - q) ** 2 == pytest.approx(80, abs=1e-9)
    with pytest.raises(PlanError, match=r"p and q must differ, got 0\.5 twice"):
        inverse(0.5, 0.5)


def test_given_counts_are_a_tree():
    pairs = Cooccurrence(jnp.eye(2, dtype=jnp.int32), jnp.asarray(2), (2**32, 0))
    assert len(jax.tree.leaves(pairs)) == 2
    assert pairs.noise == (0.0, 0.0)


# ---- central rivals ----


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bpr-mf", "gmf"])
def test_central_factors_learn_from_the_truth(name):
    split = leave_last_out(taste_groups(users=600, items=120, events=15))
    run = simulate(name, split.train, quiet=True)
    popular = simulate("popularity", split.train, quiet=True)
    hits = [(ranks(one, split) <= 10).mean() for one in (run, popular)]
    assert hits[0] > hits[1] + 0.1
    assert run.price.whole.epsilon == math.inf


def test_items_of_all_users_are_no_negatives():
    """Who has everything has nothing to be compared with: nothing moves, nothing breaks."""
    log = from_events(np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4))
    run = simulate(load_plan("bpr-mf").with_setting("hyper.epochs", 2), log, quiet=True)
    assert all(np.isfinite(leaf).all() for leaf in run.params.values())
