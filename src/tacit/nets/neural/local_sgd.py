"""Descent at home: a few steps of plain gradient descent, the gradient through one such step, and Adam against rivals."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

Loss = Callable[[Any, Any], jax.Array]  # (parameters, batch) -> what is lost


class Batch(NamedTuple):
    """What one step looks at; of every table among the parameters, the loss sees the rows at `place` alone."""

    place: jax.Array  # int32[b]
    data: Any


class Pace(NamedTuple):
    """How far a step goes, and which parameters are tables of rows."""

    rate: float
    tables: frozenset[str] = frozenset()
    table_rate: float | None = None  # of tables; a row is in few samples of a batch, so the mean moves it little

    def of(self, name: str) -> float:
        """The rate of one parameter."""
        return self.rate if name not in self.tables or self.table_rate is None else self.table_rate


class Rivals(NamedTuple):
    """How a person's vector is found: so many steps, and in each so many items drawn from all of them."""

    drawn: int  # as many whatever the history
    items: int
    steps: int
    pace: float  # of Adam
    calm: float = 1e-8  # Adam's ε: where a slope vanishes, its rounding must not decide the step


def step(loss: Loss, theta: dict, batch: Batch, pace: Pace) -> dict:
    """θ − α ∇L(θ). Rows of tables that the batch does not look at cost nothing."""
    seen = _seen(theta, batch, pace)
    slope = jax.grad(loss)(seen, batch.data)
    moves = {name: -pace.of(name) * g for name, g in slope.items()}
    return {
        name: leaf.at[batch.place].add(moves[name]) if name in pace.tables else leaf + moves[name]
        for name, leaf in theta.items()
    }


def _seen(theta: dict, batch: Batch, pace: Pace) -> dict:
    return {name: leaf[batch.place] if name in pace.tables else leaf for name, leaf in theta.items()}


def descend(loss: Loss, theta: dict, batches: Batch, pace: Pace) -> dict:
    """One step for each batch; `batches` has them along its first axis."""
    return jax.lax.scan(lambda t, batch: (step(loss, t, batch, pace), None), theta, batches)[0]


def through_one_step(loss: Loss, theta: dict, support: Batch, query: Batch, pace: Pace) -> dict:
    """∇_θ L_query(θ − α ∇L_support(θ)), second derivatives included: MAML's gradient."""
    return jax.grad(lambda t: loss(_seen(step(loss, t, support, pace), query, pace), query.data))(theta)


def against_rivals(key: jax.Array, loss: Loss, start: jax.Array, rivals: Rivals) -> jax.Array:
    """Where Adam leads from `start` on loss(p, rivals), with other items drawn in each step."""
    adam = optax.adam(rivals.pace, eps=rivals.calm)

    def step(state: tuple, key: jax.Array) -> tuple:
        p, moments = state
        some = jax.random.randint(key, (rivals.drawn,), 0, rivals.items)
        move, moments = adam.update(jax.grad(loss)(p, some), moments)
        return (p + move, moments), None

    (p, _), _ = jax.lax.scan(step, (start, adam.init(start)), jax.random.split(key, rivals.steps))
    return p


def shuffled(key: jax.Array, real: jax.Array, size: int) -> jax.Array:
    """Places of an array of rows in random order as batches, int32[batches, size]; rows that are not real come last.

    Padding does not change the order of the others: the i-th number drawn depends on the key and i alone. What fills
    the last batch is out of range.
    """
    n = real.shape[0]
    order = jnp.argsort(jnp.where(real, jax.random.uniform(key, (n,)), 2.0))
    return jnp.pad(order, (0, -n % size), constant_values=n).reshape(-1, size)
