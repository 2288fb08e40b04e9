"""`tacit doctor`: versions, devices and memory of this machine, and whether the optional dependencies work."""

import importlib.metadata
import importlib.util
import os
import time
from typing import Annotated, Any

import typer

from tacit.cli.common import print_json

ORDER = 110  # in `tacit --help`
CORE = ("jax", "equinox", "optax", "numpy", "scipy", "polars", "narwhals", "dp-accounting", "typer", "rich")
EXTRAS = {"flower": "flwr", "audit": "jax_privacy", "bench": "implicit", "dev": "pytest"}


def command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show versions, devices and memory, and check that the optional dependencies work."""
    found = _examine()
    if as_json:
        print_json(found)
        return
    for part, facts in found.items():
        print(part)
        for name, fact in facts.items():
            print(f"  {name:<16} {fact}")


def _examine() -> dict[str, dict[str, Any]]:
    """Versions, devices, memory, extras."""
    return {"versions": _versions(), "devices": _devices(), "machine": _machine(), "extras": _extras()}


def _versions() -> dict[str, str]:
    import platform

    import tacit

    return {
        "tacit": tacit.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in CORE},
    }


def _devices() -> dict[str, str]:
    import jax
    import jax.numpy as jnp

    found = {f"{device.platform} {device.id}": device.device_kind for device in jax.devices()}
    began = time.perf_counter()
    total = float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64))))
    word = "works" if total == 64.0**3 else f"is wrong: {total}"
    return {**found, "a product": f"{word}, {time.perf_counter() - began:.2f} s with compiling"}


def _machine() -> dict[str, str]:
    import platform

    memory = "unknown"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"
    return {"system": platform.platform(), "cores": str(os.cpu_count()), "memory": memory}


def _extras() -> dict[str, str]:
    return {extra: _try(extra, module) for extra, module in EXTRAS.items()}


def _try(extra: str, module: str) -> str:
    if importlib.util.find_spec(module) is None:
        return f"not installed; pip install 'tacit[{extra}]'"
    try:
        importlib.import_module(module)
    except Exception as problem:
        return f"broken: {type(problem).__name__}: {problem}"
    return f"works ({module})"
