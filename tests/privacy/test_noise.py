"""The noise itself: the right law, and tails that no δ in use can see the end of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tacit.privacy.mechanisms._parts import noise

LAWS = {"exponential": stats.expon, "laplace": stats.laplace, "normal": stats.norm}


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_right(name):
    drawn = np.asarray(getattr(noise, name)(jax.random.key(1), (400_000,)), np.float64)
    assert np.isfinite(drawn).all()
    assert stats.kstest(drawn, LAWS[name].cdf).pvalue > 1e-3
    assert np.unique(drawn).size > 390_000, "no grid that a low bit would show"


def test_pairs_of_normals_are_independent():
    drawn = np.asarray(noise.normal(jax.random.key(2), (200_000,)), np.float64)
    one, other = drawn[:100_000], drawn[100_000:]  # from the same radius and angle
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015
    assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 0.015
    assert noise.normal(jax.random.key(2), (3, 5)).shape == (3, 5)
    assert noise.normal(jax.random.key(2), ()).shape == ()


def test_tails_reach_beyond_what_a_delta_can_see(monkeypatch):
    """The bits that make the largest and the smallest numbers are planted."""

    def planted(high, low):
        monkeypatch.setattr(jax.random, "bits", lambda key, shape, kind: jnp.broadcast_to(_pair(high, low), shape))
        return float(noise.exponential(jax.random.key(0), (1,))[0])

    largest, smallest = planted(0, 0), planted(2**32 - 1, 2**32 - 1)
    assert largest > 44, "e^-44 is 8e-20"
    assert 0 < smallest < 1e-19
    halves = planted(2**31 - 1, 0), planted(2**31, 0)
    np.testing.assert_allclose(halves, np.log(2), rtol=1e-6)
    assert np.sqrt(2 * largest) > 9.3, "a normal reaches nine deviations"


def _pair(high, low):
    return jnp.array([[high], [low]], jnp.uint32)


def test_what_jax_draws_itself_would_not_do():
    """Why this file exists: a million draws of 23 bits end before a δ of 1e-7 does."""
    edge = float(jnp.sqrt(2.0) * jax.lax.erf_inv(jnp.float32(1 - 2**-24)))
    assert 2 * stats.norm.sf(edge) > 1e-8
