"""How far off is the mean that each mechanism estimates? Against ε, devices, numbers and k; theory beside measurement.

python benchmarks/mechanisms.py            # measures, and writes results/mechanisms.json
python benchmarks/pages.py --kept          # puts its tables and its picture into the docs
"""

import itertools
import math
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from harness import machine, write
from pages import Picture, kept, read

from tacit.core.messages import schema_of
from tacit.core.sparse_rows import Rows
from tacit.privacy.mechanism import Mechanism, build_mechanism
from tacit.privacy.sampler import build_sampler

CHUNK = 1000
BASE = {"epsilon": 4.0, "devices": 10_000, "numbers": 256}
SWEEPS = {"epsilon": [1.0, 2.0, 4.0, 8.0], "devices": [1000, 10_000, 100_000], "numbers": [64, 256, 1024]}
COUNTS = [1, 2, 4, 8]
REPEATS = {1000: 8, 10_000: 3, 100_000: 1}  # runs of so many devices
PROFILES = {"all devices agree on every number": 1, "each device touches one number in twenty": 20}


class Way(NamedTuple):
    """A mechanism as a row of the table: its settings but ε, and by which norm its bound is."""

    settings: dict[str, Any]
    norm: str
    promise: str = "epsilon"


WAYS = {
    "laplace, elements": Way({"mechanism": "laplace", "clip": "elements"}, "max"),
    "laplace, l1": Way({"mechanism": "laplace", "clip": "l1"}, "l1"),
    "gaussian, local": Way({"mechanism": "gaussian", "place": "local", "delta": 1e-6}, "l2"),
    "harmony, k = 1": Way({"mechanism": "harmony", "k": 1}, "max"),
    "harmony, best k": Way({"mechanism": "harmony"}, "max"),
    "qharmony, clip": Way({"mechanism": "qharmony"}, "max"),
    "qharmony, paper": Way(
        {"mechanism": "qharmony", "form": "paper", "server": "paper", "k": 5}, "max", "epsilon_of_signs"
    ),
    "kashin": Way({"mechanism": "kashin"}, "l2"),
}
TWIN = "qharmony, clip"  # the same message and estimate as harmony's, so measured once


def settled(way: Way, epsilon: float, devices: int, **more: Any) -> Mechanism:
    exposure = build_sampler({"sampler": "all"}).exposure(1, devices)
    return build_mechanism({**way.settings, way.promise: epsilon, **more}).settle(exposure)


def size(norm: str, touched: int) -> float:
    """The norm of an update with so many numbers of ±1: the tightest bound there is."""
    return {"max": 1.0, "l1": float(touched), "l2": math.sqrt(touched)}[norm]


@partial(jax.jit, static_argnames="numbers")
def fold(mechanism: Mechanism, total: Any, key: jax.Array, numbers: int, touched: jax.Array, scale: jax.Array) -> Any:
    """A thousand devices: ±1, the same sign for all, at as many numbers as each touches; and their true sum."""
    pick, noise = jax.random.split(key)
    signs = jnp.where(jnp.arange(numbers) % 2, 1.0, -1.0)
    start = jax.random.randint(pick, (CHUNK, 1), 0, numbers)
    kept = (jnp.arange(numbers) - start) % numbers < touched  # neighbours, as the rows of a table are
    x = jnp.where(kept, signs, 0.0) / scale  # bounds are 1, so the update is scaled instead
    payloads = jax.vmap(lambda key, x: mechanism.encode(key, {"x": x}, {}))(jax.random.split(noise, CHUNK), x)
    return mechanism.add(total, payloads, jnp.ones((CHUNK, 1)), jnp.ones(CHUNK, bool)), x.sum(0)


def once(mechanism: Mechanism, norm: str, devices: int, numbers: int, touched: int, seed: int) -> dict[str, float]:
    """Of one run: the squared error of the mean over the square of the true one, and the cosine between the two."""
    scale = size(norm, touched)
    total, true = mechanism.zero({"x": jnp.zeros(numbers)}, 1), np.zeros(numbers)
    for i in range(devices // CHUNK):
        key = jax.random.fold_in(jax.random.key(seed), i)
        total, part = fold(mechanism, total, key, numbers, jnp.asarray(touched), jnp.asarray(scale))
        true = true + np.asarray(part, np.float64) / devices
    sums, weight = mechanism.estimate(jax.random.key(0), total, jnp.asarray(devices), {})
    mean, loud = np.asarray(sums["x"][0], np.float64) / float(weight[0]), np.square(true).mean()
    return {
        "error": float(np.square(mean - true).mean() / loud),
        "theory": mechanism.spread(numbers, devices).noise ** 2 / loud,
        "cosine": float(mean @ true / max(np.linalg.norm(mean) * np.linalg.norm(true), 1e-30)),
    }


def measure(mechanism: Mechanism, norm: str, devices: int, numbers: int, share: int) -> dict[str, float]:
    """Over some runs: relative error of the mean, measured and by theory, and the cosine."""
    runs = [once(mechanism, norm, devices, numbers, max(1, numbers // share), s) for s in range(REPEATS[devices])]
    found = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    return {"error": math.sqrt(found["error"]), "theory": math.sqrt(found["theory"]), "cosine": found["cosine"]}


def sweep() -> list[dict[str, Any]]:
    """One thing changes at a time."""
    rows = []
    points = {tuple(sorted({**BASE, what: value}.items())) for what, values in SWEEPS.items() for value in values}
    cases = [
        (name, dict(point), {}) for name in WAYS for point in sorted(points) if name != TWIN or dict(point) == BASE
    ]
    cases += [(n, BASE, {"k": k}) for n in ("harmony, best k", "qharmony, paper", "kashin") for k in COUNTS]
    for name, point, more in cases:
        way = WAYS[name]
        mechanism = settled(way, point["epsilon"], point["devices"], **more)
        for profile, share in PROFILES.items():
            found = measure(mechanism, way.norm, point["devices"], point["numbers"], share)
            k = mechanism.describe().get("k")
            rows.append({"mechanism": name, "profile": profile, **point, "k": k, "chosen_k": bool(more), **found})
    return rows


SHAPES = {  # the two data sets on which QHarmony was proposed, with 16 numbers an app
    "LSApp: 87 apps, 292 devices, ε = 4.5": (4.5, 292, 87 * 16),
    "App Usage: 2000 apps, 1000 devices, ε = 1.1": (1.1, 1000, 2000 * 16),
}


def shapes() -> list[dict[str, Any]]:
    """By theory: signal over noise, and how many devices make it 1."""
    rows = []
    for (shape, (epsilon, devices, numbers)), (profile, share) in itertools.product(SHAPES.items(), PROFILES.items()):
        for name, way in WAYS.items():
            loud = 1 / share / size(way.norm, numbers // share)  # of the mean, when updates are scaled to the bound 1
            ratio = loud / settled(way, epsilon, devices).spread(numbers, devices).noise
            rows.append({"shape": shape, "profile": profile, "mechanism": name, "signal_over_noise": ratio})
            rows[-1]["devices_needed"] = devices / ratio**2
    return rows


def costs(items: int = 2048, dim: int = 16, touched: int = 60, devices: int = 64) -> dict[str, dict[str, float]]:
    """Microseconds a device to encode an update of some rows, and bytes on the wire."""
    rng = np.random.default_rng(0)
    index = np.sort(np.stack([rng.choice(items, touched, replace=False) for _ in range(devices)]), 1)
    value = rng.normal(size=(devices, touched, dim)) / 100
    update = {"items": Rows(jnp.asarray(index, jnp.int32), jnp.asarray(value, jnp.float32), items)}
    keys, found = jax.random.split(jax.random.key(0), devices), {}
    for name, way in WAYS.items():
        mechanism = settled(way, 4.0, 10_000)
        encode = jax.jit(jax.vmap(lambda key, one, m=mechanism: m.encode(key, one, {})))
        payload = jax.tree.map(lambda leaf: leaf[0], jax.block_until_ready(encode(keys, update)))
        times = []
        for _ in range(5):
            began = time.perf_counter()
            jax.block_until_ready(encode(keys, update))
            times.append(time.perf_counter() - began)
        sent = sum(leaf.bytes() for leaf in schema_of(payload, 1).leaves)
        found[name] = {"microseconds": 1e6 * float(np.median(times)) / devices, "bytes": sent}
    return found


# ---- the page ----


def at(rows: list[dict], mechanism: str, profile: str, **point: Any) -> dict[str, Any]:
    found = [row for row in rows if row["mechanism"] == mechanism and row["profile"] == profile and not row["chosen_k"]]
    return next(row for row in found if all(row[name] == value for name, value in {**BASE, **point}.items()))


def tables(result: dict[str, Any]) -> str:
    lines = []
    for profile in PROFILES:
        lines += [f"\n**{profile.capitalize()}**\n", _head("mechanism", "error", "theory", "cosine", "best error", "ε")]
        for name in WAYS:
            row = at(result["rows"], name, profile)
            theory = "–" if name == "qharmony, paper" else f"{row['theory']:.2g}"
            best, promise = math.sqrt(max(0.0, 1 - row["cosine"] ** 2)), "∞" if "paper" in name else "4"
            promise = "4, δ = 10⁻⁶" if "gaussian" in name else promise
            lines.append(f"| {name} | {row['error']:.2g} | {theory} | {row['cosine']:.2f} | {best:.2f} | {promise} |")
    for shape in SHAPES:
        heads = [f"{what}, {short}" for short in ("all", "one in twenty") for what in ("signal/noise", "devices for 1")]
        lines += [f"\n**{shape}**\n", _head("mechanism", *heads)]
        for name in WAYS:
            found = [row for row in result["shapes"] if row["shape"] == shape and row["mechanism"] == name]
            cells = [f"{row['signal_over_noise']:.2g} | {row['devices_needed']:,.0f}" for row in found]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["\n**Cost of a message**\n", _head("mechanism", "µs a device", "bytes")]
    lines += [f"| {n} | {c['microseconds']:,.0f} | {c['bytes']:,.0f} |" for n, c in result["costs"].items()]
    return "\n".join(lines) + "\n"


def _head(*names: str) -> str:
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def picture(rows: list[dict[str, Any]]) -> Any:
    """Measured points on lines of theory; above the dashed line, saying 0 is nearer."""
    import altair as alt

    names, panels = [name for name in WAYS if name != TWIN], []
    y = {"scale": alt.Scale(type="log", domain=[0.03, 200]), "axis": alt.Axis(values=[0.1, 1, 10, 100])}
    for what, values in {**SWEEPS, "k": COUNTS}.items():
        fixed = {name: value for name, value in BASE.items() if name != what}
        shown = [r for r in rows if r["chosen_k"] == (what == "k") and all(r[n] == v for n, v in fixed.items())]
        x = alt.X(f"{what}:Q", title=what, scale=alt.Scale(type="log", nice=False, padding=12))
        base = alt.Chart().encode(
            x=x.axis(values=values, format=",", grid=False),
            color=alt.Color("mechanism:N", title=None, scale=alt.Scale(domain=names, scheme="category10")),
        )
        lines = base.mark_line(strokeWidth=1.5).encode(y=alt.Y("theory:Q", title="error", **y))
        points = base.mark_point(filled=True, size=55, opacity=1).encode(y=alt.Y("error:Q", **y))
        zero = alt.Chart().mark_rule(strokeDash=[4, 4]).encode(y=alt.datum(1))
        said = "datum.mechanism != 'qharmony, paper'"  # it estimates no mean, so there is no theory of its error
        chart = alt.layer(zero, lines.transform_filter(said), points).properties(width=180, height=200)
        kept = alt.Data(values=[row for row in shown if row["mechanism"] != TWIN])
        facet = alt.Row("profile:N", sort=list(PROFILES), title=None, header=alt.Header(labelOrient="top"))
        panels.append(chart.facet(row=facet, data=kept))
    joined = alt.hconcat(*panels).resolve_scale(color="shared")
    return joined.configure_legend(orient="bottom", labelFontSize=12).configure(background="white")


COMMAND = "python benchmarks/mechanisms.py"
BLOCKS = kept("docs/mechanisms.md", {"tables": (COMMAND, lambda: tables(read("mechanisms")))})
PICTURES = [Picture("mechanisms.svg", COMMAND, lambda path: picture(read("mechanisms")["rows"]).save(path))]


if __name__ == "__main__":
    write("mechanisms", {"machine": machine(), "base": BASE, "rows": sweep(), "shapes": shapes(), "costs": costs()})
