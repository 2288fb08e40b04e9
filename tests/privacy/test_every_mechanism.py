"""Every mechanism, found by its file, with every setting it suggests: it adds up, estimates what it should, keeps its
form, passes the gate, and what it claims is put to the test.

Nothing here knows a mechanism by name: what a check needs to know, it asks of the mechanism.
"""

import itertools
import math
from collections import Counter
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from support.falsify import CHUNK, UNSEEN, audits, trial, whole
from support.toys import close, first_settings, same
from support.views import BIG, NUMBERS, PARAMS, flat, pairs, releases, reports, shaped, trained
from tacit.core.messages import schema_of
from tacit.core.sparse_rows import Rows, dense_tree, is_rows
from tacit.device.gate import send
from tacit.errors import PlanError
from tacit.privacy.accounting import accountant
from tacit.privacy.accounting.events import Unbounded
from tacit.privacy.mechanism import build_mechanism, mechanism_class, mechanism_names
from tacit.privacy.sampler import build_sampler

COHORTS = {
    "all": {"sampler": "all"},
    "pass": {"sampler": "pass", "count": 1},
    "fixed": {"sampler": "fixed", "count": 1},
    "poisson": {"sampler": "poisson", "rate": 0.5},
    "one": {"sampler": "one"},
}
INSIDE = np.array([[0.9, -0.5, 0, 0.2], [0.3, 0.9, -0.7, 0.0]]) / NUMBERS  # of any bound
CASES = [(name, number) for name in mechanism_names() for number in range(len(mechanism_class(name).suggested))]
every_name = pytest.mark.parametrize("name", mechanism_names())
first = pytest.mark.parametrize(("name", "number"), first_settings(CASES))  # the others in the second step
every = pytest.mark.parametrize(("name", "number"), CASES)
every_cohort = pytest.mark.parametrize("cohort", COHORTS)


@cache
def tried(name, number, cohort="all"):
    build = lambda settings: build_mechanism({"mechanism": name, **settings})  # noqa: E731
    return trial(build, mechanism_class(name).suggested[number], build_sampler(COHORTS[cohort]))


@cache
def audited(name, number):
    """Local claims do not depend on who is drawn; central ones do."""
    central = any(claim.model == "central" for claim in whole(tried(name, number).claims))
    return [
        found
        for cohort in (("fixed", "poisson") if central else ("all",))
        for found in audits(tried(name, number, cohort))
    ]


def bound_of(mechanism):
    """What is surely inside the bound a mechanism states; 1 where it states none."""
    stated = [mechanism.describe().get(word) for word in ("bound", "clip")]
    return next((value for value in stated if isinstance(value, float)), 1.0)


# ---- what it claims is put to the test ----


@first
def test_no_claim_is_refuted(name, number):
    for found in audited(name, number):
        assert not found.refuted, f"{found.claim} is false: ε is at least {found.proved:.3f}"


@pytest.mark.slow
@every_name
def test_the_audit_comes_close_to_what_is_claimed(name):
    """Else it could not have failed: in each model, more than half of some claim's ε is found."""
    found = [found for number in range(len(mechanism_class(name).suggested)) for found in audited(name, number)]
    for model in {found.claim.model for found in found}:
        assert max(found.share for found in found if found.claim.model == model) > 0.5


@every
def test_the_law_keeps_the_claim_and_comes_up_to_it(name, number):
    """Output by output, where a mechanism can say how likely each is."""
    mechanism, _, _ = settled = tried(name, number)
    for claim in whole(settled.claims) if hasattr(mechanism, "law") else ():
        if claim.per == "message":
            worst = max(max(_losses(mechanism, pair)) for pair in itertools.islice(pairs(claim), 5))
            assert claim.epsilon - 1e-6 <= worst <= claim.epsilon + 1e-9, claim  # coins are multiples of 2⁻³²


def _losses(mechanism, pair):
    one, other = (mechanism.law(source.update) for source in pair[:2])
    assert math.isclose(sum(one.values()), 1.0, rel_tol=1e-9)
    for there, back in ((one, other), (other, one))[: 1 + pair.both_ways]:
        yield max(
            math.log(p / back.get(said, 0.0)) if back.get(said) else math.inf for said, p in there.items() if p > 0
        )


@first
def test_messages_follow_the_law(name, number):
    mechanism = tried(name, number).mechanism
    for numbers in ([0.3, -0.2, 0, 0.7], [0, 0, 0, 0]) if hasattr(mechanism, "law") else ():
        source = shaped(numbers)
        (sent,) = reports(mechanism, source, CHUNK, 5)
        said, law = Counter(_bytes(sent.report.payload)), mechanism.law(source.update)
        assert set(said) <= {message for message, p in law.items() if p > 0}
        likely = [message for message, p in law.items() if p * CHUNK > 5]
        seen, meant = [said[message] for message in likely], [law[message] * CHUNK for message in likely]
        rest = CHUNK - sum(seen), max(CHUNK - sum(meant), 1e-9)
        assert chisquare([*seen, rest[0]], [*meant, rest[1]]).pvalue > 1e-6


def _bytes(payloads):
    """Each message as the bytes of its leaves."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(payloads)]
    return [b"".join(leaf[i].tobytes() for leaf in leaves) for i in range(leaves[0].shape[0])]


# ---- form, bounds, bias, noise ----


@every
def test_every_update_has_the_same_form(name, number):
    """Dense or row by row, full or empty: the message is as long, and names no rows unless the plan lets it."""
    mechanism, _, _ = settled = tried(name, number)
    tables = [jnp.zeros((2, 1)), *(Rows(jnp.full(n, 2, jnp.int32), jnp.zeros((n, 1)), 2) for n in (1, 2, 5))]
    payloads = [_payload(mechanism, {"bias": jnp.zeros(2), "table": table}) for table in tables]
    assert len({_form(payload) for payload in payloads}) == 1
    named = any(is_rows(leaf) for payload in payloads for leaf in jax.tree.leaves(payload, is_leaf=is_rows))
    assert not (named and whole(settled.claims))
    assert schema_of(payloads[0], 1, mechanism.wire).has_rows == (mechanism.wire == "rows")


def _payload(mechanism, update):
    spent = jnp.zeros((), jnp.int32)
    return jax.eval_shape(lambda u: send(jax.random.key(0), mechanism, u, jnp.ones(1), {}, spent)[0].payload, update)


def _form(payload):
    """Structure, shapes and types, of the tables that Rows stand for."""
    leaves, tree = jax.tree.flatten(payload, is_leaf=is_rows)
    shapes = [(leaf.rows, *leaf.value.shape[1:]) if is_rows(leaf) else leaf.shape for leaf in leaves]
    return tree, tuple(shapes), tuple(str(getattr(leaf, "value", leaf).dtype) for leaf in leaves)


@first
def test_what_is_sent_is_finite(name, number):
    mechanism, inf, nan = tried(name, number).mechanism, math.inf, math.nan
    for numbers in ([BIG] * 4, [3e38, -3e38, 3e38, 3e38], [1e-38, 0, 0, 0], [nan, 1, 1, 1], [1, 1, -inf, 1]):
        (sent,) = reports(mechanism, shaped(numbers), CHUNK, 3)  # as many as an audit takes: one program for both
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(sent.report))


@first
def test_the_mean_is_the_mean_and_the_noise_is_the_noise(name, number):
    """Within five standard errors, unless the mechanism says that it is biased; and as spread out as it says."""
    mechanism, _, exposure = tried(name, number)
    if getattr(mechanism, "biased", None):
        return
    many, bound = mechanism.unit == "interaction", bound_of(mechanism)
    made, meant = _means(mechanism, [[1, 0, 0, 1], [1, 0, 1, 0]] if many else bound * INSIDE)
    assert (np.abs(made.mean(0) - meant) <= 5 * made.std(0) / math.sqrt(made.shape[0]) + 1e-6).all()
    made, _ = _means(mechanism, np.zeros((2, 4)) if many else [[bound, 0, 0, 0]] * 2)
    noise = mechanism.spread(NUMBERS, exposure.devices).noise
    assert math.isclose(math.sqrt(made.var(0).mean()), noise, rel_tol=0.1, abs_tol=1e-6)


def _means(mechanism, updates):
    """The estimated mean of two devices' updates, many times over, and what it should be."""
    world = [shaped(numbers) for numbers in updates]
    if mechanism.always_releases:
        made = releases(mechanism, world, np.ones((CHUNK, 1, 2), bool), 7)
    else:
        estimates = [reports(mechanism, source, CHUNK, 7 + i)[0].estimate for i, source in enumerate(world)]
        made = flat(jax.tree.map(lambda *leaves: sum(leaves), *estimates))
    return made[:, :NUMBERS] / made[:, NUMBERS : NUMBERS + 1], np.mean(updates, 0)


@first
def test_a_crowd_is_estimated_as_well_as_its_reports_one_by_one(name, number):
    """The server sums payloads, then estimates: what it makes of many is the sum of what it makes of each."""
    mechanism = tried(name, number).mechanism
    if getattr(mechanism, "biased", None) or mechanism.always_releases:
        return
    (sent,) = reports(mechanism, shaped(bound_of(mechanism) * INSIDE[0]), CHUNK, 8)
    each, weights = sent.estimate
    sums, weight = _crowd(mechanism, sent.report)
    close(jax.tree.map(lambda leaf: leaf / CHUNK, sums), jax.tree.map(lambda leaf: leaf.mean(0), each), 1e-3)
    assert weight.tolist() == weights.sum(0).tolist() == [CHUNK]


@eqx.filter_jit
def _crowd(mechanism, reports):
    total = mechanism.add(mechanism.zero(PARAMS, 1), reports.payload, reports.weight, reports.sent)
    return trained(mechanism.estimate(jax.random.key(0), total, reports.sent.sum(), {}))


# ---- no holes ----


@first
def test_what_is_private_is_an_integer_and_has_no_holes(name, number):
    """Floats with noise have holes: some are reached from one input and not from its neighbour. Here nothing is one: messages
    are integers, and releases multiples of a public step, the same for both neighbours."""
    mechanism, _, _ = settled = tried(name, number)
    models = {claim.model for claim in whole(settled.claims) if math.isfinite(claim.epsilon) and claim.per != "run"}
    one, other = (shaped(bound_of(mechanism) * np.eye(4)[at]) for at in (0, 2))
    if "local" in models:
        (sent,) = reports(mechanism, one, CHUNK, 3)
        assert all(np.issubdtype(leaf.dtype, np.integer) for leaf in jax.tree.leaves(sent.report.payload))
    if "central" in models:
        asked = np.ones((CHUNK, 1, 2), bool)
        both = [releases(mechanism, [source, other], asked, 7)[:, :NUMBERS] for source in (one, other)]
        values = np.unique(np.concatenate(both))
        step = np.diff(values).min()  # as exact as one difference of floats
        steps = np.round(values / step)
        step = values @ steps / (steps @ steps)
        assert values.size < 0.9 * 2 * NUMBERS * CHUNK, "on a lattice, values come again"
        np.testing.assert_allclose(values / step, np.round(values / step), atol=0.01)


# ---- the gate ----


@pytest.mark.bitwise
@every
def test_the_gate(name, number):
    check_gate(tried(name, number).mechanism)


def check_gate(mechanism):
    """What is not finite leaves as zero, a weight leaves only where it may, and who is silent says nothing."""
    usual, broken, zero = (shaped([first, 0, -0.2, 0], weight=5.0) for first in (0.1, math.nan, 0))
    one = _through(mechanism, usual)
    assert one.report.weight.tolist() == ([5.0] if mechanism.shows_weight else [1.0])
    assert (bool(one.report.sent), int(one.spent), bool(one.replaced)) == (True, 1, False)
    one = _through(mechanism, broken._replace(weight=jnp.array([math.inf])))
    assert one.report.weight.tolist() == ([0.0] if mechanism.shows_weight else [1.0])
    assert (bool(one.report.sent), int(one.spent), bool(one.replaced)) == (True, 1, True)
    same(dense_tree(one.report.payload), dense_tree(_through(mechanism, shaped([0] * 4)).report.payload))
    assert not bool(_through(mechanism, zero).replaced)
    for spent, limit in ((0, 0), (3, 3), *((mechanism.messages, limit) for limit in (99, 1) if mechanism.messages)):
        silent = _through(mechanism, usual, spent=spent, allowance=limit)
        assert (bool(silent.report.sent), int(silent.spent)) == (False, spent)
        carried = jax.tree.leaves((dense_tree(silent.report.payload), silent.report.weight))
        assert not any(np.asarray(leaf).any() for leaf in carried)


def _through(mechanism, source, **limits):
    """One report out of as many as an audit takes: one program for both."""
    return jax.tree.map(lambda leaf: leaf[0], reports(mechanism, source, CHUNK, 1, **limits)[0])


# ---- sums ----


@pytest.mark.bitwise
@first
def test_monoid(name, number):
    """Order, chunks, who was silent and who merged what do not matter."""
    mechanism = tried(name, number).mechanism
    some, others = (reports(mechanism, shaped(bound_of(mechanism) * numbers), CHUNK, 9)[0] for numbers in INSIDE)
    payloads = jax.tree.map(
        lambda *two: np.concatenate([np.asarray(one)[:4] for one in two]), some.report.payload, others.report.payload
    )
    check_monoid(mechanism, payloads, PARAMS, 2)


@pytest.mark.bitwise
@every_name
def test_monoid_with_rows_and_whole_numbers(name):
    mechanism, rng = tried(name, 0).mechanism, np.random.default_rng(0)
    params = {"items": jnp.zeros((6, 3)), "steps": jnp.zeros(4, jnp.int32)}
    index = np.stack([np.sort(rng.choice(6, 2, replace=False)) for _ in range(8)])
    index = jnp.asarray(np.concatenate([index, np.full((8, 1), 6)], 1), jnp.int32)
    value = jnp.asarray(rng.normal(size=(8, 3, 3)), jnp.float32) * (index < 6)[:, :, None]
    updates = {"items": Rows(index, value, 6), "steps": jnp.asarray(rng.integers(0, 9, (8, 4)), jnp.int32)}
    keys = jax.random.split(jax.random.key(0), 8)
    encode = eqx.filter_jit(jax.vmap(lambda key, update: mechanism.encode(key, update, {})))
    check_monoid(mechanism, encode(keys, updates), params, 1)


def check_monoid(mechanism, payloads, params, weights):
    """Eight payloads, two of them not sent."""
    payloads = jax.tree.map(np.asarray, payloads)
    sent, nothing = np.array([1, 1, 0, 1, 1, 0, 1, 1], bool), mechanism.zero(params, weights)
    weight = np.random.default_rng(1).uniform(0.5, 2, (8, weights)).astype(np.float32)
    add = eqx.filter_jit(mechanism.add)

    def fold(*parts, total=nothing, payloads=payloads):
        for part in parts:
            total = add(total, *jax.tree.map(lambda leaf: leaf[part], (payloads, weight)), sent[part])  # noqa: B023
        return total

    order = np.arange(8)
    everybody, left, right = fold(order), fold(order[:4]), fold(order[4:])
    close(everybody, fold(order[::-1]))
    close(everybody, fold(order[1::2], order[::2]))
    close(everybody, mechanism.merge(left, right))
    close(everybody, mechanism.merge(right, left))
    same(everybody, mechanism.merge(everybody, nothing))
    # What those who were not sent would have said leaves no trace.
    same(everybody, fold(order, payloads=jax.tree.map(lambda leaf: leaf[np.where(sent, order, 7)], payloads)))
    same(nothing, add(nothing, payloads, weight, np.zeros(8, bool)))


# ---- claims ----


@every
@every_cohort
def test_claims_are_complete_and_what_the_accountant_says(name, number, cohort):
    settled = _tried_or_refused(name, number, cohort)
    if settled is None:
        return
    mechanism, _, exposure = settled
    claims, runs = settled.claims, [claim for claim in settled.claims if claim.per == "run"]
    assert {claim.per for claim in claims} >= {"message", "run"}
    assert all(claim.model == "local" or (claim.trust != "nobody" and claim.conditions) for claim in claims)
    assert not (mechanism.shows_weight and whole(claims)), "a weight that shows has no bound"
    promise = mechanism_class(name).suggested[number].get("epsilon", math.inf)
    assert runs[0].epsilon <= promise * (1 + 1e-9)
    run = next(claim for claim in runs if claim.relation != "one_sided_1_to_0")
    event, covers = mechanism.event(exposure)
    times = exposure.at_most(mechanism.messages).messages if covers == 1 else covers
    relation = "replace_one" if isinstance(event, Unbounded) else run.relation
    delta = run.delta if run.delta > UNSEEN else 0.0  # a pure ε, but for the gap of its noise
    cost = accountant.compose(((event, times),), delta, relation).epsilon
    assert run.epsilon == pytest.approx(cost, rel=1e-9)


def _tried_or_refused(name, number, cohort):
    """Everybody can be asked by every mechanism; another cohort may be refused in a sentence."""
    try:
        return tried(name, number, cohort)
    except PlanError:
        if cohort == "all":
            raise
        return None


@every
@every_cohort
def test_more_rounds_are_never_cheaper(name, number, cohort):
    settled = _tried_or_refused(name, number, cohort)
    if settled is None:
        return
    mechanism, sampler, exposure = settled
    few, many = (mechanism.claim(sampler.exposure(rounds, exposure.devices)) for rounds in (1, 2))
    assert [claim.per for claim in few] == [claim.per for claim in many]
    assert all(less.epsilon <= more.epsilon * (1 + 1e-9) for less, more in zip(few, many))


@every
def test_a_part_s_claim_says_that_it_is_one(name, number):
    claims = tried(name, number).claims
    parts = [claim for claim in claims if math.isfinite(claim.epsilon) and claim not in whole(claims)]
    assert all(claim.conditions and claims.index(claim) > 0 for claim in parts)
    assert all(claim.fidelity == "paper" for claim in parts), "a correction has no such part"


@every_name
def test_the_docstring_has_a_guarantee(name):
    assert "Guarantee:" in (mechanism_class(name).__doc__ or "")
