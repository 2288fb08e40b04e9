"""Metrics with known answers, and what must hold for any ranking."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import DataError, PlanError
from tacit.metrics import (
    DEFINITIONS,
    NAMES,
    Metric,
    Relevant,
    area,
    average,
    gini,
    hits,
    item_counts,
    levels,
    list_summary,
    over_catalogue,
    parse,
    per_case,
    per_list,
    rank,
    summary,
)

KEY = jax.random.key(0)
LISTS = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 4], [0, 1, 2]])
RIGHT = Relevant.of([[0, 5], [3], [6], [1, 2, 0, 4]])
_rank = jax.jit(rank, static_argnames="ties")
_many = jax.jit(jax.vmap(rank, (0, 0, 0, None)), static_argnums=3)


def place(scores, target, ties="random", key=KEY):
    return int(_rank(key, jnp.asarray(scores, jnp.float32), target, ties))


# ---- names ----


def written(name, n):
    """The name of a metric with a cut-off, where it takes one."""
    return name if DEFINITIONS[name].cut_off == "none" else f"{name}@{n}"


FROM_RANKS = [written(name, 5) for name, one in DEFINITIONS.items() if one.of_ranks is not None] + ["MRR"]
FROM_LISTS = [written(name, 5) for name, one in DEFINITIONS.items() if one.of_hits is not None] + ["MRR"]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_metric_is_described_and_has_a_value(name):
    one = DEFINITIONS[name]
    assert one.__doc__
    assert one.name == name
    ways = (one.of_ranks, one.of_hits, one.of_popularity, one.of_counts, one.of_means)
    assert any(way is not None for way in ways)


def test_a_class_among_the_definitions_is_a_metric_under_each_of_its_names():
    assert {"NDCG", "AUC", "Gini"} <= set(DEFINITIONS)
    assert {short for short in NAMES.values()} == set(DEFINITIONS)
    assert NAMES["Precision"] == "P"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_read_in_any_capitals(name):
    word = name if name == "AUC" else f"{name}@7"
    assert parse(word) == parse(word.lower()) == Metric(NAMES[name], None if name == "AUC" else 7)


def test_aliases_of_hr_precision_and_recall():
    assert str(parse("Hits@3")) == "HR@3"
    assert parse("P@3") == parse("Precision@3")
    assert parse("R@3") == parse("Recall@3")
    assert str(parse("MRR")) == "MRR"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("NDGC@10", r"Tacit has no metric 'NDGC'; did you mean 'NDCG'\? Known: AUC, Coverage, F1, G, "),
        ("Recal@10", r"no metric 'Recal'; did you mean 'Recall'\?"),
        ("NDCG", "NDCG needs a cut-off of at least 1, got 'NDCG'; write 'NDCG@10', say."),
        ("HR@0", "HR needs a cut-off of at least 1, got 'HR@0'"),
        ("MRR@ten", "MRR needs a cut-off of at least 1, got 'MRR@ten'"),
        ("MRR@", "MRR needs a cut-off of at least 1, got 'MRR@'"),
        ("AUC@5", "AUC looks at every place and takes no cut-off, got 'AUC@5'; write 'AUC'."),
    ],
)
def test_a_wrong_name_is_one_sentence(name, sentence):
    with pytest.raises(PlanError, match=sentence):
        parse(name)


# ---- one target ----


def test_a_single_target():
    assert place([0.1, 0.9, 0.4, 0.7, 0.3], 2) == 3
    names = (
        "HR@1",
        "MRR@1",
        "NDCG@1",
        "HR@3",
        "Hits@3",
        "MRR@3",
        "NDCG@3",
        "MRR@5",
        "MRR",
        "P@3",
        "R@3",
        "F1@3",
        "AUC",
    )
    got = summary(np.array([3]), names, negatives=4)
    want = (0, 0, 0, 1, 1, 0.3333333, 0.5, 0.3333333, 0.3333333, 0.3333333, 1, 0.5, 0.5)
    assert got == pytest.approx(dict(zip(names, want)), abs=1e-7)


def test_mrr_without_a_cut_off_sees_every_place():
    assert summary(np.array([20, 50]), ("MRR", "MRR@10")) == {"MRR": pytest.approx(0.035), "MRR@10": 0.0}


def test_two_targets_have_one_auc():
    scores, labels = np.array([0.1, 0.9, 0.4, 0.7, 0.3]), np.array([1, 0, 1, 0, 0], bool)
    found = np.array([place([s, *scores[~labels]], 0) for s in scores[labels]])
    assert area(found, 3).mean() == pytest.approx(0.1666667, abs=1e-7)


def test_a_user_with_three_positives():
    got = summary(np.array([1, 4, 12]), ("Hits@10", "NDCG@10"))
    assert got == pytest.approx({"Hits@10": 0.6666667, "NDCG@10": 0.4768922}, abs=1e-7)


@pytest.mark.parametrize(("ties", "want"), [("pessimistic", 4), ("optimistic", 2)])
def test_ties_by_policy(ties, want):
    scores = [0.5, 0.9, 0.5, -jnp.inf, 0.5, 0.1]
    assert [place(scores, 2, ties, jax.random.key(s)) for s in range(5)] == [want] * 5


def test_random_ties_are_uniform_between_the_other_two_and_seeded():
    scores = [0.5, 0.9, 0.5, -jnp.inf, 0.5, 0.1]
    keys = jax.random.split(KEY, 3000)
    found = np.asarray(jax.vmap(lambda key: rank(key, jnp.array(scores), 2))(keys))
    # Places 2, 3 and 4 with probability 1/3: sd of a count is 26; 5 sd.
    np.testing.assert_allclose(np.bincount(found, minlength=7), [0, 0, 1000, 1000, 1000, 0, 0], atol=130)
    assert place(scores, 2) == place(scores, 2)


def test_a_constant_scorer_scores_like_random():
    m, c = 5000, 50
    targets = jax.random.randint(jax.random.key(1), (m,), 0, 5)  # the first items: index order would flatter
    keys = jax.random.split(KEY, m)
    constant = np.asarray(_many(keys, jnp.zeros((m, c)), targets, "random"))
    random = np.asarray(_many(keys, jax.random.uniform(jax.random.key(2), (m, c)), targets, "random"))
    expected = np.full(c, m / c)
    for found in (constant, random):
        assert stats.chisquare(np.bincount(found, minlength=c + 1)[1:], expected).pvalue > 1e-4
    for name in ("HR@10", "MRR@10", "NDCG@10", "AUC"):
        ours, theirs = (per_case(found, name, negatives=c - 1) for found in (constant, random))
        apart = abs(ours.mean() - theirs.mean())
        assert apart < 4 * np.hypot(ours.std(), theirs.std()) / np.sqrt(m), name
    for ties, hit in (("pessimistic", 0.0), ("optimistic", 1.0)):
        assert summary(np.asarray(_many(keys, jnp.zeros((m, c)), targets, ties)), ("HR@10",)) == {"HR@10": hit}


def test_scores_that_are_not_numbers_never_win():
    nan, inf = jnp.nan, jnp.inf
    assert place([nan, 0.1, -5.0], 0) == 3
    assert place([nan, 0.1, nan], 1) == 1
    assert {place([nan] * 3, 0, key=jax.random.key(s)) for s in range(30)} == {1, 2, 3}
    assert place([-inf, -inf, -inf], 0) == 3  # no candidate at all: never a hit
    assert place([-inf, 0.3, -inf], 0) == 3


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: place([1.0, 2.0], 0, "randm"), PlanError, r"rank has no tie policy 'randm'; did you mean 'random'\?"),
        (lambda: per_case(np.array([0, 2]), "HR@1"), DataError, "Ranks start at 1, got 0."),
        (lambda: per_case(np.array([2]), "AUC"), DataError, "AUC needs the number of negatives beside the ranks"),
        (lambda: per_case(np.array([2]), "AUC", negatives=0), DataError, "AUC needs at least 1 negative"),
        (
            lambda: per_case(np.array([2, 9]), "AUC", negatives=np.array([5, 4])),
            DataError,
            "A rank among 4 negatives is at most 5, got 9.",
        ),
        (lambda: per_case(np.array([2]), "IC@5"), PlanError, "IC@5 has no value for a single rank"),
        (lambda: per_case(np.array([2]), "F1@5"), PlanError, "F1@5 has no value for a single rank"),
        (lambda: summary(np.array([])), DataError, "An average needs at least one value, got none."),
    ],
)
def test_rank_mistakes(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


# ---- lists ----


def test_lists_with_known_answers():
    names = ("P@3", "R@3", "F1@3", "IC@3", "Gini@3", "G@3", "Coverage@3")
    got = list_summary(LISTS, RIGHT, names, n_items=8)
    want = (0.4166667, 0.5625, 0.4787234, 5, 0.6190476, 0.3809524, 0.625)
    assert got == pytest.approx(dict(zip(names, want)), abs=1e-7)
    assert item_counts(LISTS, 8).tolist() == [4, 3, 3, 1, 1, 0, 0, 0]


def test_lists_one_by_one():
    found, sizes = hits(LISTS, RIGHT)
    assert found.astype(int).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1]]
    assert sizes.tolist() == [2, 1, 1, 4]
    assert per_list(LISTS, RIGHT, "HR@2").tolist() == [1, 0, 0, 1]
    np.testing.assert_allclose(per_list(LISTS, RIGHT, "MRR"), [1, 1 / 3, 0, 1])
    # List 0: 1 / (1 + 1/log2 3); list 1: 1/log2 4.
    np.testing.assert_allclose(per_list(LISTS, RIGHT, "NDCG@3"), [0.6131471928, 0.5, 0, 1])


def test_f1_is_computed_from_the_means():
    each = per_list(LISTS, RIGHT, "P@3"), per_list(LISTS, RIGHT, "R@3")
    both = each[0] + each[1]
    mean_of_f1 = np.mean(np.divide(2 * each[0] * each[1], both, out=np.zeros(4), where=both > 0))
    assert mean_of_f1 != pytest.approx(0.4787234, abs=1e-3)
    assert list_summary(LISTS, Relevant.of([[7]] * 4), ("F1@3",)) == {"F1@3": 0.0}


def test_novelty_and_popularity_are_means_over_items():
    popularity = np.array([8, 4, 2, 1, 1, 0, 0, 0])  # shares 1/2, 1/4, 1/8, 1/16, 1/16 and no event
    assert per_list(LISTS, None, "Novelty@3", popularity=popularity).tolist() == [2.0, 7 / 3, 8 / 3, 2.0]
    assert per_list(LISTS, None, "Popularity@2", popularity=popularity).tolist() == [6, 6, 5, 6]
    padded = np.array([[5, -1]])  # an item without events counts as having one
    assert list_summary(padded, None, ("Novelty@2", "Popularity@2"), popularity=popularity) == {
        "Novelty@2": 4.0,
        "Popularity@2": 0.0,
    }


def test_padding_is_no_item_but_counts_as_a_place():
    lists = np.array([[4, -1, -1], [-1, -1, -1]])
    right = Relevant.of([[4, 1], [2]])
    assert per_list(lists, right, "P@3").tolist() == [1 / 3, 0]
    assert per_list(lists, right, "R@3").tolist() == [0.5, 0]
    assert over_catalogue(lists, "IC@3", 8) == 1


def test_an_item_named_twice_among_the_relevant_counts_once():
    assert per_list(np.array([[3, 1]]), Relevant.of([[3, 3]]), "R@2").tolist() == [1.0]


def test_both_families_agree_on_a_single_target():
    rng = np.random.default_rng(0)
    lists = np.argsort(rng.random((50, 30)), axis=1)
    target = rng.integers(30, size=50)
    ranks = 1 + np.argmax(lists == target[:, None], axis=1)
    right = Relevant(np.arange(51), target)
    for name in sorted({*FROM_RANKS} & {*FROM_LISTS}):
        np.testing.assert_allclose(per_list(lists, right, name), per_case(ranks, name), atol=1e-12)
    assert list_summary(lists, right, ("F1@5",)) == pytest.approx(summary(ranks, ("F1@5",)))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: per_list(LISTS, RIGHT, "P@4"), DataError, "P@4 needs lists of at least 4 places, got 3; pad with -1."),
        (lambda: per_list(LISTS, None, "P@3"), DataError, "P@3 needs the relevant items of each list"),
        (lambda: per_list(LISTS, RIGHT, "AUC"), PlanError, "AUC has no value for a single list"),
        (lambda: per_list(LISTS[:3], RIGHT, "P@3"), DataError, "got 3 lists and 4 sets."),
        (lambda: per_list(LISTS[0], RIGHT, "P@3"), DataError, r"not empty, got shape \(3,\)."),
        (lambda: per_list(LISTS[:0], Relevant.of([]), "P@3"), DataError, r"got shape \(0, 3\)."),
        (lambda: hits(np.array([[1, 2], [3, 3]]), Relevant.of([[1], [1]])), DataError, "list 1 names one twice."),
        (lambda: hits(LISTS[:2], Relevant.of([[1], []])), DataError, "list 1 has none; leave such lists out."),
        (lambda: hits(LISTS[:1], Relevant.of([[-1]])), DataError, "Relevant items are numbered from 0, got -1."),
        (lambda: over_catalogue(LISTS, "IC@3", 4), DataError, "A list names item 4, but the catalogue has 4 items"),
        (lambda: over_catalogue(LISTS, "P@3", 8), PlanError, "The catalogue has no metric 'P'"),
        (lambda: list_summary(LISTS, RIGHT, ("IC@3",)), DataError, "IC@3 needs the size of the catalogue, got none"),
        (lambda: per_list(LISTS, None, "Novelty@3"), DataError, "Novelty@3 needs the number of events of each item"),
        (
            lambda: per_list(np.array([[1], [-1]]), None, "Popularity@1", popularity=np.ones(3)),
            DataError,
            "Popularity@1 needs an item in every list, list 1 is empty",
        ),
        (
            lambda: per_list(LISTS, None, "Novelty@3", popularity=np.ones(3)),
            DataError,
            "A list names item 4, but the catalogue has 3 items",
        ),
    ],
)
def test_list_mistakes(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


# ---- averaging ----

RANKS = np.array([1, 3, 2, 1, 1, 6])  # u0: [[1, 3], [2]], u1: [[1, 1, 6]]
USER = np.array([0, 0, 0, 1, 1, 1])
SESSION = np.array([0, 0, 1, 0, 0, 0])  # numbered within each user


@pytest.mark.parametrize(
    ("by", "want", "each"),
    [
        ("user", 0.625, [(2 / 3 + 1 / 2) / 2, 2 / 3]),
        ("session", 0.6111111, [2 / 3, 2 / 3, 1 / 2]),
        ("micro", 0.6388889, [1, 1 / 3, 1 / 2, 1, 1, 0]),
    ],
)
def test_averages_of_the_papers(by, want, each):
    found = average(per_case(RANKS, "MRR@5"), levels(by, USER, SESSION))
    assert found.value == pytest.approx(want, abs=1e-7)
    np.testing.assert_allclose(np.sort(found.values), np.sort(each))
    got = summary(RANKS, ("MRR@5",), groups=levels(by, USER, SESSION))
    assert got == {"MRR@5": pytest.approx(want, abs=1e-7)}


def test_hit_rate_by_user_and_the_users_names():
    assert average(per_case(RANKS, "HR@5"), (SESSION, USER)).value == pytest.approx(0.8333333, abs=1e-7)
    names = np.array(["b", "b", "b", "a", "a", "a"])
    found = average(per_case(RANKS, "HR@5"), levels("user", names, SESSION))
    assert dict(zip(found.groups.tolist(), found.values)) == {"a": pytest.approx(2 / 3), "b": 1.0}


def test_without_sessions_users_average_their_cases():
    found = average(per_case(RANKS, "HR@2"), levels("user", USER))
    assert found.values.tolist() == [pytest.approx(2 / 3), pytest.approx(2 / 3)]


def test_the_order_of_cases_changes_no_average():
    rng = np.random.default_rng(0)
    user, session, values = rng.integers(9, size=200), rng.integers(4, size=200), rng.random(200)
    by_hand = [
        np.mean([values[(user == u) & (session == s)].mean() for s in np.unique(session[user == u])])
        for u in np.unique(user)
    ]
    for order in (np.arange(200), rng.permutation(200)):
        found = average(values[order], (session[order], user[order]))
        np.testing.assert_allclose(found.values, by_hand)
        assert found.groups.tolist() == np.unique(user).tolist()


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: levels("users", USER), PlanError, r"Averaging has no way 'users'; did you mean 'user'\?"),
        (lambda: levels("session", USER), DataError, "Averaging by session needs the session of each case, got none"),
        (lambda: average(np.ones(3), (USER,)), DataError, r"Groups must label each of 3 values, got \[6\] labels."),
    ],
)
def test_averaging_mistakes(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


# ---- what holds for any ranking ----

CANDIDATES = 12
different = st.lists(st.integers(-1000, 1000), min_size=CANDIDATES, max_size=CANDIDATES, unique=True)
alike = st.lists(st.integers(0, 3), min_size=CANDIDATES, max_size=CANDIDATES)
NEGATIVES = 40


@given(different, st.permutations(range(CANDIDATES)), st.integers(0, CANDIDATES - 1), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_without_ties_the_order_of_candidates_changes_nothing(scores, order, target, seed):
    scores, order = np.array(scores), np.array(order)
    moved = place(scores[order], int(np.flatnonzero(order == target)[0]), key=jax.random.key(seed))
    assert moved == place(scores, target) == 1 + np.sum(scores > scores[target])


@given(alike, st.integers(0, CANDIDATES - 2), st.sampled_from(["random", "pessimistic", "optimistic"]))
@settings(max_examples=60, deadline=None)
def test_a_worse_candidate_never_improves_a_metric_nor_harms_one(scores, target, ties):
    fewer = np.array([*scores[:-1], -np.inf])  # the last is no candidate
    more = np.array([*scores[:-1], min(scores) - 1])
    before, after = (np.array([place(s, target, ties)]) for s in (fewer, more))
    for name in FROM_RANKS:
        worse, better = (per_case(found, name, negatives=NEGATIVES) for found in (after, before))
        assert worse <= better, name
    assert before == after


@given(different, st.integers(0, CANDIDATES - 2))
@settings(max_examples=40, deadline=None)
def test_a_better_candidate_never_improves_a_metric(scores, target):
    fewer = np.array([*scores[:-1], -np.inf])
    more = np.array([*scores[:-1], max(scores) + 1])
    before, after = (np.array([place(s, target)]) for s in (fewer, more))
    assert after == before + 1
    for name in FROM_RANKS:
        worse, better = (per_case(found, name, negatives=NEGATIVES) for found in (after, before))
        assert worse <= better, name


@st.composite
def list_evaluations(draw):
    m, n_items = draw(st.integers(1, 6)), draw(st.integers(6, 20))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    lists = np.argsort(rng.random((m, n_items)), axis=1)[:, :6]
    lists = np.where(np.arange(6) < rng.integers(0, 7, (m, 1)), lists, -1)
    right = [rng.choice(n_items, rng.integers(1, n_items), replace=False) for _ in range(m)]
    return lists, Relevant.of([one.tolist() for one in right]), n_items


@given(list_evaluations())
@settings(max_examples=100, deadline=None)
def test_metrics_of_lists_lie_in_their_bounds(evaluation):
    lists, right, n_items = evaluation
    for name in FROM_LISTS:
        each = per_list(lists, right, name)
        assert ((each >= 0) & (each <= DEFINITIONS[parse(name).kind].highest + 1e-12)).all(), name
    for name, one in DEFINITIONS.items():
        if one.of_counts is not None or one.of_means is not None:
            value = list_summary(lists, right, (f"{name}@5",), n_items=n_items)[f"{name}@5"]
            assert -1e-12 <= value <= one.highest + 1e-12, name


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(40, 60))
def test_metrics_of_ranks_lie_in_their_bounds(ranks, negatives):
    for name in FROM_RANKS:
        each = per_case(np.array(ranks), name, negatives=negatives)
        assert ((each >= 0) & (each <= DEFINITIONS[parse(name).kind].highest)).all(), name


@given(st.integers(2, 50), st.integers(1, 1000), st.integers(0, 49))
def test_gini_of_equal_counts_is_0_and_of_one_item_is_1(n_items, count, which):
    assert gini(np.full(n_items, count)) == pytest.approx(0, abs=1e-12)
    alone = np.zeros(n_items)
    alone[which % n_items] = count
    assert gini(alone) == pytest.approx(1)
    assert gini(np.full(1, count)) == gini(np.zeros(n_items)) == 0
