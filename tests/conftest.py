"""For every test: one profile for properties, the same on every machine; and programs compiled once, few at a time."""

import gc
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Most of the time goes into compiling. Programs are kept on disk, for the other worker, for commands that tests start,
# and for the next run; JAX names them by what they compute, so a change of the code is a new program.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parents[1] / "build" / "programs"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# A test runs a program a few times, so it is compiled quickly rather than well. `make test-slow` runs those marked `bitwise`
# again with XLA_FLAGS set to nothing, on the programs that users get.
QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
    # A flag that XLA does not know ends the process, and later versions do not know this one.
    *(("--xla_cpu_use_fusion_emitters=false",) if version("jaxlib").startswith("0.10.") else ()),
)
os.environ.setdefault("XLA_FLAGS", " ".join(QUICKLY))

gc.set_threshold(50_000, 20, 100)  # JAX makes millions of small objects, and few cycles of them

settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Flushes are asked for, but not carried out: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: os.fstat(handle) and None)  # a closed file is an error still
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Let go of compiled programs after each file: each maps memory, and a process may map only so many pieces."""
    yield
    import jax

    jax.clear_caches()


def pytest_collection_finish() -> None:
    """What is imported and collected stays: leave it out of every search for garbage."""
    gc.freeze()
