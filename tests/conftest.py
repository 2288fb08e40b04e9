"""For every test: one profile for properties, the same on every machine; and few compiled programs at a time."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Let go of compiled programs after each file: each maps memory, and a process may map only so many pieces."""
    yield
    import jax

    jax.clear_caches()
