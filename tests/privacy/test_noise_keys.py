"""Every mechanism draws by a key of ChaCha20, as a deployment does, and has the law that it has by the simulator's keys."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.falsify import trial
from support.toys import first_settings
from support.views import NUMBERS, PARAMS, shaped
from tacit.core import chacha
from tacit.privacy.mechanism import build_mechanism, empty_total, mechanism_class, mechanism_names
from tacit.privacy.mechanisms._parts.bits import uniform_words
from tacit.privacy.sampler import build_sampler

CASES = [(name, number) for name in mechanism_names() for number in range(len(mechanism_class(name).suggested))]
COUNT = 1000
UPDATE = np.array([0.3, 0.9, -0.7, 0.0]) / NUMBERS
quick = eqx.filter_jit(compiler_options={"xla_backend_optimization_level": "0"})
first = pytest.mark.parametrize(("name", "number"), first_settings(CASES))  # the others in the second step


def seeded_keys() -> jax.Array:
    return jax.random.split(jax.random.key(3), COUNT)


def deployed_keys() -> jax.Array:
    return chacha.keys_of(bytes(32), [(b"%d" % number,) for number in range(COUNT)])


def built(name: str, number: int):
    build = lambda settings: build_mechanism({"mechanism": name, **settings})  # noqa: E731
    return trial(build, mechanism_class(name).suggested[number], build_sampler({"sampler": "all"})).mechanism


def numbers_of(tree) -> np.ndarray:
    """The numbers of stacked messages, float[messages, numbers]; of packed bits, one number a bit."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    leaves = [np.unpackbits(leaf, axis=-1) if leaf.dtype == np.uint8 else leaf for leaf in leaves]
    return np.concatenate([leaf.reshape(COUNT, -1).astype(float) for leaf in leaves], axis=1)


def assert_one_law(one: np.ndarray, other: np.ndarray) -> None:
    """Means within six standard errors, and about one spread."""
    spread = np.maximum(one.std(0), other.std(0))
    assert (np.abs(one.mean(0) - other.mean(0)) <= 6 * spread * np.sqrt(2 / COUNT) + 1e-6).all()
    assert (np.abs(one.std(0) - other.std(0)) <= 0.3 * spread + 1e-6).all()


@first
def test_a_message_has_one_law_by_either_key(name, number):
    mechanism, update = built(name, number), shaped(UPDATE).update
    encode = quick(lambda keys: jax.vmap(lambda key: mechanism.encode(key, update, mechanism.public_state))(keys))
    by_seed, deployed = (encode(keys) for keys in (seeded_keys(), deployed_keys()))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), by_seed) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), deployed
    )
    assert_one_law(numbers_of(by_seed), numbers_of(deployed))


@first
def test_an_estimate_has_one_law_by_either_key(name, number):
    mechanism = built(name, number)
    total, n = empty_total(mechanism, PARAMS, 1)
    estimate = quick(
        lambda keys: jax.vmap(lambda key: mechanism.estimate(key, total, n, mechanism.public_state)[0])(keys)
    )
    by_seed, deployed = (estimate(keys) for keys in (seeded_keys(), deployed_keys()))
    assert_one_law(numbers_of(by_seed), numbers_of(deployed))


def test_uniform_words_of_a_deployed_key_are_the_stream_of_the_cipher():
    key = chacha.key_of(bytes(32))
    np.testing.assert_array_equal(uniform_words(key, 37), jax.random.bits(key, (37,), jnp.uint32))
