"""Blocks of rounds: many rounds of all devices in one program equal the rounds one by one, and only cheap ones are blocked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.toys import Hand, close, same, small_world
from tacit.device.gate import send
from tacit.device.history import plain_history
from tacit.device.methods.fpl import FPL
from tacit.device.round import KEYS, enter, new_home, seeded_noise_key
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation import stage_runner
from tacit.lab.simulation.buckets import bucket_cost, homes_by_id
from tacit.lab.simulation.engine import _used
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.stage_runner import SCANNED
from tacit.nets.factor.bpr import kth_unowned, owned_items
from tacit.privacy.mechanism import build_mechanism

WORLD = taste_groups(users=90, items=60, events=10)  # too many to count as a few
PLANS = {
    "fpl": {"hyper.dim": 4},
    "fpl-dp": {"hyper.dim": 4, "hyper.triples": 20, "privacy.epsilon": 100.0},
    "fcf": {"hyper.dim": 4, "privacy.messages": 5},
}


def plan_of(name: str, rounds: int = 9):
    return choose(name, {"rounds": rounds, **PLANS[name]})


def told(run) -> list[tuple]:
    return [(row["asked"], row["reports"], row["bytes_up"], row["bytes_down"]) for row in run.rounds]


@pytest.mark.parametrize("name", PLANS)
def test_a_block_of_rounds_equals_the_rounds_one_by_one(name, monkeypatch):
    plan = plan_of(name)
    assert Federation(plan, WORLD).begin(0).block == SCANNED
    block = simulate(plan, WORLD, quiet=True)
    monkeypatch.setattr(stage_runner, "rounds_per_program", lambda *_: 1)
    single = simulate(plan, WORLD, quiet=True)
    close(block.params, single.params)
    close(homes_by_id(block.buckets), homes_by_id(single.buckets))
    assert told(block) == told(single)
    assert len(block.rounds) == 9
    if name == "fcf":
        assert [row["reports"] for row in block.rounds] == [90] * 5 + [0] * 4, "the gate counts in a block too"


@pytest.mark.bitwise
def test_block_boundaries_change_nothing():
    plan, seen = plan_of("fpl", rounds=10), []
    whole = simulate(plan, WORLD, quiet=True)
    cut = simulate(plan, WORLD, quiet=True, evaluate=lambda run: seen.append(len(run.rounds)) or {}, every=3)
    same(whole.params, cut.params)
    same(homes_by_id(whole.buckets), homes_by_id(cut.buckets))
    assert told(whole) == told(cut)
    assert len(seen) == 4  # after 3, 6 and 9 rounds, and at the end


def test_a_block_of_rounds_with_several_chunks():
    plan = plan_of("fpl", rounds=4)
    whole, chunks = (simulate(plan, WORLD, quiet=True, performance=Performance(chunk=chunk)) for chunk in (90, 40))
    close(whole.params, chunks.params)
    close(homes_by_id(whole.buckets), homes_by_id(chunks.buckets))


@pytest.mark.parametrize(
    ("settings", "light", "workers", "block"),
    [
        ({}, 4 * 90, 2, SCANNED),
        ({}, 4 * 90 - 1, 2, 1),  # heavier than that: shared out
        ({}, 0, 1, SCANNED),  # nobody to share it with
        ({"rounds": 1}, 4 * 90, 2, 1),
        ({"cohort": {"sampler": "fixed", "count": 89}}, 4 * 90, 2, 1),
    ],
)
def test_which_rounds_are_played_in_blocks(settings, light, workers, block, monkeypatch):
    monkeypatch.setattr(stage_runner, "LIGHT", light)
    monkeypatch.setattr(stage_runner, "worker_count", lambda: workers)
    plan = choose("fpl", {"rounds": 9, **settings})
    made = Federation(plan, WORLD)
    assert stage_runner.rounds_per_program(made.plan.stages[0], made.methods[0], WORLD) == block
    if block > 1:
        assert made._layout()[0] == 1


def test_blocks_of_expensive_rounds_are_short(monkeypatch):
    monkeypatch.setattr(stage_runner, "worker_count", lambda: 1)
    monkeypatch.setitem(stage_runner.SCANNED_EVENTS, "cpu", 4 * 90 * 7)
    monkeypatch.setitem(stage_runner.SCANNED_EVENTS, "gpu", 4 * 90 * 7)
    played = Federation(plan_of("fpl"), WORLD).begin(0)
    assert played.block == 7


def test_devices_are_not_copied_where_all_take_part():
    made = Federation(plan_of("fpl"), WORLD)
    rounds = made.begin(0)
    assert all(one.slots is None for one in rounds._slots(np.arange(90)))
    assert [rounds._chunk(bucket, 1.0, made.params) for bucket in made.buckets] == [
        bucket.ids.size for bucket in made.buckets
    ]


def test_the_number_of_buckets_is_bounded_for_many_rounds():
    assert bucket_cost(10) > bucket_cost(1000) > bucket_cost(10**9) > 1000
    assert bucket_cost(10**9, 0.02) == pytest.approx(50 * bucket_cost(10**9), rel=1e-3)
    assert bucket_cost(0) == bucket_cost(10)


# ---- parts of a round that are optimised for speed ----


@jax.jit
def every_rival(items: jax.Array, size: jax.Array) -> jax.Array:
    return jax.vmap(lambda k: kth_unowned(k, owned_items(items, size, 700)))(jnp.arange(700, dtype=jnp.int32))


@given(st.sets(st.integers(0, 699), max_size=300), st.sampled_from([0, 5, 290]))
def test_sampling_by_gaps_equals_sampling_from_a_list(had, more):
    length = next(room for room in (5, 16, 17, 300) if room >= len(had)) + more
    items = np.full(length, 700, np.int32)
    items[: len(had)] = sorted(had)
    rest = np.setdiff1d(np.arange(700), items)
    np.testing.assert_array_equal(every_rival(items, jnp.int32(len(had)))[: rest.size], rest)


def test_the_noise_key_of_a_device_equals_the_second_key_of_split():
    hand = Hand("fpl", small_world())
    own = hand.own(0)
    home = enter(hand.method, 0, new_home(jnp.array([5, 6], jnp.uint32)), own)
    noise = seeded_noise_key(home, 0, 3)
    key = jax.random.wrap_key_data(home.secret, impl=KEYS)
    for number in (0, 2, 3):  # stage, purpose, round
        key = jax.random.fold_in(key, number)
    np.testing.assert_array_equal(jax.random.key_data(noise), jax.random.key_data(jax.random.split(key)[1]))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize(("value", "zeroed"), [(jnp.nan, 1), (-jnp.nan, 1), (jnp.inf, 1), (-jnp.inf, 1), (6e4, 0)])
def test_the_gate_finds_values_that_are_not_finite_at_any_place(dtype, value, zeroed):
    for place in (0, 5):
        update = {"items": jnp.full((2, 3), 6e4, dtype).at[divmod(place, 3)].set(value)}  # their sum is no float16
        made = send(jax.random.key(0), build_mechanism({"mechanism": "none"}), update, jnp.ones(1), {}, jnp.int32(0))
        assert int(made[2]) == zeroed
        assert bool((made[0].payload["items"] == 0).all()) == bool(zeroed)


def test_rows_of_zeros_are_not_counted():
    table = jnp.zeros((1, 4, 2)).at[0, 1, 0].set(-0.0).at[0, 2, 1].set(1e-38).at[0, 3].set(-1.0)
    assert _used(table).tolist() == [[False, False, True, True]]
    assert _used(table.astype(jnp.int32)).tolist() == [[False, False, False, True]]
    assert _used(table[..., 0]).tolist() == [[False, False, False, True]]


def test_rows_of_a_pair_are_sorted_and_padding_is_last():
    method = FPL(WORLD.catalog, dim=3, pi=0.5)
    own = method.prepare(plain_history(jnp.arange(0, 60, 2)))
    params, local = method.init(jax.random.key(0)), method.enter(jax.random.key(1), own)
    keys = jax.random.split(jax.random.key(2), 200)
    items = jax.jit(jax.vmap(lambda key: method.local(key, params, local, own)[1]["items"]))(keys)
    index = np.asarray(items.index)
    assert (index[:, 0] < index[:, 1]).all()
    hidden = index[:, 1] == 60
    assert 60 < hidden.sum() < 140
    assert not np.asarray(items.value)[hidden, 1].any()
    assert (index[hidden, 0] % 2 == 1).all(), "alone, it is the rival that is sent"
    assert np.asarray(items.value)[:, 0].any(axis=1).all()
