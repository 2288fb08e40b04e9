"""Local training: SGD on rows of tables, MAML's gradient through one step, and Adam against sampled negatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

Loss = Callable[[Any, Any], jax.Array]  # (parameters, batch) -> loss


class Minibatch(NamedTuple):
    """The data of one step; of every table among the parameters, the loss gets the rows at `place` alone."""

    place: jax.Array  # int32[b]
    data: Any


class StepSizes(NamedTuple):
    """Learning rates, and which parameters are tables of rows."""

    rate: float
    tables: frozenset[str] = frozenset()
    table_rate: float | None = None  # of tables; a row occurs in few samples of a batch, so the mean gradient is small

    def of(self, name: str) -> float:
        """The learning rate of one parameter."""
        return self.rate if name not in self.tables or self.table_rate is None else self.table_rate


class AdamOnNegatives(NamedTuple):
    """Adam on a user vector: the number of steps, and the number of negatives drawn from all items in each."""

    drawn: int  # the same number for every history
    items: int
    steps: int
    pace: float  # of Adam
    calm: float = 1e-8  # Adam's ε: where a gradient vanishes, rounding must not decide the step


def sgd_step(loss: Loss, theta: dict, batch: Minibatch, pace: StepSizes) -> dict:
    """θ − α ∇L(θ). Rows of tables outside the batch cost nothing."""
    seen = _seen(theta, batch, pace)
    slope = jax.grad(loss)(seen, batch.data)
    moves = {name: -pace.of(name) * g for name, g in slope.items()}
    return {
        name: leaf.at[batch.place].add(moves[name]) if name in pace.tables else leaf + moves[name]
        for name, leaf in theta.items()
    }


def _seen(theta: dict, batch: Minibatch, pace: StepSizes) -> dict:
    return {name: leaf[batch.place] if name in pace.tables else leaf for name, leaf in theta.items()}


def sgd(loss: Loss, theta: dict, batches: Minibatch, pace: StepSizes) -> dict:
    """One step for each batch; `batches` has them along its first axis."""
    return jax.lax.scan(lambda t, batch: (sgd_step(loss, t, batch, pace), None), theta, batches)[0]


def maml_gradient(loss: Loss, theta: dict, support: Minibatch, query: Minibatch, pace: StepSizes) -> dict:
    """∇_θ L_query(θ − α ∇L_support(θ)), second derivatives included: MAML's gradient."""
    return jax.grad(lambda t: loss(_seen(sgd_step(loss, t, support, pace), query, pace), query.data))(theta)


def adam_on_negatives(key: jax.Array, loss: Loss, start: jax.Array, rivals: AdamOnNegatives) -> jax.Array:
    """The minimiser of loss(p, negatives) that Adam finds from `start`, with fresh negatives in each step."""
    adam = optax.adam(rivals.pace, eps=rivals.calm)

    def step(state: tuple, key: jax.Array) -> tuple:
        p, moments = state
        some = jax.random.randint(key, (rivals.drawn,), 0, rivals.items)
        move, moments = adam.update(jax.grad(loss)(p, some), moments)
        return (p + move, moments), None

    (p, _), _ = jax.lax.scan(step, (start, adam.init(start)), jax.random.split(key, rivals.steps))
    return p


def shuffled_batches(key: jax.Array, real: jax.Array, size: int) -> jax.Array:
    """Row numbers in random order as batches, int32[batches, size]; rows that are not real come last.

    Padding does not change the order of the others: the i-th number drawn depends on the key and i alone. The last batch
    is filled with numbers out of range.
    """
    n = real.shape[0]
    order = jnp.argsort(jnp.where(real, jax.random.uniform(key, (n,)), 2.0))
    return jnp.pad(order, (0, -n % size), constant_values=n).reshape(-1, size)
