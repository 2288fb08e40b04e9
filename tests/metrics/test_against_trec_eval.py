"""Our metrics and those of trec_eval, which text retrieval has used for thirty years, give the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.lab.data import from_events
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.scoring import top_lists
from tacit.lab.runs.run import simulate
from tacit.metrics import Relevant, area, per_case, per_list, rank

pytrec_eval = pytest.importorskip("pytrec_eval")

USERS, ITEMS = 40, 60
CUTS = (1, 5, 10, 20)
MEASURES = {"HR": "success", "R": "recall", "P": "P", "NDCG": "ndcg_cut"}
ASKED = {f"{measure}.{','.join(map(str, CUTS))}" for measure in MEASURES.values()} | {"recip_rank"}


@pytest.fixture(params=[0, 1, 2], name="case")
def _case(request):
    """Random scores without ties, and for each user 1 to 29 relevant items."""
    rng = np.random.default_rng(request.param)
    scores = rng.permuted(np.tile(np.arange(ITEMS), (USERS, 1)), axis=1)
    right = [rng.choice(ITEMS, rng.integers(1, 30), replace=False).tolist() for _ in range(USERS)]
    return scores, right


def judge(scores, right):
    """trec_eval's numbers, {measure: float[users]}."""
    truth = {str(u): {str(i): 1 for i in items} for u, items in enumerate(right)}
    run = {str(u): {str(i): float(s) for i, s in enumerate(line)} for u, line in enumerate(scores)}
    each = pytrec_eval.RelevanceEvaluator(truth, ASKED).evaluate(run)
    return {name: np.array([each[str(u)][name] for u in range(len(right))]) for name in each["0"]}


@pytest.mark.parametrize("n", CUTS)
@pytest.mark.parametrize("ours", MEASURES)
def test_lists_are_graded_like_trec_eval(case, ours, n):
    scores, right = case
    lists = np.argsort(-scores, axis=1)[:, :n]
    found = per_list(lists, Relevant.of(right), f"{ours}@{n}")
    np.testing.assert_allclose(found, judge(scores, right)[f"{MEASURES[ours]}_{n}"], atol=1e-9)
    assert 0 < found.mean() < 1


def test_the_first_hit_is_found_where_trec_eval_finds_it(case):
    scores, right = case
    found = per_list(np.argsort(-scores, axis=1), Relevant.of(right), "MRR")
    np.testing.assert_allclose(found, judge(scores, right)["recip_rank"], atol=1e-9)


def ranks_of(scores, targets):
    keys = jax.random.split(jax.random.key(0), len(targets))
    return np.asarray(jax.vmap(rank)(keys, jnp.asarray(scores, jnp.float32), jnp.asarray(targets)))


def test_ranks_of_one_target_are_graded_like_trec_eval(case):
    scores, right = case
    targets = [items[0] for items in right]
    judged, ranks = judge(scores, [[one] for one in targets]), ranks_of(scores, targets)
    np.testing.assert_allclose(per_case(ranks, "MRR"), judged["recip_rank"], atol=1e-9)
    for ours, theirs in MEASURES.items():
        for n in CUTS:
            np.testing.assert_allclose(per_case(ranks, f"{ours}@{n}"), judged[f"{theirs}_{n}"], atol=1e-9)


def test_auc_is_the_mann_whitney_statistic(case):
    """trec_eval has no AUC; the share of pairs in the right order is scipy's U over the number of pairs."""
    scores, right = case
    user = np.repeat(np.arange(USERS), [len(items) for items in right])
    target = np.concatenate(right)
    positive = np.zeros((USERS, ITEMS), bool)
    positive[user, target] = True
    rivals = np.where(positive, -np.inf, scores)[user]  # each positive among the negatives alone
    rivals[np.arange(target.size), target] = scores[user, target]
    found = area(ranks_of(rivals, target), (~positive).sum(1)[user])
    for u in range(USERS):
        mine, others = scores[u, positive[u]], scores[u, ~positive[u]]
        wanted = stats.mannwhitneyu(mine, others).statistic / (mine.size * others.size)
        assert found[user == u].mean() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # ranx compiles with numba, which warns of casts of its own
@pytest.mark.parametrize("repeats", ["new", "all"])
def test_a_protocol_with_repeats_is_graded_like_ranx(repeats):
    """The lists of everybody evaluated, judged by a library of its own, with and without what they have already."""
    ranx = pytest.importorskip("ranx")
    way = load_protocol("bench", repeats=repeats)
    weight = 1 / np.arange(1, 61)
    items = np.random.default_rng(0).choice(60, 300 * 12, p=weight / weight.sum())
    split = way.split(from_events(np.repeat(np.arange(300), 12), items))
    run = simulate("popularity", split.train, quiet=True)
    answers = way.evaluate(run, split)
    among = np.unique(split.train.items)
    devices, lists = top_lists(run, split, 10, among=among, with_seen=repeats == "all")
    truth = {str(u): {str(t): 1} for u, t in zip(split.test.device, split.test.target)}
    shown = {str(u): {str(item): 10.0 - at for at, item in enumerate(row)} for u, row in zip(devices, lists)}
    assert set(truth) == set(shown)
    judged = ranx.evaluate(ranx.Qrels(truth), ranx.Run(shown), ["hit_rate@10", "ndcg@10", "mrr@10"])
    assert answers.metrics["HR@10"] == pytest.approx(judged["hit_rate@10"])
    assert answers.metrics["NDCG@10"] == pytest.approx(judged["ndcg@10"])
    assert 0 < answers.metrics["NDCG@10"] < 1
    assert (answers.units.size == 300) == (repeats == "all")
