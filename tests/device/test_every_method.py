"""Every method, found by its file, satisfies the interface. A new file is tested without an edit here."""

import re
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import ITEMS, Hand, close, same, seeded_step, small_world
from tacit.core.messages import pack, unpack
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import method_class, method_names, methods_from
from tacit.device.ranking import top
from tacit.lab.data.synthetic.small import checkerboard
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import Cases, Split, latest
from tacit.lab.plans.loader import suggested
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.engine import cohort_slots, fold, wire_schema
from tacit.server.round import add_reports, trained, zero_total

TOY = '''"""Toy: likes what has a number near the person's mean item. A sixth method, in one file."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import Method, masked


class Toy(Method):
    """Devices report parity; the score is agreement.

    Paper: none, Tester, "A toy" (2026).
    """

    catalog: Catalog
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["seen"], "rounds": 1, "server": {"rule": "count"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"seen": jnp.zeros((self.catalog.n_items, 2), jnp.int32)}

    def prepare(self, history: History) -> dict:
        real = history.items >= 0
        parity = jnp.where(real, history.items % 2, 0).sum() * 2 > real.sum()
        touched = jnp.zeros(self.catalog.n_items + 1, jnp.int32).at[history.items].max(1)[:-1]
        return {"parity": parity.astype(jnp.int32), "touched": touched}

    def enter(self, key: jax.Array, own: dict) -> dict:
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: dict) -> tuple[dict, dict, jax.Array]:
        return local, {"seen": own["touched"][:, None] * jax.nn.one_hot(own["parity"], 2, dtype=jnp.int32)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        return local

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        return masked(params["seen"][candidates, own["parity"]].astype(jnp.float32), candidates)
'''


@pytest.fixture(scope="module", autouse=True)
def _toy(tmp_path_factory):
    """A method that is only a file in a folder: every test below runs on it too."""
    folder = tmp_path_factory.mktemp("methods")
    (folder / "toy.py").write_text(TOY)
    methods_from(folder)
    yield
    import tacit.device.methods

    tacit.device.methods.__path__.remove(str(folder))


METHODS = [*method_names(), "toy"]
# Networks that take long to compile, and baselines that the lab fits from pooled data: in the second step.
LARGE = ("bert4rec", "fedgnn", "fedseqrec", "masks", "privrec")
POOLED = ("bpr_mf", "fedrec_plus", "gmf", "gru4rec", "ncf", "sr_gnn", "vae")
every = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in (*LARGE, *POOLED) else name for name in METHODS]
)


@cache
def hand_of(name: str, **privacy) -> Hand:
    """A method on the small world; nothing in it changes, so the tests share it."""
    return Hand(name, small_world(), **privacy)


def test_the_methods_are_found():
    assert {"random", "popularity", "mru", "mfu", "sr_od", "sr", "fcf", "itemknn", "toy"} <= set(method_names())


@every
def test_docstring_names_a_paper(name):
    text = method_class(name).__doc__ or ""
    assert re.search(r"Paper: .+\((?:\w+ )?\d{4}\)", text, re.DOTALL), 'say: Paper: Authors, "Title" (Venue YEAR).'


@every
def test_shapes(name):
    hand = hand_of(name)
    own = hand.own(0)
    home = hand.home(0, own)
    local, update, weight = hand.local(hand.root, hand.params, home.local["0"], own)
    assert weight.shape == (1,)
    assert jax.tree.structure(local) == jax.tree.structure(home.local["0"])
    assert [x.shape for x in jax.tree.leaves(local)] == [x.shape for x in jax.tree.leaves(home.local["0"])]
    if hand.stage.rounds:
        moved = trained(hand.params, hand.trains)
        like = moved if hand.job.rule.moves_what_is_sent else hand.job.update.like()
        assert set(update) == set(like)
        table = dense_tree(update)
        assert jax.tree.map(jnp.shape, table) == jax.tree.map(jnp.shape, like)
        assert jax.tree.map(lambda x: x.dtype, table) == jax.tree.map(lambda x: x.dtype, like)
    else:
        assert update == {}
    scores = hand.score(local, own, jnp.array([1, 2]), jnp.arange(5))
    assert scores.shape == (5,)
    assert scores.dtype == jnp.float32


@pytest.mark.bitwise
@every
def test_same_key_same_answer(name):
    hand = hand_of(name)
    own = hand.own(1)
    home = hand.home(1, own)
    one = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, home, own)
    two = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, home, own)
    same(one, two)


@every
def test_longer_padding_changes_nothing(name):
    hand = hand_of(name)
    recent, candidates = jnp.array([-1, 3, 1], jnp.int32), jnp.arange(ITEMS)
    made = []
    for length in (40, 97):
        own = hand.own(2, length)
        home, report = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, hand.home(2, own), own)
        tables = dense_tree(report.payload)
        local = hand.adapt(home, own).local["0"]
        made.append((home, tables, hand.score(local, own, recent, candidates)))
    close(*made, tolerance=1e-6)


def _by_hand(hand, devices, through_the_wire):
    total = zero_total(hand.job.mechanism, hand.params, hand.trains, 1, hand.job.update)
    schema = wire_schema(hand.job, hand.params)
    for device in devices:
        own = hand.own(device)
        _, report = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, hand.home(device, own), own)
        report = unpack(schema, pack(schema, report)) if through_the_wire else report
        total = add_reports(hand.job.mechanism, total, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], report))
    return total


def _vmapped(hand, owns):
    homes = [hand.home(device, own) for device, own in enumerate(owns)]
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    own, home = jax.tree.map(stack, *owns), jax.tree.map(stack, *homes)
    return fold(hand.job, hand.broadcast, [home], [own], [cohort_slots(np.arange(len(owns)), 4)])[1]


@every
@pytest.mark.parametrize("wire", ["dense", pytest.param("rows", marks=pytest.mark.slow)])
def test_vmapped_equals_one_by_one_equals_through_the_wire(name, wire):
    hand = hand_of(name, wire=wire)
    devices = range(len(hand.population))
    together = jax.jit(lambda owns: _vmapped(hand, owns))([hand.own(device) for device in devices])
    close(together, _by_hand(hand, devices, through_the_wire=False))
    close(together, _by_hand(hand, devices, through_the_wire=True))
    assert int(together[1]) == len(hand.population)


@every
def test_order_of_devices_is_irrelevant(name):
    hand = hand_of(name)
    devices = list(range(len(hand.population)))
    close(_by_hand(hand, devices, False), _by_hand(hand, devices[::-1], False))


@every
def test_no_reports_after_the_allowance(name):
    hand = hand_of(name, messages=2)
    own = hand.own(0)
    home = hand.home(0, own)
    sent = []
    for number in range(4):
        broadcast = hand.broadcast._replace(round=jnp.asarray(number))
        home, report = seeded_step(hand.method, hand.job.mechanism, 0, broadcast, home, own)
        sent.append(bool(report.sent))
    assert sent == [True, True, False, False]
    assert int(home.spent["0"]) == 2
    # ... and nothing of the person is in a report that is not sent, nor a trace of it in the total.
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(dense_tree(report.payload)))
    assert not np.asarray(report.weight).any()
    empty = zero_total(hand.job.mechanism, hand.params, hand.trains, 1, hand.job.update)
    same(add_reports(hand.job.mechanism, empty, jax.tree.map(lambda leaf: leaf[None], report)), empty)


@every
def test_padding_candidates_score_minus_infinity(name):
    hand = hand_of(name)
    own = hand.own(0)
    local = hand.home(0, own).local["0"]
    candidates = jnp.array([3, -1, 0, -1], jnp.int32)
    scores = hand.score(local, own, jnp.full(3, -1, jnp.int32), candidates)
    np.testing.assert_array_equal(np.isneginf(scores), [False, True, False, True])
    best, _ = top(hand.root, hand.method, hand.params, local, own, jnp.full(3, -1), candidates, 4)
    assert set(np.asarray(best[:2])) == {0, 3}
    assert np.asarray(best[2:]).tolist() == [-1, -1]


def test_a_candidate_with_score_nan_is_not_listed():
    scorer = SimpleNamespace(score=lambda *asked: jnp.where(asked[-1] == 2, jnp.nan, -1.0 * asked[-1]))
    best, scores = top(jax.random.key(0), scorer, {}, None, None, None, jnp.arange(4), 4)
    assert np.asarray(best).tolist() == [0, 1, 3, -1]
    assert np.asarray(scores).tolist() == [0.0, -1.0, -3.0, -np.inf]


@every
def test_an_empty_history_has_the_same_form(name):
    world = small_world()
    hand = hand_of(name)
    own = hand.own(0)
    nobody = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), world.histories(np.array([0]), 64))
    nobody = hand.method.prepare(nobody._replace(items=jnp.full(64, -1, jnp.int32)))
    _, full = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, hand.home(0, own), own)
    home, empty = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, hand.home(0, nobody), nobody)
    shapes = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert shapes(full) == shapes(empty)
    assert bool(empty.sent)
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(empty.payload))
    assert int(home.zeroed) == 0


@every
def test_a_share_has_an_effect_only_where_the_method_declares_it(name):
    world = small_world()
    hand = hand_of(name)
    history = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), world.histories(np.array([0]), 64))
    owns = [hand.method.prepare(history._replace(share=jnp.asarray(share))) for share in (0.0, 1.0)]
    equal = all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, owns)))
    assert equal != hand.method.withholds


@every
def test_learns_the_checkerboard_or_declares_that_it_does_not(name):
    world, answers = checkerboard(20)
    plan = suggested(name)
    if "epsilon" in plan.stages[0].privacy:  # what it can learn, not what it promises
        plan = plan.with_setting("privacy.epsilon", 30.0)
    run = simulate(plan, world, quiet=True)
    devices = np.arange(len(world))
    cases = Cases(devices, latest(world, devices, 10), answers.astype(np.int32), devices, devices)
    found = ranks(run, Split(world, world, cases))
    if method_class(name).learns:
        assert (found == 1).all(), found
    else:
        # Not one that could be mistaken for learning: about one in eleven by chance.
        assert (found == 1).mean() < 0.5
