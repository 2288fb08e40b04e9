"""Single mechanisms: the numbers they are known by, what they refuse, and the facts their claims rest on."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from support.falsify import lower_bound
from support.views import drawn, shaped
from tacit.core.messages import Report
from tacit.core.sparse_rows import Rows, dense_tree
from tacit.errors import PlanError
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.sampler import build_sampler
from tacit.server.round import add_reports, begin, close, zero_total
from tacit.server.rule import build_rule

ONCE = build_sampler({"sampler": "all"}).exposure(1, 100)


def settled(exposure=ONCE, **privacy):
    return build_mechanism(privacy).settle(exposure)


def exposure(sampler, rounds=1, devices=100, **settings):
    return build_sampler({"sampler": sampler, **settings}).exposure(rounds, devices)


def encoded(mechanism, numbers, n=100_000, seed=0):
    """What n devices make of the same few numbers."""
    keys, update = jax.random.split(jax.random.key(seed), n), {"x": jnp.asarray(numbers, jnp.float32)}
    make = lambda key: mechanism.to_numbers(mechanism.encode(key, update, {}), {})["x"]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(make))(keys))


# ---- none ----


def reports(n=8):
    rng = np.random.default_rng(0)
    index = jnp.asarray(np.stack([np.sort(rng.choice(6, 2, replace=False)) for _ in range(n)]), jnp.int32)
    items = Rows(index, jnp.asarray(rng.normal(size=(n, 2, 3)), jnp.float32), 6)
    return {"items": items, "steps": jnp.asarray(rng.integers(0, 9, (n, 4)), jnp.int32)}


def test_none_sums_what_was_sent():
    mechanism = build_mechanism({"mechanism": "none"})
    zero = mechanism.zero({"items": jnp.zeros((6, 3)), "steps": jnp.zeros(4, jnp.int32)}, 1)
    sent = jnp.arange(8) != 3
    total = mechanism.add(zero, reports(), jnp.full((8, 1), 2.0), sent)
    sums, weight = mechanism.estimate(jax.random.key(0), total, jnp.asarray(7), {})
    tables = jax.vmap(dense_tree)(reports())
    np.testing.assert_allclose(sums["items"][0], 2 * (tables["items"] * sent[:, None, None]).sum(0), rtol=1e-5)
    np.testing.assert_array_equal(sums["steps"][0], (tables["steps"] * sent[:, None]).sum(0))
    assert weight.tolist() == [14.0]


def test_none_says_that_positions_are_visible():
    hidden, seen = (settled(mechanism="none", wire=wire).claim(ONCE)[0] for wire in ("dense", "rows"))
    assert "positions are visible" not in str(hidden)
    assert "positions are visible" in str(seen)
    assert hidden.epsilon == math.inf


# ---- laplace ----


def test_laplace_by_the_book():
    """b = 2D/ε on [−1, 1]^D, variance 2b², the mean of M reports √M times closer; 2C/λ for a given scale λ."""
    elements = settled(mechanism="laplace", epsilon=1.0, clip="elements")
    assert elements.noise_scale(10) == pytest.approx(20, abs=1e-9)
    assert elements.spread(10, 1).noise ** 2 == pytest.approx(800, abs=1e-9)
    assert elements.spread(1000, 1000).noise == pytest.approx(89.4427191, abs=1e-7)
    assert settled(mechanism="laplace", scale=0.5, bound=1.0).share == pytest.approx(4, abs=1e-9)


def test_laplace_at_opposite_corners_costs_exactly_epsilon():
    """D = 1: y > 1 has probability ½ from +1, and ½·e^−ε from −1."""
    mechanism = settled(mechanism="laplace", epsilon=2.0)
    one, other = ((encoded(mechanism, [x], seed=i) > 1).sum() for i, x in enumerate((1.0, -1.0)))
    assert binomtest(int(one), 100_000, 0.5).pvalue > 1e-6
    assert binomtest(int(other), 100_000, 0.5 * math.exp(-2)).pvalue > 1e-6
    assert 1.9 < lower_bound(one, 100_000, other, 100_000, alpha=1e-6) < 2


def released(mechanism, x, n=100_000, seed=0):
    """What a server releases, n times over, of one report of these few numbers."""
    payload = mechanism.encode(jax.random.key(0), {"x": jnp.asarray(x, jnp.float32)}, {})
    stack = jax.tree.map(lambda leaf: leaf[None], payload)
    total = mechanism.add(mechanism.zero(payload, 1), stack, jnp.ones((1, 1)), jnp.ones(1, bool))
    keys = jax.random.split(jax.random.key(seed), n)
    return np.asarray(
        jax.jit(jax.vmap(lambda key: mechanism.estimate(key, total, jnp.asarray(1), {})[0]["x"][0]))(keys)
    )


def test_laplace_at_the_server_adds_the_noise_once_to_the_sum():
    mechanism = settled(mechanism="laplace", epsilon=2.0, place="central")
    made = mechanism.to_numbers(mechanism.encode(jax.random.key(0), {"x": jnp.array([3.0, -1.0])}, {}), {})["x"]
    np.testing.assert_allclose(made, [0.75, -0.25], atol=2e-3)
    one, other = ((released(mechanism, [x], seed=i) > 1).sum() for i, x in enumerate((1.0, -1.0)))
    assert binomtest(int(one), 100_000, 0.5).pvalue > 1e-6
    assert binomtest(int(other), 100_000, 0.5 * math.exp(-2)).pvalue > 1e-6
    assert mechanism.estimate(jax.random.key(0), mechanism.zero({"x": jnp.zeros(2)}, 1), jnp.asarray(0), {})[1] == 100
    message, _, run = mechanism.claim(ONCE)
    assert (message.epsilon, message.trust) == (math.inf, "server")
    assert (run.epsilon, run.model, run.trust, run.relation) == (pytest.approx(2), "central", "server", "replace_one")
    assert mechanism.always_releases
    assert "the server sees each clipped report" in mechanism.visible()
    assert mechanism.spread(100, 50).noise == pytest.approx(math.sqrt(2) / 50)


def test_laplace_at_the_server_is_drawn_by_chance_or_counted_as_if_everybody_were():
    """80 rounds of 30 of 2520: b = 2S/ε₀ with ln(1 + q(e^ε₀ − 1)) = ε/80, and as many of everybody with ε₀ = ε/80."""
    drawn, everybody, coins = (
        exposure("fixed", 80, 2520, count=30),
        exposure("all", 80, 2520),
        exposure("poisson", 80, 2520, rate=0.01),
    )
    privacy = {"mechanism": "laplace", "place": "central", "bound": 3.0, "epsilon": 15.0}
    share = math.log1p(math.expm1(15 / 80) / (30 / 2520))
    assert settled(drawn, **privacy).noise_scale(7) == pytest.approx(6 / share)
    assert settled(everybody, **privacy).noise_scale(7) == pytest.approx(6 * 80 / 15)
    assert settled(coins, **privacy).noise_scale(7) == pytest.approx(6 * 80 / 15)
    for world in (drawn, everybody, coins):
        for delta in ({}, {"delta": 1e-5}):
            run = settled(world, **privacy, **delta).claim(world)[-1]
            assert 14.9 < run.epsilon <= 15 * (1 + 1e-9)
            assert run.relation == "replace_one"
    silent = settled(drawn, **privacy, messages=5)
    assert silent.event(drawn)[1] == 1, "who falls silent is no longer drawn by chance alone"
    assert silent.claim(drawn)[-1].epsilon == pytest.approx(15)


def test_a_bound_given_by_the_whole_shrinks_and_one_by_elements_cuts():
    quiet = {"mechanism": "laplace", "epsilon_per_message": 1e6}
    whole, elements = (settled(**quiet, clip=clip) for clip in ("l1", "elements"))
    np.testing.assert_allclose(encoded(whole, [3.0, -1.0], 1), [[0.75, -0.25]], atol=1e-3)
    np.testing.assert_allclose(encoded(elements, [3.0, -0.5], 1), [[1.0, -0.5]], atol=1e-3)


@pytest.mark.parametrize("privacy", [{"mechanism": "laplace"}, {"mechanism": "gaussian", "place": "local"}], ids=str)
def test_nothing_to_say_is_as_noisy_as_anything(privacy):
    mechanism = settled(**privacy, epsilon=1.0)
    silence, signal = (encoded(mechanism, [x], 20_000).std() for x in (0.0, 1e6))
    assert silence == pytest.approx(signal, rel=0.05)
    assert silence > 1


# ---- gaussian ----


def test_gaussian_by_the_book():
    """σ for (1, 1e-6) and ε of σ = 1, at sensitivity 1: neighbours by presence. Replaced, they differ by twice that."""
    presence, replaced = exposure("poisson", rate=1.0), exposure("all")
    gaussian = {"mechanism": "gaussian", "delta": 1e-6}
    assert settled(presence, **gaussian, epsilon=1.0).noise == pytest.approx(4.224678889, rel=1e-4)
    assert settled(replaced, **gaussian, epsilon=1.0).noise == pytest.approx(2 * 4.224678889, rel=1e-4)
    for delta, epsilon in ((1e-6, 4.886554117), (1e-5, 4.377178096)):
        for noise, world, place in ((1.0, presence, "central"), (2.0, replaced, "central"), (2.0, presence, "local")):
            one = settled(world, mechanism="gaussian", delta=delta, noise=noise, place=place)
            assert one.claim(world)[-1].epsilon == pytest.approx(epsilon, abs=1e-6)


def test_a_fixed_cohort_takes_twice_the_noise_of_coins_where_everybody_is_asked():
    coins, fixed = exposure("poisson", rate=1.0, rounds=3), exposure("fixed", count=100, rounds=3)
    one, other = (settled(world, mechanism="gaussian", epsilon=3.0) for world in (coins, fixed))
    assert other.noise / one.noise == pytest.approx(2, rel=1e-4)
    assert [m.claim(w)[-1].relation for m, w in ((one, coins), (other, fixed))] == ["add_remove", "replace_one"]


def test_clipping_is_in_l2_over_all_leaves_together():
    mechanism = settled(mechanism="gaussian", noise=1.0, clip=0.5)
    update = {"a": jnp.array([3.0]), "b": jnp.array([[0.0], [-4.0]])}
    made = mechanism.to_numbers(mechanism.encode(jax.random.key(0), update, {}), {})
    np.testing.assert_allclose([*made["a"], *made["b"][:, 0]], [0.3, 0.0, -0.4], atol=0.02)
    small = {"a": jnp.array([0.1]), "b": jnp.zeros((2, 1))}
    made = mechanism.to_numbers(mechanism.encode(jax.random.key(0), small, {}), {})
    np.testing.assert_allclose(made["a"], [0.1], atol=0.02)


def closed(mechanism, payload, sent, rule="mean_step", seed=0):
    """Parameters after a round in which these payloads came."""
    params, rule = {"x": jnp.zeros(1)}, build_rule({"rule": rule})
    encode = lambda x: mechanism.encode(jax.random.key(9), {"x": x[None]}, {})  # noqa: E731
    report = Report(jax.vmap(encode)(jnp.asarray(payload)), jnp.ones((len(sent), 1)), jnp.asarray(sent))
    total = add_reports(mechanism, zero_total(mechanism, params, ("x",), 1), report)
    after, _, n = close(
        jax.random.key(seed), mechanism, rule, ("x",), params, total, begin(mechanism, rule, ("x",), params)
    )
    return float(after["x"][0]), int(n)


def test_a_central_mean_divides_by_the_planned_cohort_whoever_came():
    mechanism = settled(exposure("fixed", count=4, devices=8), mechanism="gaussian", noise=1e-6)
    assert closed(mechanism, [1.0, 1.0, 1.0, 1.0], [True, True, False, False]) == (pytest.approx(0.5, abs=1e-3), 2)


def test_a_cohort_that_is_empty_still_releases_noise_where_the_server_adds_it():
    central = settled(exposure("poisson", rate=0.5), mechanism="gaussian", noise=1.0)
    local = settled(mechanism="gaussian", noise=1.0, place="local")
    moved, n = closed(central, [1.0], [False])
    assert (moved != 0.0, n) == (True, 0)
    assert closed(central, [1.0], [False], seed=1)[0] != moved
    assert closed(local, [1.0], [False]) == (0.0, 0)


def test_no_noise_is_no_promise():
    for place in ("central", "local"):
        claims = settled(mechanism="gaussian", noise=0.0, place=place).claim(ONCE)
        assert all(claim.epsilon == math.inf for claim in claims)
    assert settled(mechanism="gaussian", noise=3.0, delta=0.0).claim(ONCE)[-1].epsilon == math.inf


def test_a_second_weight_tells_no_more():
    mechanism = settled(mechanism="gaussian", noise=1.0)
    total = mechanism.zero({"x": jnp.zeros(3)}, 2)
    sums, _ = mechanism.estimate(jax.random.key(0), total, jnp.asarray(0), {})
    np.testing.assert_array_equal(sums["x"][0], sums["x"][1])


# ---- response ----


class Odds(RandomizedResponse):
    """Any p and q."""

    p: float = 0.5
    q: float = 0.5

    @property
    def thresholds(self):
        return round(self.p * 2**32), round(self.q * 2**32)


def q_min(p, epsilon):
    """The least q for which p keeps ε on both sides."""
    return max(p * math.exp(-epsilon), 1 - math.exp(epsilon) * (1 - p))


def test_response_by_the_book():
    p, q = settled(mechanism="randomized_response", epsilon=1.0).odds
    assert (p, q) == (pytest.approx(0.7310585786, abs=1e-9), pytest.approx(0.2689414214, abs=1e-9))
    one_sided = settled(mechanism="randomized_response", epsilon=1.0, form="asymmetric")
    assert one_sided.odds == (1.0, pytest.approx(0.3678794412, abs=1e-9))
    assert one_sided.epsilons()[0] == math.inf
    assert one_sided.epsilons()[2] == pytest.approx(1, abs=1e-9)
    assert Odds(epsilon=1.0, p=0.9, q=0.2).epsilons()[0] == pytest.approx(2.079441542, abs=1e-8)


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.7281718172), (0.5, 0.1839397206)])
def test_the_least_q_of_a_p(p, q):
    assert q_min(p, 1.0) == pytest.approx(q, abs=1e-9)
    assert Odds(epsilon=1.0, p=p, q=q).epsilons()[0] == pytest.approx(1, abs=1e-8)
    assert Odds(epsilon=1.0, p=p, q=q - 1e-6).epsilons()[0] > 1 + 1e-6


def response_law(mechanism, bits):
    """P(said) for every said, position by position."""
    p, q = mechanism.odds
    ones = np.where(bits, p, q)
    said = np.array(list(itertools.product((0, 1), repeat=len(bits))))
    return np.where(said, ones, 1 - ones).prod(1)


@pytest.mark.parametrize("form", ["symmetric", "unary", "asymmetric"])
def test_response_output_by_output(form):
    """All histories of three positions and all that can be said of them: each claim is kept, and reached."""
    mechanism = settled(mechanism="randomized_response", epsilon=1.0, form=form)
    histories = np.array(list(itertools.product((0, 1), repeat=3)))
    laws = [response_law(mechanism, bits) for bits in histories]
    worst = {"add_remove": 0.0, "replace_one": 0.0, "one_sided_1_to_0": 0.0}
    for (a, one), (b, other) in itertools.permutations(zip(histories, laws), 2):
        with np.errstate(divide="ignore"):
            loss = np.log(one[one > 0] / other[one > 0]).max()
        more, less = (a > b).sum(), (b > a).sum()
        kinds = {(1, 0): ("add_remove", "one_sided_1_to_0"), (0, 1): ("add_remove",), (1, 1): ("replace_one",)}
        for kind in kinds.get((more, less), ()):
            worst[kind] = max(worst[kind], loss)
    claims = [claim for claim in mechanism.claim(ONCE) if claim.per == "message"]
    assert len(claims) == 2
    for claim in claims:
        assert claim.epsilon == pytest.approx(worst[claim.relation], abs=1e-9)


@pytest.mark.parametrize("form", ["symmetric", "unary", "asymmetric"])
def test_response_says_what_its_odds_are(form):
    mechanism = settled(mechanism="randomized_response", epsilon=1.0, form=form)
    said = np.unpackbits(encoded(mechanism, [1.0, 0.0, 7.0, -1.0, 0.0]), axis=1, count=5)
    p, q = mechanism.odds
    for ones, chance in zip(said.sum(0), (p, q, p, q, q)):
        assert binomtest(int(ones), said.shape[0], chance).pvalue > 1e-6
    apart = np.corrcoef(said[:, [1, 3, 4]].T) - np.eye(3)
    assert np.abs(apart).max() < 5 / math.sqrt(said.shape[0]), "every position has its own coin"


def test_a_said_nought_gives_the_asymmetric_form_away():
    mechanism = settled(mechanism="randomized_response", epsilon=1.0, form="asymmetric")
    said = np.unpackbits(encoded(mechanism, [0.0, 1.0]), axis=1, count=2)
    noughts = (said == 0).sum(0)
    assert lower_bound(noughts[0], 100_000, noughts[1], 100_000) == pytest.approx(9.74, abs=0.02)


# ---- samplers ----


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "all"},
        {"sampler": "pass", "count": 2},
        {"sampler": "one"},
        {"sampler": "fixed", "count": 2},
        {"sampler": "poisson", "rate": 0.4},
    ],
    ids=lambda s: s["sampler"],
)
def test_a_sampler_draws_what_it_says(settings):
    sampler = build_sampler(settings)
    world, asked = sampler.exposure(4, 6), drawn(sampler, 6, 4, 1000, 0)
    assert asked.sum(1).max() == world.messages
    sizes = asked.sum(2)
    assert sizes[:, :3].mean() == pytest.approx(world.cohort, rel=0.05)  # three rounds are a whole pass
    q = world.cohort / 6
    spread = 6 * q * (1 - q) if world.drawn == "poisson" else 0
    assert sizes[:, :3].var() == pytest.approx(spread, rel=0.1)
    if world.drawn:
        each = asked[:, 0].mean(0)
        assert np.abs(each - q).max() < 5 * math.sqrt(q * (1 - q) / 1000)
        again = (asked[:, 0] & asked[:, 1]).mean()
        assert abs(again - q * q) < 5 * math.sqrt(q * q / 6000)


# ---- what an audit proves ----


def test_what_counts_prove():
    assert lower_bound(73100, 10**5, 26900, 10**5) == pytest.approx(0.9857108746, abs=1e-6)
    assert lower_bound(63212, 10**5, 0, 10**5) == pytest.approx(9.744191681, abs=1e-6)
    assert lower_bound(0, 10**5, 0, 10**5) == -math.inf
    assert lower_bound(10**5, 10**5, 10**5, 10**5) < 0
    assert lower_bound(50, 10**5, 0, 10**5, delta=0.01) == -math.inf


# ---- refusals ----

REFUSED = [
    ({"mechanism": "laplac"}, "privacy has no mechanism 'laplac'; did you mean 'laplace'"),
    ({"mechanism": "laplace"}, "must give epsilon, epsilon_per_message or scale, got none of them"),
    ({"mechanism": "laplace", "epsilon": 0.0}, "privacy.epsilon must be at least 1e-06 and at most 1e+06, got 0.0"),
    ({"mechanism": "laplace", "epsilon": -1.0}, "privacy.epsilon must be at least 1e-06 and at most 1e+06, got -1.0"),
    ({"mechanism": "laplace", "epsilon": math.nan}, "privacy.epsilon must be a finite number, got nan"),
    ({"mechanism": "laplace", "epsilon": math.inf}, "privacy.epsilon must be a finite number, got inf"),
    ({"mechanism": "laplace", "epsilon_per_message": 0.0}, "epsilon_per_message must be at least 1e-06"),
    ({"mechanism": "laplace", "epsilon": 1.0, "bound": 0.0}, "privacy.bound must be above 0, got 0.0"),
    ({"mechanism": "laplace", "scale": 0.0}, "privacy.scale must be above 0, got 0.0"),
    ({"mechanism": "laplace", "epsilon": 1.0, "clip": "none"}, "a promise that clip = 'none' cannot keep"),
    (
        {"mechanism": "laplace", "scale": 1.0, "clip": "none", "place": "central"},
        "needs updates with a bound, got clip",
    ),
    ({"mechanism": "laplace", "epsilon": 1.0, "place": "here"}, "privacy.place must be one of 'local', 'central', got"),
    ({"mechanism": "laplace_open", "scale": 1.0, "place": "central"}, "privacy.place must be one of 'local', got"),
    ({"mechanism": "laplace", "scale": 1.0, "clip": "elements"}, "does not determine an ε under clip = 'elements'"),
    ({"mechanism": "laplace", "scale": 1.0, "epsilon_per_message": 2.0}, "scale or epsilon_per_message, not both"),
    (
        {"mechanism": "laplace", "scale": 1.0, "epsilon": 1.0},
        "privacy.epsilon = 1 for the run is a promise that 2 message(s)",
    ),
    ({"mechanism": "laplace", "epsilon": 1.0, "epsilon_per_message": 0.6}, "do not keep: together they cost 1.2"),
    ({"mechanism": "laplace", "epsilon": 1.0, "delta": 0.01}, "privacy.delta must be below 1/devices"),
    ({"mechanism": "laplace", "epsilon": 1.0, "wire": "rows"}, "privacy.wire must be one of 'dense', got 'rows'"),
    ({"mechanism": "laplace", "epsilon": 1.0, "messages": 0}, "privacy.messages must be at least 1, got 0"),
    ({"mechanism": "gaussian"}, "must give epsilon (for the run) or noise, got neither"),
    ({"mechanism": "gaussian", "epsilon": 0.0}, "privacy.epsilon must be at least 1e-06 and at most 1e+06, got 0.0"),
    ({"mechanism": "gaussian", "epsilon": 1.0, "clip": 0.0}, "privacy.clip must be above 0, got 0.0"),
    ({"mechanism": "gaussian", "noise": -1.0}, "privacy.noise must be at least 0, got -1.0"),
    (
        {"mechanism": "gaussian", "epsilon": 1.0, "noise": 0.1},
        "a promise that noise = 0.1 does not keep: the run costs",
    ),
    ({"mechanism": "gaussian", "epsilon": 1.0, "noise": 0.0}, "does not keep: the run costs inf"),
    ({"mechanism": "gaussian", "epsilon": 1.0, "delta": 0.01}, "privacy.delta must be below 1/devices"),
    ({"mechanism": "gaussian", "epsilon": 1.0, "delta": 0.0}, "cannot be reached by any noise"),
    ({"mechanism": "randomized_response"}, "must give epsilon (for the run) or epsilon_per_message, got neither"),
    (
        {"mechanism": "randomized_response", "epsilon": 0.0},
        "privacy.epsilon must be at least 1e-06 and at most 1e+06, got 0.0",
    ),
    (
        {"mechanism": "randomized_response", "epsilon": 1.0, "form": "best"},
        "privacy.form must be one of 'symmetric', 'unary'",
    ),
    (
        {"mechanism": "randomized_response", "epsilon": 1.0, "epsilon_per_message": 1.0},
        "do not keep: together they cost 2",
    ),
]


@pytest.mark.parametrize(("privacy", "sentence"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused(privacy, sentence):
    with pytest.raises(PlanError) as refusal:
        build_mechanism(privacy).settle(exposure("all", rounds=2, devices=1000))
    assert sentence in str(refusal.value)


def test_an_unsettled_promise_cannot_be_used():
    key, update = jax.random.key(0), shaped([1, 0, 0, 0]).update
    with pytest.raises(PlanError, match="not split over messages yet"):
        build_mechanism({"mechanism": "laplace", "epsilon": 1.0}).encode(key, update, {})
    local = build_mechanism({"mechanism": "gaussian", "epsilon": 1.0, "place": "local"})
    with pytest.raises(PlanError, match="not turned into noise yet"):
        local.encode(key, update, {})
    central = build_mechanism({"mechanism": "gaussian", "noise": 1.0})
    with pytest.raises(PlanError, match="has no cohort yet"):
        central.estimate(key, central.zero({"x": jnp.zeros(1)}, 1), jnp.asarray(0), {})


def test_a_delta_too_large_is_refused_beside_a_scale():
    with pytest.raises(PlanError, match=r"privacy\.delta must be below"):
        settled(mechanism="laplace", scale=0.5, delta=0.5)


def test_an_absurd_epsilon_is_answered_in_a_sentence_or_in_numbers():
    assert settled(mechanism="randomized_response", epsilon_per_message=1000.0).odds[0] == 1.0
