"""Views: neighbouring inputs in the sense of a claim, and all that its adversary sees of them, from the code that runs."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Report
from tacit.core.sparse_rows import Rows, dense_tree
from tacit.device.gate import send
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.sampler import Sampler
from tacit.server.round import add_reports, begin, close, zero_total
from tacit.server.rules.mean_step import MeanStep

PARAMS = {"bias": jnp.zeros(2), "table": jnp.zeros((2, 1))}  # four numbers in two leaves, one of them with rows
NUMBERS = 4
BIG = 1e6  # far outside any bound


# Half of an audit is waiting for the compiler.
_program = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": "1"})


class Input(NamedTuple):
    """What a method hands to the gate."""

    update: dict[str, Any]
    weight: jax.Array


class Pair(NamedTuple):
    """Two neighbours, and whether the claim also holds from the other to the one."""

    one: Input
    other: Input
    both_ways: bool = True


# ---- who is a neighbour of whom ----


def shaped(numbers: Any, weight: float = 1.0) -> Input:
    """Four numbers as an update: two in a vector, two in a table of which only the rows that are not zero are named."""
    values = np.asarray(numbers, np.float32)
    touched = np.flatnonzero(values[2:] != 0)
    index = np.concatenate([touched, np.full(2 - touched.size, 2)])
    value = np.append(values[2:], 0.0).astype(np.float32)[index][:, None]
    table = Rows(jnp.asarray(index, jnp.int32), jnp.asarray(value), 2)
    return Input({"bias": jnp.asarray(values[:2]), "table": table}, jnp.full(1, weight, jnp.float32))


def pairs(claim: Claim) -> Iterator[Pair]:
    """Neighbours in the sense of a claim, worth a try."""
    yield from _interactions(claim) if claim.unit == "interaction" else _people()


def _people() -> Iterator[Pair]:
    """Any two updates, with any two weights."""
    first, second, row, next_row = np.eye(4)
    ones, turns = np.ones(4), np.array([1, -1, -1, 1])
    several = [
        *((ones, -ones), (first, -first), (row, next_row), (turns, -turns), (second, row)),
        *((ones, 0 * ones), (row, 1e-9 * row), (row, 0 * row), (np.nan * ones, -ones)),
        (ones, -4e-6 * ones),  # outside any bound, and opposite just within one of 8
    ]
    for one, other in several:
        yield Pair(shaped(BIG * one, weight=5.0), shaped(BIG * other, weight=0.5))


def _interactions(claim: Claim) -> Iterator[Pair]:
    """Histories of noughts and ones that differ in one position; for replace-one, a one that moved."""
    one_way = claim.relation == "one_sided_1_to_0"
    for at in np.eye(NUMBERS):
        if claim.relation == "replace_one":
            moved = np.roll(at, 1)
            pairs = (at, moved), (1 - moved, 1 - at)
        else:
            pairs = (at, 0 * at), (np.ones(NUMBERS), 1 - at)
        for one, other in pairs:  # the weight is how many there are
            yield Pair(shaped(one, one.sum()), shaped(other, other.sum()), not one_way)


# ---- what an adversary sees ----


class Sent(NamedTuple):
    """A report that went through the gate, and what became of it."""

    report: Report
    estimate: tuple[dict, jax.Array]  # what the server makes of this report alone
    spent: jax.Array
    replaced: jax.Array


def messages(mechanism: Mechanism, source: Input, n: int, seed: int, times: int = 1) -> np.ndarray:
    """n times: all that `times` messages of one device show, and what the server makes of each."""
    return flat([(sent.report, sent.estimate) for sent in reports(mechanism, source, n, seed, times)])


def reports(
    mechanism: Mechanism, source: Input, n: int, seed: int, times: int = 1, spent: int = 0, allowance: int = 99
) -> list[Sent]:
    """What n devices send that have the same to say, `times` each."""
    keys = jax.random.split(jax.random.key(seed), (n, times))
    return _reports(mechanism, keys, source, np.int32(spent), np.int32(allowance))


@_program
def _reports(mechanism: Mechanism, keys: jax.Array, source: Input, spent: jax.Array, allowance: jax.Array) -> Any:
    weights, dials = source.weight.size, begin(mechanism, MeanStep(), (), {}).dials

    def device(keys: jax.Array) -> list[Sent]:
        count, made = spent, []
        for key in keys:
            report, count, replaced = send(key, mechanism, source.update, source.weight, dials, count, allowance)
            alone = jax.tree.map(lambda leaf: leaf[None], report)
            total, n = add_reports(mechanism, zero_total(mechanism, PARAMS, tuple(PARAMS), weights), alone)
            estimate = mechanism.estimate(jax.random.key(0), total, n, dials)
            made.append(Sent(_on_the_wire(mechanism, report), trained(estimate), count, replaced))
        return made

    return jax.vmap(device)(keys)


def releases(
    mechanism: Mechanism, world: list[Input], cohorts: np.ndarray, seed: int, turned: float = 1.0
) -> np.ndarray:
    """For each drawn cohort [n, rounds, devices]: what the server makes of the rounds, and releases.

    Dials stand at so many times their start: a claim that holds at one may not hold at another.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *world)
    keys = jax.random.split(jax.random.key(seed), (*cohorts.shape[:2], cohorts.shape[2] + 1))
    return flat(_releases(mechanism, keys, stacked, jnp.asarray(cohorts), jnp.float32(turned)))


@_program
def _releases(mechanism: Mechanism, keys: jax.Array, world: Input, cohorts: jax.Array, turned: jax.Array) -> Any:
    weights, rule, nobody = world.weight.shape[1], MeanStep(), jnp.zeros((), jnp.int32)
    memory = begin(mechanism, rule, tuple(PARAMS), PARAMS)
    memory = memory._replace(dials={name: turned * dial for name, dial in memory.dials.items()})
    dials = memory.dials

    def one_round(keys: jax.Array, asked: jax.Array) -> Any:
        say = lambda key, source: send(key, mechanism, source.update, source.weight, dials, nobody)[0]  # noqa: E731
        reports = jax.vmap(say)(keys[1:], world)
        reports = reports._replace(sent=reports.sent & asked)
        total = add_reports(mechanism, zero_total(mechanism, PARAMS, tuple(PARAMS), weights), reports)
        after, then, _ = close(keys[0], mechanism, rule, tuple(PARAMS), PARAMS, total, memory)
        return trained(mechanism.estimate(keys[0], *total, dials)), after, then.dials

    return jax.vmap(jax.vmap(one_round))(keys, cohorts)


@lru_cache(maxsize=32)
def drawn(sampler: Sampler, devices: int, rounds: int, n: int, seed: int) -> np.ndarray:
    """Who is asked, bool[n, rounds, devices]: the real sampler, a run for each seed."""
    asked, draw = np.zeros((n, rounds, devices), bool), sampler.draw
    for i in range(n):
        for r in range(rounds):
            asked[i, r, draw(seed + i, 0, r, devices)] = True
    return asked


def trained(estimate: tuple[dict, jax.Array]) -> tuple[dict, jax.Array]:
    """The sums of the leaves, and the weight; a mechanism may estimate more from the same messages."""
    sums, weight = estimate
    return {name: sums[name] for name in PARAMS}, weight


def _on_the_wire(mechanism: Mechanism, report: Any) -> Any:
    """Positions show only where the plan lets them."""
    return report if mechanism.wire == "rows" else report._replace(payload=dense_tree(report.payload))


def flat(tree: Any) -> np.ndarray:
    """One row of finite numbers for each repetition; bytes are bits."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    leaves = [np.unpackbits(leaf, axis=-1) if leaf.dtype == np.uint8 else leaf for leaf in leaves]
    rows = np.concatenate([leaf.reshape(leaf.shape[0], -1).astype(np.float64) for leaf in leaves], 1)
    return np.nan_to_num(rows, nan=3 * BIG)
