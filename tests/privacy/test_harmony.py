"""harmony and qharmony: golden values, every outcome counted where that can be done, and mutants caught."""

import json
import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from support.toys import same
from support.vectors import ALL, PAPER, encoded, estimated, exposure, one_by_one, settled, shown, total, vector, worst
from tacit.core.messages import schema_of
from tacit.core.sparse_rows import Rows, dense_tree
from tacit.errors import PlanError
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts import sampled_signs
from tacit.privacy.mechanisms.harmony import Harmony, chance, covariance, magnitude, variance
from tacit.privacy.mechanisms.qharmony import scale_of

pytestmark = pytest.mark.bitwise

# ---- golden values ----


def test_golden_signs():
    assert chance(0.3, 1.0) == pytest.approx(0.5693175735890015, abs=1e-9)
    assert chance(-0.7, 4.5, 5) == pytest.approx(0.35233534816249723, abs=1e-9)
    assert chance(0.0, 4.5) == 0.5
    assert magnitude(10, 1.0) == pytest.approx(21.63953413738653, abs=1e-9)
    assert variance(0.5, 10, 1.0) == pytest.approx(46.5769437683117, abs=1e-9)
    assert variance(0.5, 10, 1.0, 3) == pytest.approx(121.97836795008676, abs=1e-9)
    assert variance(0.5, 100, 4.5, 2) == pytest.approx(76.08958152928697, abs=1e-9)
    assert covariance(0.9, -0.5, 4, 2) == pytest.approx(0.15, abs=1e-9)
    assert [sampled_signs.best_count(lambda k, e=e: e / k) for e in (4.5, 1.1, 10, 3)] == [2, 1, 5, 1]


def test_a_number_beyond_its_scale_is_refused():
    # Divided by a signed maximum, −1.3 would get the probability −0.1357.
    assert (1 - 1.3 * math.tanh(4.5 / 2)) / 2 == pytest.approx(-0.1357169745802289, abs=1e-9)
    with pytest.raises(PlanError, match=r"must lie in \[−1, 1\] to become the odds of a sign, got -1.3; divide"):
        chance(-1.3, 4.5)


def test_many_messages_compose_bit_by_bit():
    mechanism = settled("harmony", rounds=100, epsilon_per_message=1.1, k=5, delta=1e-6)
    message, run = mechanism.claim(exposure(100))
    assert message.epsilon == pytest.approx(1.1)
    assert run.epsilon == pytest.approx(34.31984527169618, abs=1e-6)
    promised = settled("harmony", rounds=100, epsilon=34.31984527169618, k=5, delta=1e-6)
    assert promised.share == pytest.approx(1.1, rel=1e-6)


# ---- positions and bits ----


@given(st.data())
@settings(max_examples=12)
def test_packing_and_unpacking(data):
    numbers = data.draw(st.integers(1, sampled_signs.MOST))
    place = data.draw(st.lists(st.integers(0, numbers - 1), min_size=1, max_size=9))
    plus = data.draw(st.lists(st.booleans(), min_size=len(place), max_size=len(place)))
    packed = jax.jit(partial(sampled_signs.pack_signs, numbers=numbers))(np.array(place, np.int32), np.array(plus))
    assert packed.shape == (math.ceil(len(place) * (1 + math.ceil(math.log2(numbers))) / 8),)
    found, signs = jax.jit(partial(sampled_signs.unpack_signs, count=len(place), numbers=numbers))(packed)
    assert found.tolist() == place
    assert signs.tolist() == [1 if sign else -1 for sign in plus]


@pytest.mark.parametrize(("numbers", "count"), [(7, 3), (5, 5), (12, 1), (6, 4)])
def test_every_set_of_positions_is_equally_likely(numbers, count):
    n = 40_000
    drawn = jax.vmap(lambda key: sampled_signs.distinct_positions(key, count, numbers))(
        jax.random.split(jax.random.key(1), n)
    )
    sets, seen = np.unique(np.asarray(drawn), axis=0, return_counts=True)
    assert (np.diff(sets, axis=1) > 0).all()  # different, ascending
    assert len(sets) == math.comb(numbers, count)
    if len(sets) > 1:
        assert chisquare(seen).pvalue > 1e-3


def test_positions_reach_as_far_as_whole_numbers_do():
    drawn = sampled_signs.distinct_positions(jax.random.key(3), 500, sampled_signs.MOST)
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) > 0.98 * sampled_signs.MOST
    assert len(set(drawn.tolist())) == 500


def test_reading_rows_is_reading_the_table():
    rows = Rows(jnp.array([1, 4, 5, 7], jnp.int32), jnp.arange(1.0, 13).reshape(4, 3).at[3].set(0), 7)
    update = {"b": rows, "a": jnp.array([5, 6], jnp.int32), "c": jnp.float32(9)}
    flat = sampled_signs.flatten(update)
    assert flat.tolist()[:2] == [5, 6]  # sorted path order
    np.testing.assert_array_equal(sampled_signs.numbers_at(update, jnp.arange(24)), flat)
    layout = sampled_signs.layout_of(update)
    same(layout.split(flat), jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update)))


def intermediates(jaxpr):
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from intermediates(inner)


@pytest.mark.parametrize(
    "mechanism", [settled("harmony"), settled("qharmony", server="paper"), settled("qharmony", **PAPER, k=5)]
)
def test_no_table_is_built(mechanism):
    update = {"q": Rows(jnp.array([3, 90_000], jnp.int32), jnp.ones((2, 64)), 100_000)}
    key = jax.random.key(0)
    assert max(intermediates(jax.make_jaxpr(lambda u: mechanism.encode(key, u, {}))(update).jaxpr)) <= 1000
    table = jax.eval_shape(dense_tree, update)
    assert max(intermediates(jax.make_jaxpr(dense_tree)(update).jaxpr)) == table["q"].size  # the check can fail


@pytest.mark.parametrize(
    ("name", "options"), [("harmony", {}), ("qharmony", {**PAPER, "normaliser": "fmax"}), ("kashin", {})]
)
def test_rows_and_tables_and_crowds_make_the_same_message(name, options):
    mechanism = settled(name, **options, k=3)
    index = jnp.array([[0, 2, 4], [1, 3, 5], [5, 6, 6]], jnp.int32)
    value = np.random.default_rng(0).normal(size=(3, 3, 4)) * (np.asarray(index) < 6)[:, :, None]
    updates = {"q": Rows(index, jnp.asarray(value, jnp.float32), 6), "b": jnp.ones((3, 2))}
    keys = jax.random.split(jax.random.key(0), 3)
    encode = jax.jit(lambda key, update: mechanism.encode(key, update, {}))
    crowd = jax.vmap(encode)(keys, updates)
    for i in range(3):
        alone = jax.tree.map(lambda leaf: leaf[i], updates)  # noqa: B023
        message = encode(keys[i], alone)
        same(message, encode(keys[i], dense_tree(alone)))
        same(message, jax.tree.map(lambda leaf: leaf[i], crowd))  # noqa: B023


def test_bytes_on_the_wire():
    params = {"q": jax.ShapeDtypeStruct((2000, 64), jnp.float32)}

    def size(mechanism):
        made = jax.eval_shape(lambda update: mechanism.encode(jax.random.key(0), update, {}), params)
        return sum(leaf.bytes() for leaf in schema_of(made, 1).leaves)

    assert size(settled("harmony", k=5)) == 12  # ⌈5·18/8⌉
    assert size(settled("qharmony", **PAPER, k=5)) == 16
    assert size(settled("kashin", k=5)) == 5


# ---- every outcome ----


@pytest.mark.parametrize(
    ("name", "options", "numbers", "count"),
    [*(("harmony", {}, *size) for size in ((4, 2), (5, 3), (4, 4), (3, 1))), ("qharmony", {"server": "paper"}, 4, 2)],
)
def test_the_odds_of_a_message_differ_by_epsilon_and_no_more(name, options, numbers, count):
    mechanism = settled(name, **options, k=count)
    laws = [mechanism.law({"x": sign * jnp.ones(numbers)}) for sign in (1, -1)]
    assert len(laws[0]) == math.comb(numbers, count) * 2**count
    assert sum(laws[0].values()) == pytest.approx(1)
    assert 4.5 - 1e-7 < worst(*laws) <= 4.5 + 1e-12
    others = [vector(*row) for row in np.random.default_rng(0).normal(size=(3, numbers))]
    huge = {"x": jnp.full(numbers, 1e30).at[0].set(-1e30)}
    for other in [*others, huge, {"x": jnp.zeros(numbers)}]:
        assert worst(laws[0], mechanism.law(other)) <= 4.5 + 1e-12


@pytest.mark.parametrize("name", ["harmony", "qharmony"])
def test_the_law_is_what_the_code_does(name):
    mechanism = settled(name, k=2)
    x = (1.0, -0.4, 0.0, 0.3)
    law = mechanism.law(vector(*x))
    said = [np.asarray(message).tobytes() for message in np.asarray(encoded(mechanism, x, 60_000))]
    assert set(said) <= set(law)
    seen = np.array([said.count(message) for message in law])
    assert chisquare(seen, 60_000 * np.array(list(law.values()))).pvalue > 1e-3


@pytest.mark.parametrize(("numbers", "count"), [(4, 2), (5, 3), (4, 4)])
def test_mean_variance_and_covariance_by_enumeration(numbers, count):
    mechanism = settled("harmony", k=count, bound=2.0)
    t = np.array([0.9, -0.5, 0.0, 1.0, -1.0])[:numbers]
    law = mechanism.law({"x": jnp.asarray(2 * t)})
    packed = jnp.stack([jnp.frombuffer(message, jnp.uint8) for message in law])
    worth, p = one_by_one(mechanism, packed, numbers), np.array(list(law.values()))
    mean = p @ worth
    np.testing.assert_allclose(mean, 2 * t, atol=1e-5)
    spread = (worth - mean).T @ (p[:, None] * (worth - mean)) / 4  # in units of the bound
    for i in range(numbers):
        assert spread[i, i] == pytest.approx(variance(t[i], numbers, 4.5, count), rel=1e-5)
        for j in range(i):
            assert spread[i, j] == pytest.approx(covariance(t[i], t[j], numbers, count), abs=1e-5)


@pytest.mark.parametrize(("name", "options"), [("harmony", {}), ("qharmony", {}), ("qharmony", PAPER)])
def test_the_mean_is_unbiased_and_as_noisy_as_said(name, options):
    mechanism, n = settled(name, **options), 100_000
    x = np.linspace(-1, 1, 20)
    mean, weight = estimated(mechanism, encoded(mechanism, x, n), 20, weights=2)
    assert weight.tolist() == [n, n]
    noise = mechanism.spread(20, n).noise
    assert np.abs(mean - x).max() < 4 * noise
    assert np.std(mean - x) == pytest.approx(noise, rel=0.5)


def test_a_clipped_update_is_what_is_estimated():
    mechanism, x = settled("harmony", bound=0.5, epsilon=20.0, k=3), [3.0, -0.2, -9.0]
    mean, _ = estimated(mechanism, encoded(mechanism, x, 200_000), 3)
    np.testing.assert_allclose(mean, [0.5, -0.2, -0.5], atol=0.01)


@pytest.mark.parametrize("name", ["harmony", "qharmony", "kashin"])
def test_the_public_state_is_the_bound_of_its_round(name):
    setting, number = settled(name, bound=2.0), settled(name)
    x = [0.7, -1.5, 0.1]
    said = encoded(number, x, 50, public_state={"bound": np.float32(2)})
    same(said, encoded(setting, x, 50))
    np.testing.assert_allclose(estimated(number, said, 3, {"bound": 2.0})[0], estimated(setting, said, 3)[0], rtol=1e-6)
    none, tiny = (encoded(number, [0.0, 1, -1], 50, public_state={"bound": np.float32(b)}) for b in (0, 1e-30))
    same(none, tiny)  # a number cannot break the odds


@pytest.mark.parametrize(("name", "options"), [*ALL, ("qharmony", PAPER)])
def test_nothing_to_say_takes_the_same_form_and_fair_coins(name, options):
    mechanism, n = settled(name, **options, k=2), 20_000
    nothing = encoded(mechanism, np.zeros(8), n)
    something = encoded(mechanism, np.linspace(-1, 1, 8), n)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), nothing) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), something
    )
    if name == "kashin":
        np.testing.assert_array_equal(nothing["seed"], something["seed"])
        plus = np.unpackbits(np.asarray(nothing["word"]), axis=1, count=2)
    else:
        packed = [made["signs"] if isinstance(made, dict) else made for made in (nothing, something)]
        (place, sign), (other, _) = (sampled_signs.unpack_signs(made, 2, 8) for made in packed)
        np.testing.assert_array_equal(place, other)  # chance alone chose them
        assert chisquare(np.bincount(np.asarray(place).reshape(-1), minlength=8)).pvalue > 1e-3
        plus = np.asarray(sign) > 0
    assert chisquare(np.bincount(plus.reshape(-1).astype(int))).pvalue > 1e-3


@pytest.mark.parametrize(("name", "options"), [*ALL, ("qharmony", PAPER), ("qharmony", {**PAPER, "server": "paper"})])
def test_nobody_heard_is_zero(name, options):
    mechanism = settled(name, **options)
    message = jax.eval_shape(lambda: mechanism.encode(jax.random.key(0), {"x": jnp.ones(8)}, {}))
    said = jax.tree.map(lambda leaf: jnp.ones((5, *leaf.shape), leaf.dtype), message)
    mean, weight = estimated(mechanism, said, 8, sent=np.zeros(5, bool))
    assert not mean.any()
    assert weight.tolist() == [0.0]


# ---- mutants ----


class WholeEpsilon(Harmony):
    """Gives ε to every sign, not ε/k."""

    @property
    def coin_bias(self):
        return sampled_signs.coin_bias_of(self.share)


class TouchedOnly(Harmony):
    """Draws its positions from the numbers that are not zero."""

    def encode(self, key, update, public_state):
        del public_state
        where, toss = jax.random.split(key)
        used = sampled_signs.flatten(update) != 0
        scores = jnp.where(used, jax.random.uniform(where, used.shape), -1.0)
        place = jnp.sort(jax.lax.top_k(scores, self.parts)[1])
        coins = jax.random.bits(toss, (self.parts,), jnp.uint32)
        plus = coins < sampled_signs.plus_below(sampled_signs.numbers_at(update, place), self.coin_bias)
        return sampled_signs.pack_signs(place, plus, used.size)


def test_a_mutant_that_spends_epsilon_on_every_sign_is_caught():
    mutant = WholeEpsilon(epsilon=1.0, k=2).settle(exposure())
    assert worst(mutant.law({"x": jnp.ones(4)}), mutant.law({"x": -jnp.ones(4)})) == pytest.approx(2.0, abs=1e-6)


def test_a_mutant_that_draws_from_what_was_touched_is_caught():
    # B touched other numbers: a message that names the first of them comes from A.
    a, b, n = [1.0, 1, 0, 0, 0, 0], [0.0, 0, 0, 0, 1, 1], 50_000

    def first(mechanism, x, seed):
        return np.asarray(sampled_signs.unpack_signs(encoded(mechanism, x, n, seed), 1, 6)[0])[:, 0] == 0

    honest, mutant = (kind(epsilon=1.0, k=1).settle(exposure()) for kind in (Harmony, TouchedOnly))
    assert shown(first(mutant, a, 1), first(mutant, b, 2)) > 5 > 1.0
    assert shown(first(honest, a, 1), first(honest, b, 2)) < 0.05


def test_the_printed_message_is_refuted_by_its_scale():
    mechanism = settled("qharmony", **PAPER, k=1)
    a, b = vector(0.5, 0.1, 0.0), vector(0.4, 0.1, 0.0)
    assert worst(mechanism.law(a), mechanism.law(b)) == math.inf
    seen = [np.asarray(encoded(mechanism, x["x"], 20_000)["scale"]) == 0.5 for x in (a, b)]
    assert shown(*seen) > 8 > 4.5
    signs = [{y[4:]: p for y, p in mechanism.law(x).items()} for x in (vector(1, 1, 1), vector(-1, -1, -1))]
    assert worst(*signs) == pytest.approx(4.5, abs=1e-6)  # the signs alone keep theirs


# ---- QHarmony as printed ----


def test_the_printed_form_says_infinity_first():
    claims = settled("qharmony", rounds=3, **PAPER, k=5).claim(exposure(3))
    assert [claim.epsilon for claim in claims] == [math.inf, math.inf, 4.5, 13.5]
    assert {claim.fidelity for claim in claims} == {"paper"}
    assert all("covers the signs only" in str(claim) for claim in claims[2:])
    assert "without noise" in str(claims[0])
    assert settled("qharmony").claim(exposure())[0].fidelity == "corrected"


def measured(numbers, devices, k, seed):
    """Slope and correlation of F̄ on the true mean: half what all devices share, half their own."""
    rng = np.random.default_rng(seed)
    F = 0.4 * rng.uniform(-1, 1, numbers) + 0.6 * rng.uniform(-1, 1, (devices, numbers))
    mechanism = settled("qharmony", **PAPER, k=k, server="paper")
    made, _ = estimated(mechanism, encoded(mechanism, F, devices, seed), numbers)
    return np.polyfit(F.mean(0), made, 1)[0], np.corrcoef(F.mean(0), made)[0, 1]


@pytest.mark.parametrize(
    ("numbers", "devices", "k", "slope", "correlation", "band"),
    [(1392, 292, 5, 0.113, 0.108, 0.04), (100, 1000, 5, 0.597, 0.531, 0.1), (1392, 292, 100, 0.0, 0.0, 0.03)],
)
def test_the_printed_server_gives_a_faint_direction(numbers, devices, k, slope, correlation, band):
    found = np.mean([measured(numbers, devices, k, seed) for seed in range(6)], 0)
    np.testing.assert_allclose(found, [slope, correlation], atol=band)


def payload(signs, scale, place=(0, 1)):
    packed = [sampled_signs.pack_signs(jnp.array(place), jnp.array(row) > 0, 3) for row in signs]
    return {"scale": jnp.array(scale, jnp.float32), "signs": jnp.stack(packed)}


def test_the_printed_server_by_hand():
    mechanism = settled("qharmony", **PAPER, k=2, server="paper")
    said = payload([(1, -1), (1, 1), (1, -1), (-1, -1)], [0.5, 2.0, 1.0, 8.0])
    mean, weight = estimated(mechanism, said, 3, sent=np.array([1, 1, 1, 0], bool))
    np.testing.assert_allclose(mean, [2.0, -2 / 3, 0])  # (max scale 2 / z 3)·(3, −1, 0); the silent one is not heard
    assert weight.tolist() == [3.0]
    mean, _ = estimated(mechanism, payload([(-1, -1)], [0.5]), 3)
    np.testing.assert_allclose(mean, [-0.5, -0.5, 0])  # no +1 anywhere: z is 1
    one, other = (total(mechanism, payload([(1, 1)], [scale]), 3) for scale in (0.5, 2.0))
    assert float(mechanism.merge(one, other).sums["loudest"]) == 2.0
    assert mechanism.biased
    assert not settled("qharmony").biased


def test_fair_coins_are_allowed_as_printed():
    mechanism = settled("qharmony", form="paper", server="paper", epsilon_of_signs=0.0)
    assert (mechanism.coin_bias, mechanism.k, mechanism.spread(10, 5).noise) == (0, 1, math.inf)
    law = mechanism.law(vector(1.0, -1.0))
    assert set(law.values()) == {0.25}


@pytest.mark.parametrize(
    ("normaliser", "numbers", "scale", "divisor"),
    [
        ("maxabs", (0.5, -1.0), 1.0, 1.0),
        ("fmax", (0.5, -1.0), 0.5, 0.5),
        ("fmax", (-0.5, -1.0), -0.5, math.inf),  # dividing by it would turn every sign round
        ("maxabs", (0.0, 0.0), 0.0, math.inf),
    ],
)
def test_the_two_readings_of_the_scale(normaliser, numbers, scale, divisor):
    assert [float(part) for part in scale_of(vector(*numbers), normaliser)] == [scale, divisor]
    mechanism = settled("qharmony", **PAPER, k=2, server="paper", normaliser=normaliser)
    law = mechanism.law(vector(*numbers))
    if normaliser == "fmax" and scale > 0:  # −1.0/0.5 is cut to −1, not −2
        assert worst(law, mechanism.law(vector(0.5, -0.5))) == 0
    if scale <= 0:
        assert set(law.values()) == {0.25}
        assert not estimated(mechanism, payload([(1, 1)], [scale]), 3)[0].any()  # neither moved nor turned round


def test_the_signed_scale_of_rows_counts_the_rows_they_lack():
    rows = Rows(jnp.array([0, 2], jnp.int32), jnp.array([[-1.0], [-2.0]]), 2)  # the second is padding
    assert float(scale_of({"x": rows}, "fmax")[0]) == 0.0
    full = Rows(jnp.array([0, 1, 2], jnp.int32), jnp.array([[-1.0], [-2.0], [0.0]]), 2)
    assert float(scale_of({"x": full}, "fmax")[0]) == -1.0


# ---- what is refused, and what is said ----


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"mechanism": "harmony"}, "privacy of harmony must give epsilon"),
        ({"mechanism": "qharmony"}, "privacy of qharmony must give epsilon"),
        ({"mechanism": "kashin"}, "privacy of kashin must give epsilon"),
        (
            {"mechanism": "harmony", "epsilon": 0.0},
            r"privacy.epsilon must be at least 1e-06 and at most 1e\+06, got 0.0",
        ),
        ({"mechanism": "harmony", "epsilon": 1.0, "k": 0}, "privacy.k must be at least 1, got 0"),
        ({"mechanism": "qharmony", "epsilon": 1.0, "form": "paper"}, "a promise that form = 'paper' cannot keep"),
        ({"mechanism": "qharmony", "form": "paper"}, "epsilon_of_signs must be given for form = 'paper'"),
        (
            {"mechanism": "qharmony", "form": "paper", "epsilon_of_signs": 0.0},
            "above 0 unless server = 'paper', got 0.0",
        ),
        (
            {"mechanism": "qharmony", "epsilon": 1.0, "epsilon_of_signs": 2.0},
            "epsilon_of_signs = 2 belongs to form = 'paper'; give epsilon",
        ),
    ],
)
def test_settings_that_are_refused(settings, rule):
    with pytest.raises(PlanError, match=rule):
        build_mechanism(settings)


def test_more_signs_than_numbers_are_refused():
    with pytest.raises(PlanError, match=r"privacy.k must be at most the 3 number\(s\) of an update, .* got 4"):
        settled("harmony", k=4).encode(jax.random.key(0), vector(1, 2, 3), {})
    assert settled("harmony", k=3).encode(jax.random.key(0), vector(1, 2, 3), {}).shape == (2,)


def test_too_many_numbers_are_refused():
    huge = {"q": jax.ShapeDtypeStruct((2**31,), jnp.float32)}
    with pytest.raises(PlanError, match="at most 2³¹ − 1 for its positions to be sent, got 2147483648; train fewer"):
        sampled_signs.layout_of(huge)


@pytest.mark.parametrize("name", ["harmony", "qharmony", "kashin"])
def test_what_is_not_settled_says_so(name):
    with pytest.raises(PlanError, match=r"privacy\.(k|epsilon) is not .* yet; settle the mechanism"):
        build_mechanism({"mechanism": name, "epsilon": 1.0}).encode(jax.random.key(0), vector(1, 2, 3), {})


@pytest.mark.parametrize("name", ["harmony", "qharmony", "kashin"])
def test_an_epsilon_no_coin_can_lean_by_is_refused(name):
    with pytest.raises(
        PlanError, match=r"must be large enough to bias a coin of 32 bits, got 1e-12; allow a larger epsilon"
    ):
        settled(name, rounds=10**6, epsilon=1e-6)


@pytest.mark.parametrize(("name", "options"), [*ALL, ("qharmony", PAPER)])
def test_what_is_described_and_seen(name, options):
    mechanism = settled(name, **options, k=2)
    assert mechanism.describe()["k"] == 2
    assert "drawn at random" in mechanism.visible()[1]
    assert ("without noise" in str(mechanism.visible())) == (options is PAPER)
    assert mechanism.spread(100, 10_000).signal == pytest.approx(0.1 if name == "kashin" else 1.0)


def test_what_was_measured_is_what_theory_says():
    result = json.loads((Path(__file__).parents[2] / "benchmarks/results/mechanisms.json").read_text(encoding="utf-8"))
    honest = [row for row in result["rows"] if row["mechanism"] != "qharmony, paper"]
    assert all(row["error"] == pytest.approx(row["theory"], rel=0.25) for row in honest)
