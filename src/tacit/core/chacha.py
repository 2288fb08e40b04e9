"""ChaCha20 as a random generator of JAX, with keys of 256 bits from the operating system.

`jax.random.key` keeps 32 bits of its seed and a threefry key has 64: enough to simulate, too few to hide a person behind.
On a real device and at a real server, noise is drawn with a key from `fresh_key`. Every function of `jax.random` takes it,
so a mechanism draws the same way in the simulator and in a deployment.
"""

import hashlib
import math
import os
from collections.abc import Sequence

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np

_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_BITS, _SPLIT, _FOLD, _SEED = 0, 1, 2, 3  # what a stream is for: the first word of its nonce
_KEY_WORDS, _BLOCK_WORDS = 8, 16


def fresh_key(*context: bytes) -> jax.Array:
    """A key from the operating system that was never used and is never written down; a context is mixed in."""
    return fresh_keys(1, *context)[0]


def fresh_keys(count: int, *context: bytes) -> jax.Array:
    """So many keys, each as `fresh_key` makes one."""
    return _wrapped([_key_words(os.urandom(32), *context) for _ in range(count)])


def key_of(secret: bytes, *context: bytes) -> jax.Array:
    """The key of a secret of at least 32 bytes in a context: the same every time."""
    return keys_of(secret, [context])[0]


def keys_of(secret: bytes, contexts: Sequence[Sequence[bytes]]) -> jax.Array:
    """The keys of a secret in several contexts, each as `key_of` makes one."""
    return _wrapped([_key_words(secret, *context) for context in contexts])


def _key_words(*parts: bytes) -> np.ndarray:
    """The digest of a secret and its context, each part preceded by its length, as the eight words of a key."""
    digest = hashlib.blake2b(digest_size=32, person=b"tacit noise key")
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return np.frombuffer(digest.digest(), "<u4")


def _wrapped(words: list[np.ndarray]) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(np.stack(words)), impl=CHACHA)


def block(key: jax.Array, counter: jax.Array, nonce: tuple) -> jax.Array:
    """The blocks of the cipher for some counters uint32[n]: uint32[n, 16]. RFC 8439, section 2.3."""
    words = [jnp.broadcast_to(word, counter.shape) for word in (*jnp.asarray(_CONSTANTS), *key)]
    start = jnp.stack(
        [*words, counter, *(jnp.broadcast_to(jnp.asarray(one, jnp.uint32), counter.shape) for one in nonce)]
    )
    return (jax.lax.fori_loop(0, 10, lambda _, state: _double_round(state), start) + start).T


def _double_round(state: jax.Array) -> jax.Array:
    """Four quarter rounds on the columns of the 4 × 4 words, and four on the diagonals."""
    a, b, c, d = (state[at : at + 4] for at in (0, 4, 8, 12))
    a, b, c, d = _quarter_rounds(a, b, c, d)
    b, c, d = (jnp.roll(row, -shift, 0) for row, shift in ((b, 1), (c, 2), (d, 3)))
    a, b, c, d = _quarter_rounds(a, b, c, d)
    b, c, d = (jnp.roll(row, shift, 0) for row, shift in ((b, 1), (c, 2), (d, 3)))
    return jnp.concatenate([a, b, c, d])


def _quarter_rounds(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> tuple[jax.Array, ...]:
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(word: jax.Array, by: int) -> jax.Array:
    return (word << jnp.uint32(by)) | (word >> jnp.uint32(32 - by))


def _stream(key: jax.Array, words: int, purpose: int, number: int | jax.Array = 0) -> jax.Array:
    """So many words of the stream that a key has for a purpose and a number."""
    counters = jnp.arange(-(-words // _BLOCK_WORDS), dtype=jnp.uint32)
    return block(key, counters, (purpose, number, 0)).reshape(-1)[:words]


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    count = math.prod(shape)
    if bit_width == 64:
        high, low = _stream(key, 2 * count, _BITS).astype(jnp.uint64).reshape(2, -1)
        return ((high << jnp.uint64(32)) | low).reshape(shape)
    return _stream(key, count, _BITS).astype(f"uint{bit_width}").reshape(shape)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return _stream(key, _KEY_WORDS * math.prod(shape), _SPLIT).reshape(*shape, _KEY_WORDS)


def _fold_in(key: jax.Array, data: int | jax.Array) -> jax.Array:
    return _stream(key, _KEY_WORDS, _FOLD, data)


def _seed(seed: jax.Array) -> jax.Array:
    return _stream(jnp.zeros(_KEY_WORDS, jnp.uint32), _KEY_WORDS, _SEED, seed.astype(jnp.uint32))


CHACHA = jax.extend.random.define_prng_impl(
    key_shape=(_KEY_WORDS,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="chacha20",
    tag="cha",
)
