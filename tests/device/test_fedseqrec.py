"""FedSeqRec: the handshake, re-averaging, organisations as devices, what leaves them, and late or leaving organisations."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog, Field
from tacit.core.integer_grid import PERSON_STEPS
from tacit.core.plan import Plan
from tacit.device.history import History, plain_history
from tacit.device.method import build
from tacit.device.methods.fedseqrec import FedSeqRec
from tacit.device.methods.handshake import Handshake
from tacit.errors import DataError, PlanError
from tacit.lab.data import Population
from tacit.lab.data.organisations import FIELDS, organisations
from tacit.lab.data.selection import pick
from tacit.lab.data.synthetic import movies
from tacit.lab.data.word_vectors import with_word_vectors
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import leave_last_out, train_on_organisations
from tacit.lab.experiments.transfer import transfer_gain
from tacit.lab.plans.loader import choose, load_plan
from tacit.lab.runs.run import Run, simulate
from tacit.lab.runs.storage import save_run
from tacit.lab.simulation.federation import Performance
from tacit.nets.neural.text import LENGTH, hashed_vectors, tokens_of
from tacit.nets.sequence.encoder import Words, distinct_vectors
from tacit.nets.sequence.segments import run_numbers, run_positions
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.price import price
from tacit.privacy.sampler import build_sampler
from tacit.server.rule import build_rule

LOUD = "ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"
TINY = {
    "hyper.width": 6, "hyper.dim": 8, "hyper.heads": 2, "hyper.hidden": 4, "hyper.window": 6, "hyper.short": 3,
    "hyper.batch": 8, "hyper.group": 4, "hyper.each": 4,
}  # fmt: skip


def tiny(name: str, stage: int = 1, **settings) -> Plan:
    """A plan with a network of a few hundred parameters."""
    settings = {f"{stage}.{path}": value for path, value in {**TINY, **settings}.items()}
    return choose(name, settings)


def organisation(*sequences: list[list[int]], items: int = 10, length: int = 32) -> tuple[Catalog, History]:
    """A catalog, and the history of an organisation: each person a list of sequences."""
    rows = [
        (item, p, s) for p, person in enumerate(sequences) for s, sequence in enumerate(person) for item in sequence
    ]
    flat = np.full((length, 3), -1.0)
    flat[: len(rows)] = np.array(rows).reshape(-1, 3)
    context = jnp.asarray(np.where(flat[:, :1] >= 0, flat[:, 1:], 0), jnp.float32)
    plain = plain_history(jnp.asarray(flat[:, 0], jnp.int32))
    return Catalog(items, event_fields=FIELDS), plain._replace(context=context)


def method_of(catalog: Catalog, **hyper) -> FedSeqRec:
    small = {path.removeprefix("hyper."): value for path, value in TINY.items()}
    return FedSeqRec(catalog=catalog, **{**small, **hyper})


# ---- re-averaging ----

ONE, TWO = jnp.array([1.0, 2, -1]), jnp.array([3.0, -2, 0.5])


def averaged(weights, thetas, **settings):
    """Parameters after a round from `start` in which these organisations reported their differences."""
    start = jnp.array([0.5, 0.5, 0.5])
    weights, deltas = jnp.asarray(weights), jnp.stack([theta - start for theta in thetas])
    estimate = ({"w": jnp.einsum("ck,cd->kd", weights, deltas)}, weights.sum(0))
    return build_rule({"rule": "reaverage", **settings}).finish({"w": start}, estimate, jnp.asarray(2), ())[0]["w"]


@pytest.mark.parametrize(
    ("delta", "share"), [(0.0, 0.4494897428), (0.2, 0.4395917942), (0.3, 0.4346428199), (1.0, 0.4)]
)
def test_reaveraging_against_worked_numbers(delta, share):
    """Lengths 2, 2, 3, 5 and 3, 3, 3, 7, 7, 7: the handshake, g at home, and the server's mixture."""
    lengths = [[2, 2, 3, 5], [3, 3, 3, 7, 7, 7]]
    made = [organisation(*([[1] * n] for n in some)) for some in lengths]
    shake = Handshake(catalog=made[0][0])
    params = shake.init(jax.random.key(0))
    counts = [shake.local(jax.random.key(0), params, {}, shake.prepare(h))[1]["lengths"] for _, h in made]
    params["lengths"] = counts[0] + counts[1]
    assert {n + 2: int(c) for n, c in enumerate(params["lengths"]) if c} == {2: 2, 3: 4, 5: 1, 7: 3}
    methods = [method_of(catalog, second="lengths") for catalog, _ in made]
    weights = [m._weight(params, m.prepare(h)) for m, (_, h) in zip(methods, made)]
    assert [float(w[0]) for w in weights] == [4, 6]
    assert [-math.log(w[1]) for w in weights] == pytest.approx([0.5697171416, 0.3669845875], abs=1e-5)
    new = averaged(jnp.stack(weights), [ONE, TWO], delta=delta)
    np.testing.assert_allclose(new, share * ONE + (1 - share) * TWO, atol=1e-5)
    if delta == 0.2:
        np.testing.assert_allclose(new, [2.1208164115, -0.2416328231, -0.1593876913], atol=1e-5)


GAMMA = jnp.exp(-jnp.array([0.1, 0.4, 0.2, 0.9]))
AWAKE = jnp.stack([jnp.array([100.0, 20.0]), (GAMMA / GAMMA.sum())[jnp.array([0, 3])]], axis=1)


@pytest.mark.parametrize(
    ("renorm", "zeta"),
    [
        ("gamma", (0.7186462516, 0.2813537484)),
        ("joint", (0.7398708428, 0.2601291572)),
        ("none", (0.4251493742, 0.1494771006)),
    ],
)
def test_two_of_four_organisations_are_available(renorm, zeta):
    new = averaged(AWAKE, [ONE, TWO], delta=0.2, renorm=renorm)
    np.testing.assert_allclose(new, zeta[0] * ONE + zeta[1] * TWO, atol=1e-6)


def test_as_printed_training_diverges():
    """Organisations that change nothing: under `none` what is left shrinks by Σζ every round; the others keep it."""
    for renorm, left in (("none", 0.5746264748**20), ("gamma", 1.0), ("joint", 1.0)):
        rule, theta = build_rule({"rule": "reaverage", "delta": 0.2, "renorm": renorm}), {"w": jnp.ones(3)}
        for _ in range(20):
            theta, _ = rule.finish(theta, ({"w": jnp.zeros((2, 3))}, AWAKE.sum(0)), jnp.asarray(2), ())
        np.testing.assert_allclose(theta["w"], left, rtol=1e-4)


def test_all_renormalisations_agree_where_all_are_available():
    weights = jnp.stack([jnp.array([4.0, 6.0]), jnp.array([0.45, 0.55])], axis=1)
    made = [averaged(weights, [ONE, TWO], renorm=renorm) for renorm in ("gamma", "joint", "none")]
    np.testing.assert_allclose(made[1:], [made[0]] * 2, rtol=1e-5)


def test_without_a_second_weight_it_is_federated_averaging():
    mean = (100 * ONE + 20 * TWO) / 120
    np.testing.assert_allclose(averaged(AWAKE[:, :1], [ONE, TWO], delta=1.0), mean, rtol=1e-5)
    np.testing.assert_allclose(averaged(AWAKE * jnp.array([1.0, 0.0]), [ONE, TWO]), mean, rtol=1e-5)


def test_momentum_accumulates_the_remainder_of_earlier_rounds():
    rule, theta = build_rule({"rule": "reaverage", "delta": 1.0, "momentum": 0.5}), {"w": jnp.zeros(3)}
    state = rule.init(theta)
    for _ in range(3):
        theta, state = rule.finish(theta, ({"w": 2 * jnp.ones((1, 3))}, jnp.array([2.0])), jnp.asarray(2), state)
    np.testing.assert_allclose(theta["w"], 1 + 1.5 + 1.75, rtol=1e-6)


def test_the_rule_says_what_it_needs():
    with pytest.raises(PlanError, match=r"server\.delta = 0\.2 mixes two weights, and reports carry 1; let the method"):
        averaged(AWAKE[:, :1], [ONE, TWO])
    rule = build_rule({"rule": "reaverage", "delta": 1.0})
    with pytest.raises(PlanError, match=r"needs 'w' of shape \(3,\), got \(2, 3\)"):
        rule.finish({"w": jnp.ones(3)}, ({"w": jnp.ones((1, 2, 3))}, jnp.ones(1)), jnp.asarray(1), ())
    with pytest.raises(PlanError, match=r"needs 'w' of shape \(3,\), got nothing"):
        rule.finish({"w": jnp.ones(3)}, ({}, jnp.ones(1)), jnp.asarray(1), ())


def test_closeness_is_summed_in_a_second_round():
    """What `joint` and `none` divide by: with it γ sums to 1 over everybody."""
    made = [organisation(*([[1] * n] for n in some)) for some in ([2, 2, 3], [3, 3, 9])]
    catalog = made[0][0]
    first, second = Handshake(catalog=catalog), Handshake(catalog=catalog, says="closeness")
    params, owns = first.init(jax.random.key(0)), [first.prepare(history) for _, history in made]
    params["lengths"] = owns[0]["mine"] + owns[1]["mine"]
    params["closeness"] = sum(second.local(jax.random.key(0), params, {}, own)[1]["closeness"] for own in owns)
    method = method_of(catalog, second="lengths")
    weights = [method._weight(params, method.prepare(history)) for _, history in made]
    assert float(sum(w[1] for w in weights)) == pytest.approx(1.0, abs=1e-6)


def test_a_holdout_may_replace_the_total():
    catalog, history = organisation([[1, 2]], [[1, 2, 3]])
    shake = Handshake(catalog=catalog, says="closeness", longest=4, holdout=(1, 0, 0))
    own, params = shake.prepare(history), shake.init(jax.random.key(0))
    assert params["lengths"].tolist() == [1, 0, 0]
    assert float(shake.local(jax.random.key(0), params, {}, own)[1]["closeness"]) == 0.0  # KL = ∞
    smooth = replace(shake, smoothing=1.0)
    assert 0 < float(smooth.local(jax.random.key(0), params, {}, own)[1]["closeness"]) < 1
    with pytest.raises(PlanError, match=r"hyper\.holdout of handshake must count 3 bins, lengths 2 to 4, got 2"):
        Handshake(catalog=catalog, longest=4, holdout=(1, 2))


# ---- organisations ----


@pytest.fixture(scope="module")
def log():
    return movies(60, 60, silos=3, seed=1)


def test_an_organisation_holds_its_users(log):
    world = organisations(log)
    assert len(world) == 3
    assert world.items.size == log.items.size
    for silo in range(3):
        mine = pick(log, np.flatnonzero(log.silo == silo))
        part = slice(world.offsets[silo], world.offsets[silo + 1])
        np.testing.assert_array_equal(world.items[part], mine.items)
        person = np.repeat(np.arange(len(mine)), mine.lengths)
        np.testing.assert_array_equal(world.context[part, 0] - world.context[part.start, 0], person)
    months = organisations(log, "month")
    assert len(np.unique(months.context[:, 1])) > 12


def test_sequences_end_with_their_user():
    catalog, history = organisation([[1, 2, 3], [4, 5]], [[6, 7]])
    own = method_of(catalog).prepare(history)
    assert own["place"][:8].tolist() == [0, 1, 2, 0, 1, 0, 1, -1]
    assert own["person"][:8].tolist() == [0, 0, 0, 0, 0, 1, 1, -1]
    alone = method_of(Catalog(10)).prepare(plain_history(jnp.array([1, 2, 3, -1])))
    assert alone["place"].tolist() == [0, 1, 2, -1]
    assert alone["person"].tolist() == [0, 0, 0, -1]


def test_a_log_without_organisations_is_refused():
    with pytest.raises(
        DataError, match=r"organisations needs a log whose users belong to organisations; name their column"
    ):
        organisations(movies(20, 60))


@pytest.mark.slow
def test_organisations_train_and_their_users_are_evaluated(log):
    split = train_on_organisations(leave_last_out(log, recent=6))
    assert len(split.train) == 3
    plan = tiny("fedseqrec", 2, **{"rounds": 6, "hyper.rate": 0.01})
    before = ranks(simulate(tiny("fedseqrec", 2, rounds=0), split.train, quiet=True), split)
    run = simulate(plan, split.train, quiet=True)
    after = ranks(run, split)
    assert len(after) == len(log)
    assert (1 / after).mean() > (1 / before).mean() + 0.02
    assert [row["reports"] for row in run.rounds] == [3] * 7


@pytest.mark.slow
def test_a_run_of_available_organisations_equals_one_by_hand(log):
    """Partial participation, and the debug executor: one organisation at a time, without compiled rounds."""
    plan = tiny(
        "fedseqrec",
        2,
        **{"rounds": 2, "cohort": {"sampler": "fixed", "count": 2}, "hyper.steps": 1, "hyper.optimiser": "sgd"},
    )
    world = organisations(log)
    run = simulate(plan, world, quiet=True)
    assert [row["asked"] for row in run.rounds] == [3, 2, 2]
    slow = simulate(plan, world, quiet=True, performance=Performance("debug"))
    for name, leaf in run.params.items():
        np.testing.assert_allclose(leaf, slow.params[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_epochs_and_steps_are_as_many_as_asked():
    catalog, history = organisation([[1, 2, 3, 4, 5, 6, 7, 8, 9]], [[1, 3, 5, 7, 9]])
    far = {}
    for epochs, steps in ((1, 0), (3, 0), (1, 1)):
        method = method_of(catalog, epochs=epochs, steps=steps, batch=2, optimiser="sgd", rate=0.1)
        params, own = method.init(jax.random.key(0)), method.prepare(history)
        update = method.local(jax.random.key(1), params, {}, own)[1]
        far[epochs, steps] = math.sqrt(sum(float(jnp.square(leaf).sum()) for leaf in update.values()))
    assert far[1, 1] < far[1, 0] < far[3, 0]


@pytest.mark.slow
def test_a_gradient_is_clipped_number_by_number():
    catalog, history = organisation([[1, 2, 3, 4, 5]])
    method = method_of(catalog, optimiser="sgd", rate=1.0, clip=1e-3, batch=8)
    update = method.local(jax.random.key(1), method.init(jax.random.key(0)), {}, method.prepare(history))[1]
    largest = max(float(jnp.abs(leaf).max()) for leaf in update.values())
    assert largest == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.slow
def test_statistics_stay_on_the_device():
    """Under `batch` they are kept, used to score, and are in no message."""
    catalog, history = organisation([[1, 2, 3, 4, 5, 6]], [[7, 8, 9]])
    method = method_of(catalog, norm="batch")
    params, own = method.init(jax.random.key(0)), method.prepare(history)
    start = method.enter(jax.random.key(0), own)
    local, update, _ = method.local(jax.random.key(1), params, start, own)
    assert set(local) == {"mean", "variance"}
    assert not np.allclose(local["variance"], start["variance"])
    assert set(update) == set(method_of(catalog).init(jax.random.key(0)))
    assert not {"mean", "variance"} & set(update)
    scores = [method.score(params, kept, own, jnp.array([1, 2]), jnp.arange(5)) for kept in (start, local)]
    assert not np.allclose(*scores)


@pytest.mark.slow
def test_a_session_is_scored_by_itself_or_the_newest_sequence_is():
    catalog, history = organisation([[1, 2, 3], [4, 5]])
    method = method_of(catalog)
    params, own = method.init(jax.random.key(0)), method.prepare(history)
    nothing = method.score(params, {}, own, jnp.full(4, -1), jnp.arange(10))
    shown = method.score(params, {}, own, jnp.array([-1, 4, 5]), jnp.arange(10))
    np.testing.assert_allclose(nothing, shown, rtol=1e-5)
    assert not np.allclose(shown, method.score(params, {}, own, jnp.array([1, 2]), jnp.arange(10)))
    # one by one, where the catalog is far longer than what is asked: the same numbers
    many = replace(method, catalog=Catalog(10_000), about=jnp.tile(method.about, (1000, 1)))
    np.testing.assert_allclose(many.score(params, {}, own, jnp.array([4, 5]), jnp.arange(10)), shown, rtol=1e-4)


def test_sizes_must_divide():
    with pytest.raises(PlanError, match=r"hyper\.dim of fedseqrec must be a multiple of heads = 3, got 8"):
        method_of(Catalog(5), heads=3)
    with pytest.raises(PlanError, match=r"hyper\.second of fedseqrec = 'root' is a weight without noise"):
        method_of(Catalog(5), bound=1.0, second="root")


@pytest.mark.parametrize(("second", "weight"), [("equal", 1.0), ("root", math.sqrt(3)), ("taste", None)])
def test_other_second_weights(second, weight):
    catalog, history = organisation([[1, 2, 3], [4, 5]], [[6, 7]])
    method = method_of(catalog, second=second)
    params = {**method.init(jax.random.key(0)), "taste": jnp.ones(10)}
    n, gamma = method._weight(params, method.prepare(history))
    assert float(n) == 3
    # seven of ten equally usual items: KL = ln(10/7)
    assert float(gamma) == pytest.approx(weight or 0.7, abs=1e-5)


# ---- privacy ----


def test_the_published_size_and_its_guarantee():
    paper = load_plan("fedseqrec-paper")
    catalog = Catalog(50)
    for name, count in (("fedseqrec-paper", 1_884_406), ("fednewsrec", 2_524_003)):
        stage = load_plan(name).stages[-1]
        params = jax.eval_shape(build(stage, catalog).init, jax.random.key(0))
        assert sum(math.prod(params[leaf].shape) for leaf in stage.trains) == count
    whole = price(paper, 16).whole
    assert whole.epsilon == math.inf
    assert paper.stages[1].privacy["mechanism"] == "laplace_open"
    assert build_mechanism(paper.stages[1].privacy).shows_weight


def test_laplace_open_has_no_guarantee():
    with pytest.raises(PlanError, match=r"privacy\.epsilon is a promise that laplace_open cannot keep; give scale"):
        build_mechanism({"mechanism": "laplace_open", "scale": 1.0, "epsilon": 1.0})
    with pytest.raises(PlanError, match=r"privacy\.scale of laplace_open is missing; give the scale"):
        build_mechanism({"mechanism": "laplace_open"})


def people_of(*changed: tuple[int, list[list[int]]]) -> History:
    """Five people of an organisation; some of them replaced, or gone (an empty list)."""
    people = [[[1, 2, 3, 4]], [[5, 6], [7, 8, 9]], [[2, 4, 6]], [[9, 8, 7, 6, 5]], [[3, 3, 3]]]
    for who, sequences in changed:
        people[who] = sequences
    return organisation(*people)[1]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 1e4])
def test_no_user_changes_an_organisations_sum_by_more_than_one(rate):
    """What `members` builds on, on the code that runs: replace any person by any other, and the sum moves by at most 2."""
    catalog, _ = organisation([[1]])
    method = method_of(catalog, bound=1.0, rate=rate)
    params = method.init(jax.random.key(0))

    def sent(history: History) -> dict:
        return method.local(jax.random.key(5), params, {}, method.prepare(history))[1]

    everybody = sent(people_of())
    assert float(everybody.pop("people")) == 5
    far = []
    for who in range(5):
        other = sent(people_of((who, [[8, 1, 8, 1, 8]])))
        assert float(other.pop("people")) == 5
        far.append(math.sqrt(sum(float(jnp.square(other[k] - everybody[k]).sum()) for k in everybody)))
    # who comes after a longer or shorter person draws the same samples: places move, choices do not
    assert max(far) <= 2 + 1e-4
    assert max(far) > (0.5 if rate > 1 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("unnamed", [False, True])
def test_interleaved_users_are_grouped(unnamed):
    """A log sorted by time has people in turns; what leaves is what leaves when each one's events stand together."""
    catalog, _ = organisation([[1]])
    together = people_of()
    real, person = together.items >= 0, together.context[:, 0]
    turn = jnp.argsort(
        jnp.where(real, run_positions(real, person), 99), stable=True
    )  # one event of each, then the next
    if unnamed:  # the events of one of the five say nothing of whose they are
        together = together._replace(context=together.context.at[:, 0].set(jnp.where(person == 2, jnp.nan, person)))
    turns = together._replace(items=together.items[turn], context=together.context[turn])
    assert int(run_numbers(turns.items >= 0, turns.context[:, 0]).max()) + 1 == int(real.sum())  # nobody twice in a row
    for method in (method_of(catalog, bound=1.0), Handshake(catalog=catalog, people=True, longest=5)):
        params = method.init(jax.random.key(0))
        one, other = (
            method.local(jax.random.key(5), params, {}, method.prepare(history))[1] for history in (together, turns)
        )
        assert float(other["people"]) == 5
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), one, other)


def test_users_have_equal_weight_in_a_private_histogram():
    """Somebody of many sequences moves it no more than somebody of one; and how many they are is told."""
    catalog, history = organisation([[1, 2], [3, 4], [5, 6, 7]], [[8, 9]])
    shake = Handshake(catalog=catalog, people=True, longest=5)
    update = shake.local(jax.random.key(0), shake.init(jax.random.key(0)), {}, shake.prepare(history))[1]
    np.testing.assert_allclose(update["lengths"], [2 / 3 + 1, 1 / 3, 0, 0], atol=1.5 / PERSON_STEPS)
    assert float(update["lengths"].sum()) == float(update["people"]) == 2
    words = Handshake(catalog=catalog, people=True, of="taste")
    update = words.local(jax.random.key(0), words.init(jax.random.key(0)), {}, words.prepare(history))[1]
    assert float(update["taste"].sum()) == pytest.approx(2.0, abs=1e-5)


def test_the_number_of_users_is_released():
    mechanism = build_mechanism({"mechanism": "within_organisation", "noise": 1e-3})
    mechanism = mechanism.settle(build_sampler({"sampler": "all"}).exposure(1, 3))
    update = {"w": jnp.array([3.0, -4.0]), "people": jnp.asarray(7.0)}
    payload = mechanism.encode(jax.random.key(0), update, {})
    total = mechanism.add(
        mechanism.zero(update, 1), jax.tree.map(lambda x: x[None], payload), jnp.ones((1, 1)), jnp.ones(1, bool)
    )
    sums, weight = mechanism.estimate(jax.random.key(0), total, jnp.asarray(1), {})
    np.testing.assert_allclose(sums["w"][0], [3, -4], atol=0.02)
    assert float(weight[0]) == pytest.approx(7.0, abs=0.1)


def test_within_organisation_states_its_guarantee():
    with pytest.raises(
        PlanError, match=r"privacy of within_organisation must give epsilon \(for the run\) or noise, got neither"
    ):
        build_mechanism({"mechanism": "within_organisation"})
    with pytest.raises(PlanError, match=r"privacy\.epsilon = 1 is a promise that noise = 1 does not keep"):
        build_mechanism({"mechanism": "within_organisation", "epsilon": 1.0, "noise": 1.0}).settle(
            build_sampler({"sampler": "all"}).exposure(3, 4)
        )
    with pytest.raises(PlanError, match=r"not turned into noise yet; settle the mechanism"):
        _ = build_mechanism({"mechanism": "within_organisation", "epsilon": 1.0}).deviation
    cost = price(load_plan("fedseqrec-dp"), 16)
    assert cost.whole.epsilon <= 8.0
    assert (cost.whole.unit, cost.whole.trust, cost.whole.relation) == ("user", "organisation", "replace_one")
    # organisations have different people: twice as many cost a person no more
    assert price(load_plan("fedseqrec-dp"), 32).whole.epsilon == pytest.approx(cost.whole.epsilon, rel=1e-6)


@pytest.mark.filterwarnings(LOUD)
@pytest.mark.slow
def test_a_private_run_and_a_private_handshake(log):
    world = organisations(log)
    plan = tiny("fedseqrec-dp", rounds=2)
    run = simulate(plan, world, quiet=True)
    assert all(np.isfinite(leaf).all() for leaf in run.params.values())
    assert run.price.whole.epsilon <= 8.0
    shake = Plan("shake", (replace(
        load_plan("handshake").stages[0],
        hyper={"people": True, "longest": 20},
        privacy={"mechanism": "within_organisation", "epsilon": 4.0},
        server={"rule": "reaverage", "delta": 1.0},
    ),))  # fmt: skip
    noisy = simulate(shake, world, quiet=True).params["lengths"]
    assert noisy.shape == (19,)
    loud = simulate(
        shake.with_setting("privacy", {"mechanism": "within_organisation", "noise": 1e-4}), world, quiet=True
    )
    assert float(loud.params["lengths"].sum()) == pytest.approx(1.0, abs=0.01)  # shares of people, all of them


@pytest.mark.slow
@pytest.mark.filterwarnings(LOUD)
def test_l1_clipped_laplace_is_a_setting_away(log):
    plan = tiny("fedavg-seqrec", rounds=1, **{"hyper.steps": 1}).with_setting(
        "privacy", {"mechanism": "laplace", "epsilon": 5.0, "clip": "l1", "bound": 1.0}
    )
    run = simulate(plan, organisations(log), quiet=True)
    assert run.price.whole.epsilon == pytest.approx(5.0)
    assert run.price.whole.trust == "nobody"


# ---- who joins late, who leaves, who tries first ----


@pytest.mark.slow
def test_an_organisation_joins_late_and_another_leaves(log):
    """The model and everybody's ledger go on; who is gone is not asked, who is new is."""
    plan = tiny("fedseqrec", 2, **{"rounds": 2, "hyper.steps": 2})
    first = simulate(plan, organisations(_of(log, [0, 1])), quiet=True)
    both = first.update(organisations(_of(log, [2])), quiet=True)
    assert [row["reports"] for row in both.rounds] == [3] * 3
    assert all(np.isfinite(leaf).all() for leaf in both.params.values())
    left = simulate(plan, organisations(_of(log, [0, 2])), quiet=True, after=both)
    assert [row["reports"] for row in left.rounds] == [2] * 3


@pytest.mark.slow
def test_an_organisation_drops_out_during_a_run(log):
    """An organisation whose allowance is spent leaves the others' average as it is."""
    plan = tiny("fedavg-seqrec", **{"rounds": 3, "hyper.steps": 1, "privacy": {"mechanism": "none", "messages": 2}})
    run = simulate(plan, organisations(log), quiet=True)
    assert [row["reports"] for row in run.rounds] == [3, 3, 0]
    two = simulate(plan.with_setting("rounds", 2), organisations(log), quiet=True)
    for name, leaf in run.params.items():
        np.testing.assert_array_equal(leaf, two.params[name])


@pytest.mark.slow
def test_a_new_organisation_evaluates_locally_first(log):
    plan = tiny("fedavg-seqrec", **{"rounds": 4, "hyper.rate": 0.01})
    run = simulate(plan, organisations(_of(log, [0, 1])), quiet=True)
    there = {name: np.asarray(leaf) for name, leaf in run.params.items()}
    seen = transfer_gain(run, leave_last_out(_of(log, [2]), recent=6), epochs=2, alone=2)
    people = int((log.silo == 2).sum())
    assert seen.broadcast.shape == seen.adapted.shape == seen.alone.shape == (people,)
    assert not np.array_equal(seen.broadcast, seen.adapted)
    for name, leaf in run.params.items():  # nothing was sent
        np.testing.assert_array_equal(leaf, there[name])
    with pytest.raises(DataError, match=r"transfer_gain takes one organisation, got 3; select its users first"):
        transfer_gain(run, leave_last_out(log, recent=6))


def _of(log: Population, silos: list[int]) -> Population:
    """The people of some organisations, which are then all there are."""
    some = pick(log, np.flatnonzero(np.isin(log.silo, silos)))
    names = [log.silo_names[silo] for silo in silos]
    return replace(some, silo=np.searchsorted(silos, some.silo).astype(np.int32), silo_names=names)


# ---- words ----


@pytest.mark.slow
def test_a_saved_run_restores_its_word_vectors(tmp_path):
    file = tmp_path / "vectors.txt"
    log = movies(20, 50, silos=2)
    words = tokens_of(log.catalog, 30)[1]
    file.write_text(
        "\n".join(f"{word.lower()} 0.5 -1.0 {place}" for place, word in enumerate(words) if " " not in word)
    )
    learners = organisations(with_word_vectors(log, file))
    run = simulate(choose("fedavg-seqrec", {**TINY, "rounds": 1}), learners, quiet=True)
    again = Run.load(save_run(run, tmp_path / "run"))
    np.testing.assert_array_equal(again.method.vectors, run.method.vectors)


@pytest.mark.parametrize("width", [8, 50, 300])
def test_hashed_words_have_equal_norms_in_any_width(width):
    """A wide network is fed what a narrow one is: at the published rate, long vectors make its layers wander."""
    lengths = np.linalg.norm(hashed_vectors([f"word {n}" for n in range(500)], width), axis=1)
    assert np.sqrt(np.mean(lengths**2)) == pytest.approx(LENGTH, rel=0.05)
    assert np.linalg.norm(hashed_vectors(["word 0"], width, 2.0)) == pytest.approx(2 * lengths[0] / LENGTH, rel=1e-5)


def test_missing_words_have_the_norm_of_the_files_words(tmp_path):
    log, file = movies(20, 200), tmp_path / "vectors.txt"
    first, *_ = words = tokens_of(log.catalog, 30)[1]
    file.write_text(f"{first.lower()} {' '.join(['3.0'] * 100)}\n")
    vectors = np.asarray(with_word_vectors(log, file).catalog.vectors)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 30.0, rtol=0.4)
    assert np.linalg.norm(vectors[1:], axis=1).mean() == pytest.approx(30.0, rel=0.1)
    assert len(vectors) == len(words)


def test_word_vectors_come_from_a_file(tmp_path):
    fields = (Field("title", "words", 2, ("Star", "Void", "War")),)
    catalog = Catalog(3, {"title": jnp.array([[0, 2], [1, -1], [2, -1]])}, fields)
    log = replace(movies(20, 60), catalog=catalog, items=np.zeros_like(movies(20, 60).items), item_names=None)
    file = tmp_path / "vectors.txt"
    file.write_text("star 1 0 0\nother 9 9 9\nwar 0 1 0\n")
    worded = with_word_vectors(log, file)
    method = method_of(worded.catalog)
    assert method.vectors.shape == (3, 3)
    assert method.vectors[0].tolist() == [1, 0, 0]
    assert method.vectors[2].tolist() == [0, 1, 0]
    assert np.isfinite(method.vectors[1]).all()
    assert worded.notes[-1] == "2 of 3 words have a vector"
    assert method.init(jax.random.key(0))["word_layer"].shape == (4, 8)
    file.write_text("star 1 0 0\nwar 0 1\n")
    with pytest.raises(DataError, match=r"must be equally wide, got widths \[2, 3\]"):
        with_word_vectors(log, file)
    file.write_text("star 1 zero 0\n")
    with pytest.raises(DataError, match=r"'star' must be followed by numbers, got '1 zero 0"):
        with_word_vectors(log, file)
    file.write_text("moon 1 0 0\n")
    with pytest.raises(DataError, match=r"have none of the 3 words of this catalog"):
        with_word_vectors(log, file)
    with pytest.raises(DataError, match=r"do not exist; name a text file"):
        with_word_vectors(log, tmp_path / "nowhere.txt")


@pytest.mark.parametrize("encoder", ["dense", pytest.param("convolution", marks=pytest.mark.slow)])
def test_distinct_items_equal_items_encoded_each_time(encoder):
    """Few words or many, twice in a batch or never: values and slopes are those of items made one by one."""
    world = movies(20, 50)
    method = build(tiny("fedavg-seqrec", **{"hyper.encoder": encoder}).stages[0], world.catalog)
    said = (np.asarray(method.about) >= 0).sum(axis=1)
    assert said.min() <= method.brief < said.max()
    theta = method._theta(method.init(jax.random.key(0)))
    items = jnp.asarray(np.random.default_rng(0).integers(-1, 50, size=(9, 11)).repeat(2, axis=1), jnp.int32)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(*items.shape, method.dim)), jnp.float32)
    words = Words(method.about, method.vectors, method.brief)
    made = lambda theta: distinct_vectors(theta, method.sizes, words, items)  # noqa: E731
    once = lambda theta: (weights * made(theta)).sum()  # noqa: E731
    each = lambda theta: (weights * method._items(theta, items, table=False)).sum()  # noqa: E731
    np.testing.assert_allclose(jax.jit(made)(theta), method._items(theta, items, table=False), atol=1e-5)
    slopes = (jax.jit(jax.grad(way))(theta) for way in (once, each))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4), *slopes)
