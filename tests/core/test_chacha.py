"""ChaCha20 as a random generator: the cipher of RFC 8439 and of `cryptography`, and keys that never meet again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core import chacha

pytestmark = pytest.mark.bitwise


def reference(key: bytes, counter: int, nonce: bytes, size: int) -> bytes:
    """The key stream by another implementation."""
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, counter.to_bytes(4, "little") + nonce), mode=None)
    return cipher.encryptor().update(bytes(size))


def test_the_block_of_rfc_8439():
    key = np.frombuffer(bytes(range(32)), "<u4")
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), "<u4")
    found = np.asarray(chacha.block(jnp.asarray(key), jnp.ones(1, jnp.uint32), (*nonce,)))
    wanted = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    assert found.astype("<u4").tobytes().hex() == wanted


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1000])
def test_bits_are_the_key_stream(size):
    key = chacha.key_of(bytes(32))
    words = np.asarray(jax.random.bits(key, (size,), jnp.uint32)).astype("<u4").tobytes()
    assert words == reference(np.asarray(jax.random.key_data(key)).astype("<u4").tobytes(), 0, bytes(12), 4 * size)


def test_every_function_of_jax_random_takes_the_key():
    key = chacha.key_of(bytes(32))
    drawn = jax.jit(lambda key: jax.random.normal(key, (100_000,)))(key)
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1) < 0.02
    several = jax.vmap(lambda key: jax.random.uniform(key, (3,)))(jax.random.split(key, 5))
    alone = jnp.stack([jax.random.uniform(one, (3,)) for one in jax.random.split(key, 5)])
    assert (several == alone).all()


def test_streams_of_a_key_are_all_different():
    key = chacha.key_of(bytes(32))
    keys = [key, *jax.random.split(key, 40), *(jax.random.fold_in(key, n) for n in range(40)), jax.random.split(key)[0]]
    words = [
        word.tobytes()
        for word in np.asarray(jax.vmap(lambda one: jax.random.bits(one, (4,), jnp.uint32))(jnp.stack(keys)))
    ]
    assert len(set(words)) == 81  # the first of two children is the first of forty


def test_a_fresh_key_is_never_the_same():
    words = {np.asarray(jax.random.key_data(chacha.fresh_key(b"the same"))).tobytes() for _ in range(50)}
    assert len(words) == 50


def test_a_context_is_part_of_the_key():
    keys = [chacha.key_of(bytes(32), *context) for context in ((), (b"ab",), (b"a", b"b"), (b"", b"ab"))]
    assert len({np.asarray(jax.random.key_data(key)).tobytes() for key in keys}) == 4
