"""The synthetic worlds: what they reproduce, what their knobs do, and that a seed is a world."""

import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.selection import take
from tacit.lab.data.synthetic import apps, movies
from tacit.lab.data.synthetic.apps import apps_settings
from tacit.lab.evaluation.candidates import SeenBefore
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.sessions import days_of, drop_quick_repeats
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate

BASELINES = ("Random", "MRU", "MFU", "SR", "SR-od")
# HR@1, HR@3, HR@5 as printed for LSApp in Table 1 of the SeqMF paper.
TABLE_1 = np.array(
    [[0.089, 0.239, 0.365], [0.618, 0.823, 0.849], [0.403, 0.669, 0.777], [0.610, 0.801, 0.863], [0.612, 0.824, 0.893]]
)


class StaticEvaluation:
    """The five baselines on a launch log: calendar split, iterative revealing, session and user means. Plain NumPy."""

    def __init__(self, world: Population, test: float = 14, validation: float = 7, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.items, self.N = world.items.astype(int), world.catalog.n_items
        self.user = np.repeat(np.arange(len(world)), world.lengths)
        self._clean(world.times)
        day = np.floor((self.times - self.times.min()) / 86_400)
        train, self.test = day <= day.max() - test - validation, day > day.max() - test
        self._fit(len(world), train)

    def _clean(self, times: np.ndarray) -> None:
        """Drop a repeat within 3 seconds; a gap over 15 minutes begins a session."""
        bounce = (np.diff(self.user) == 0) & (np.diff(self.items) == 0) & (np.diff(times) < 3)
        keep = np.concatenate([[True], ~bounce])
        self.items, self.user, self.times = self.items[keep], self.user[keep], times[keep]
        new = (np.diff(self.user) != 0) | (np.diff(self.times) > 15 * 60)
        self.start = np.flatnonzero(np.concatenate([[True], new]))
        self.length = np.diff(np.append(self.start, self.items.size))

    def _fit(self, users: int, train: np.ndarray) -> None:
        N, items, user = self.N, self.items, self.user
        self.count = np.zeros((users, N), np.float32)
        np.add.at(self.count, (user[train], items[train]), 1)
        step = np.flatnonzero(train[1:] & train[:-1] & (user[1:] == user[:-1]))
        self.own = np.zeros((users, N, N), np.float32)
        np.add.at(self.own, (user[step], items[step], items[step + 1]), 1)
        self.everybody = self.own.sum(axis=0)
        self.first = np.full((users, N), items.size)
        np.minimum.at(self.first, (user, items), np.arange(items.size))

    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """(session of each prediction, rank of its target under each baseline), all sessions a step at a time."""
        asked = np.flatnonzero(self.test[self.start] & (self.length > 1))
        asked = asked[np.argsort(-self.length[asked], kind="stable")]
        latest = np.zeros((asked.size, self.N), np.float32)
        sessions, ranks = [], []
        for t in range(1, self.length[asked[0]]):
            now = asked[: np.searchsorted(-self.length[asked], -t, side="left")]
            at = self.start[now] + t
            latest[np.arange(now.size), self.items[at - 1]] = t
            sessions.append(now)
            ranks.append(self._rank(at, latest[: now.size]))
        return np.concatenate(sessions), np.concatenate(ranks, axis=1)

    def _rank(self, at: np.ndarray, latest: np.ndarray) -> np.ndarray:
        user, last, target, rows = self.user[at], self.items[at - 1], self.items[at], np.arange(at.size)
        candidate = self.first[user] < at[:, None]
        candidate[rows, target] = True
        jitter = self.rng.random(latest.shape, np.float32) * 0.5  # counts and places are whole numbers
        found = []
        for score in (0 * latest, latest, self.count[user], self.everybody[last], self.own[user, last]):
            full = np.where(candidate, score + jitter, -1)
            found.append(1 + (full > full[rows, target][:, None]).sum(axis=1))
        return np.stack(found)

    def hit_rates(self) -> np.ndarray:
        """[5, 3] HR@1, HR@3, HR@5: predictions → sessions → users."""
        session, rank = self.ranks()
        hit = (rank[:, None, :] <= np.array([1, 3, 5])[:, None]).reshape(15, -1)
        asked, place = np.unique(session, return_inverse=True)
        by_session = _means(hit, place)
        users, owner = np.unique(self.user[self.start[asked]], return_inverse=True)
        self.asked_users = users.size
        return _means(by_session, owner).mean(axis=1).reshape(5, 3)


def _means(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(group, row) for row in values.astype(float)]) / np.bincount(group)


def _hit_rates(setting: str, seeds: range, users: int = 292, **split: float) -> np.ndarray:
    """Mean over seeds; `pytest -s` shows the table."""
    each = [StaticEvaluation(apps(users, setting=setting, seed=seed), **split).hit_rates() for seed in seeds]
    mean = np.mean(each, axis=0)
    print(f"\n{setting}, {users} users, seeds {list(seeds)}; largest spread of a cell {np.std(each, axis=0).max():.3f}")
    for name, row in zip(BASELINES, mean):
        print(f"{name:7}", *(f"{rate:.3f}" for rate in row))
        if users == 292:
            on_the_page(" / ".join(f"{rate:.3f}" for rate in row))
    return mean


def on_the_page(words: str) -> None:
    """What is printed here is what docs/synthetic-data.md says; numbers below 1 stand there without their 0."""
    page = (Path(__file__).parents[3] / "docs" / "synthetic-data.md").read_text(encoding="utf-8")
    assert re.sub(r"\b0\.", ".", words) in page or words in page, f"docs/synthetic-data.md does not say {words}"


# ---- apps: what it reproduces ----


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["strong", "weak"])
def test_the_launch_log_reproduces_the_baselines_of_a_field_study(setting):
    error = np.abs(_hit_rates(setting, range(3)) - TABLE_1)
    print(f"mean absolute error {error[1:].mean():.4f}, of Random {error[0].mean():.4f}")
    on_the_page(f"{error[1:].mean():.4f}")
    assert error[1:].mean() <= 0.02
    assert error[0].mean() <= 0.03
    assert error.max() <= 0.06


@pytest.mark.slow
def test_the_library_asks_as_the_evaluation_above_does():
    """Two implementations of one protocol, one on arrays, one through every device's own score, agree to tie-breaking."""
    world = apps(150, seed=3)
    expected = StaticEvaluation(world).hit_rates()
    log = drop_quick_repeats(world)
    day, protocol = days_of(log), load_protocol("seqmf")
    protocol = replace(protocol, make_candidates=lambda split, seed: SeenBefore(split, plus_target=True))
    split = replace(protocol.split(world), train=take(log, day <= day.max() - 21))
    for row, name in zip(expected, ("random", "mru", "mfu", "sr", "sr-od")):
        found = protocol.evaluate(simulate(load_plan(name), split.train, quiet=True), split).metrics
        np.testing.assert_allclose(
            [found[f"HR@{n}"] for n in (1, 3, 5)], row, atol=0.025 if name == "random" else 0.012
        )


@pytest.mark.slow
def test_with_500_apps_everybodys_steps_help_most():
    chance, recent, frequent, everybody, own = _hit_rates("apps500", range(3), test=1, validation=1)
    assert (everybody > own).all()
    assert (own > frequent + 0.05).all()
    assert (recent > frequent + 0.05).all()
    assert (frequent > chance + 0.1).all()


@pytest.mark.parametrize("setting", ["strong", "weak"])
def test_a_small_launch_log_is_already_near(setting):
    error = np.abs(_hit_rates(setting, range(1), users=150) - TABLE_1)
    assert error[1:].mean() <= 0.04


def test_the_evaluation_ranks_a_known_log():
    """Two users who alternate two apps: after training, own steps know the next launch and staying never does."""
    times = np.concatenate([np.arange(40) * 86_400.0 + t for t in (0, 10, 20)])
    items = np.concatenate([np.full(40, i) for i in (0, 1, 0)])
    order = np.argsort(times, kind="stable")
    log = Population(
        Catalog(2), np.array([0, 120, 240]), np.tile(items[order], 2).astype(np.int32), np.tile(times[order], 2)
    )
    rates = StaticEvaluation(log).hit_rates()
    assert rates[4].tolist() == [1, 1, 1]  # SR-od
    assert rates[1].tolist() == [0, 1, 1]  # MRU
    assert 0.2 < rates[0, 0] < 0.8  # Random


def test_the_popularity_curve_has_the_shape_of_the_field_study():
    world = apps(292)
    share = np.sort(np.bincount(world.items, minlength=87))[::-1] / world.items.size
    assert 0.08 < share[0] < 0.25
    assert 0.4 < share[:10].sum() < 0.8  # .57 in LSApp
    assert share[60:].sum() < 0.03


# ---- apps: the rules of the log ----


def test_cleaning_and_sessions_are_recovered():
    world = apps(60, days=30)
    log = StaticEvaluation(world, 6, 3)
    assert log.items.size == world.items.size  # nothing bounces
    gaps = np.diff(log.times)[np.diff(log.user) == 0]
    assert gaps.min() > 3
    assert not ((gaps > 301 + 3.5) & (gaps <= 15 * 60)).any()  # a pause is short or ends the session
    assert np.quantile(log.length, [0.25, 0.5, 0.75]) == pytest.approx([4, 12, 38], rel=0.35)


def test_active_days_fill_the_span_and_follow_days():
    whole, half = apps(200), apps(200, days=35)
    for world, span in ((whole, 70), (half, 35)):
        day = np.floor((world.times - world.times.min()) / 86_400).astype(int)
        assert day.max() <= span - 1
        person = np.repeat(np.arange(len(world)), world.lengths)
        assert np.median([np.unique(day[person == u]).size for u in range(200)]) == pytest.approx(span / 5, rel=0.2)


def test_the_three_settings_differ_as_they_say():
    assert apps_settings("strong").shared_links > 2 * apps_settings("weak").shared_links
    assert apps_settings("strong").own_links < apps_settings("weak").own_links
    world = apps(40, setting="apps500")
    assert world.catalog.n_items == 500
    assert np.unique(world.items).size > 120


def test_the_catalog_can_be_resized_and_numbers_tell_nothing():
    world = apps(300, apps=200, days=10)
    assert world.catalog.n_items == 200
    count = np.bincount(world.items, minlength=200)
    assert abs(np.corrcoef(count, np.arange(200))[0, 1]) < 0.25


@pytest.mark.parametrize("world", [apps, movies])
def test_a_seed_is_a_world(world):
    assert world(60, seed=3).digest == world(60, seed=3).digest != world(60, seed=4).digest


def test_batches_do_not_depend_on_who_comes_after():
    few, many = movies(512, 200), movies(700, 200)
    assert np.array_equal(few.items, many.items[: few.items.size])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: apps(setting="string"),
            "apps has no setting 'string'; did you mean 'strong'? Known: apps500, strong, weak.",
        ),
        (lambda: apps(0), "apps needs at least 1 user, 1 day and 5 apps, got 0 users, 70 days and 87 apps."),
        (lambda: movies(0), "movies needs at least 1 user and 50 items, got 0 and 1500."),
        (lambda: movies(silos=1), "movies: silos must be 0 for none, or at least 2, got 1."),
        (lambda: movies(taste_gap=-1), "movies: taste_gap must lie between 0 and 2, got -1."),
        (lambda: movies(activity_gap=3), "movies: activity_gap must lie between 0 and 2, got 3."),
    ],
)
def test_mistakes_are_told_in_one_sentence(call, sentence):
    with pytest.raises(DataError) as told:
        call()
    assert str(told.value) == sentence


# ---- movies: what can be learned ----


@pytest.fixture(scope="module")
def rated() -> Population:
    return movies()


def _person(world: Population) -> np.ndarray:
    return np.repeat(np.arange(len(world)), world.lengths)


def _genre_shares(world: Population) -> np.ndarray:
    """[n, G] the share of each genre in each history."""
    genres = np.asarray(world.catalog.attributes["genres"])
    total = np.zeros((len(world), genres.shape[1]))
    np.add.at(total, _person(world), genres[world.items])
    return total / total.sum(axis=1, keepdims=True)


def test_steps_beat_neighbours_beat_popularity_beats_chance(rated):
    n, m, last = len(rated), rated.catalog.n_items, rated.offsets[1:] - 1
    person, keep = _person(rated), np.ones(rated.items.size, bool)
    keep[last] = False
    seen = np.zeros((n, m), np.float32)
    seen[person[keep], rated.items[keep]] = 1
    count = seen.sum(axis=0)
    cosine = seen.T @ seen / np.sqrt(np.outer(count, count) + 1e-9)
    np.fill_diagonal(cosine, 0)
    pair = np.flatnonzero(keep[1:] & (person[1:] == person[:-1]))
    steps = np.zeros((m, m))
    np.add.at(steps, (rated.items[pair], rated.items[pair + 1]), 1)

    def hit_rate(score: np.ndarray) -> float:
        score = np.where(seen > 0, -np.inf, score)
        target = score[np.arange(n), rated.items[last]]
        return float(((score > target[:, None]).sum(axis=1) < 10).mean())

    chance = hit_rate(np.random.default_rng(0).random((n, m)))
    popular = hit_rate(np.tile(count, (n, 1)))
    near = hit_rate(seen @ cosine)
    next_one = hit_rate(steps[rated.items[last - 1]] + 1e-3 * count / count.max())
    print(f"\nHR@10 random {chance:.3f}, popularity {popular:.3f}, neighbours {near:.3f}, steps {next_one:.3f}")
    on_the_page(f"random {chance:.3f}, popularity {popular:.3f}, cosine neighbours {near:.3f}, steps {next_one:.3f}")
    assert popular > 4 * chance
    assert near > 1.4 * popular
    assert next_one > 1.1 * near


def test_features_predict_genres(rated):
    """Least squares on one-hot features, fitted on half the people, explains the other half's genre shares."""
    share = _genre_shares(rated)
    codes, fields = rated.person.astype(int), rated.catalog.person_fields
    one_hot = np.concatenate([np.eye(field.size)[codes[:, f]] for f, field in enumerate(fields)], axis=1)
    half = len(rated) // 2

    def explained(x: np.ndarray) -> float:
        fitted = np.linalg.lstsq(x[:half], share[:half], rcond=None)[0]
        rest = share[half:]
        return 1 - ((rest - x[half:] @ fitted) ** 2).sum() / ((rest - share[:half].mean(axis=0)) ** 2).sum()

    told, shuffled = explained(one_hot), explained(one_hot[np.random.default_rng(0).permutation(len(rated))])
    print(f"\ngenre shares explained by features {told:.3f}, by shuffled features {shuffled:.3f}")
    on_the_page(f"{told:.3f}; with features shuffled between people {shuffled:.3f}")
    assert told > 0.1
    assert shuffled < 0.02


def test_sequels_follow_and_never_come_twice(rated):
    person = _person(rated)
    assert np.unique(person * 10_000 + rated.items).size == rated.items.size
    words = np.asarray(rated.catalog.attributes["title"])
    same = (words[rated.items[1:], :2] == words[rated.items[:-1], :2]).all(axis=1) & (np.diff(person) == 0)
    assert same.mean() > 0.05


def test_ratings_times_and_columns_are_in_order(rated):
    assert set(np.unique(rated.labels)) == {1, 2, 3, 4, 5}
    assert 3 < rated.labels.mean() < 4
    assert (np.diff(rated.times)[np.diff(_person(rated)) == 0] >= 0).all()
    assert 2.5 < (rated.times.max() - rated.times.min()) / (365.25 * 86_400) <= 3.01
    for field in rated.catalog.item_fields:
        column = np.asarray(rated.catalog.attributes[field.name])
        assert column.size == rated.catalog.n_items * field.width
    title = rated.catalog.item_fields[1]
    assert len(set(title.values)) == len(title.values) > np.asarray(rated.catalog.attributes["title"]).max()
    assert rated.person.shape == (len(rated), sum(field.width for field in rated.catalog.person_fields))
    assert all("synthetic" in name for name in rated.item_names)
    assert rated.silo is None


def test_popularity_has_a_long_tail(rated):
    count = np.sort(np.bincount(rated.items, minlength=rated.catalog.n_items))[::-1]
    assert count[:300].sum() > 0.5 * count.sum()  # a fifth of the titles takes more than half
    assert count[0] > 10 * np.median(count)


def test_taste_drifts(rated):
    """The genres of a person's earliest ratings tell less about the latest than the ones just before do."""
    genres, start, end = np.asarray(rated.catalog.attributes["genres"]), rated.offsets[:-1], rated.offsets[1:]
    long = np.flatnonzero((rated.lengths >= 60) & (rated.times[end - 1] - rated.times[start] > 1.5 * 365 * 86_400))

    def mean(at: np.ndarray) -> np.ndarray:
        found = genres[rated.items[at[:, None] + np.arange(20)]].mean(axis=1)
        return found - found.mean(axis=0)

    first, late, latest = mean(start[long]), mean(end[long] - 40), mean(end[long] - 20)
    assert (late * latest).sum() > 1.1 * (first * latest).sum()


# ---- movies: organisations ----


def _apart(world: Population) -> float:
    """Mean distance between the organisations' genre shares (total variation)."""
    share = _genre_shares(world)
    each = np.stack([share[world.silo == k].mean(axis=0) for k in range(len(world.silo_names))])
    return float(np.abs(each - each.mean(axis=0)).sum(axis=1).mean() / 2)


@pytest.mark.slow
@pytest.mark.parametrize("silos", [2, 16])
def test_taste_gap_moves_organisations_apart(silos):
    none, some, much = (_apart(movies(2000, 400, silos=silos, taste_gap=gap)) for gap in (0, 0.5, 1))
    print(f"\n{silos} organisations, distance of genre shares at gap 0, 0.5, 1: {none:.3f}, {some:.3f}, {much:.3f}")
    on_the_page(f"{'two' if silos == 2 else 'sixteen'}: {none:.3f}, {some:.3f}, {much:.3f}")
    assert 2 * none < some < much


@pytest.mark.slow
@pytest.mark.parametrize("silos", [2, 16])
def test_activity_gap_makes_sizes_and_lengths_uneven(silos):
    def ratios(gap: float) -> tuple[float, float]:
        world = movies(3000, 400, silos=silos, activity_gap=gap)
        sizes = np.bincount(world.silo, minlength=silos)
        means = np.bincount(world.silo, world.lengths) / sizes
        return sizes[0] / sizes[-1], means[0] / means[-1]

    even, uneven = ratios(0), ratios(1)
    print(f"\n{silos} organisations, first to last, (size, mean length) at gap 0: {even}, at gap 1: {uneven}")
    size, length = ("size × ", "mean length × ") if silos == 2 else ("× ", "× ")
    on_the_page(f"{size}{even[0]:.2f}, {length}{even[1]:.2f}")
    on_the_page(f"{size}{uneven[0]:.1f}, {length}{uneven[1]:.1f}")
    assert even == pytest.approx((1, 1), abs=0.3)
    assert uneven[0] > 5
    assert uneven[1] > 1.8


@pytest.mark.slow
def test_a_hundred_thousand_people_take_bounded_time():
    begun = time.perf_counter()
    assert len(movies(100_000)) == 100_000
    assert len(apps(100_000, days=5)) == 100_000
    assert time.perf_counter() - begun < 600
