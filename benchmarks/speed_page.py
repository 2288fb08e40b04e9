"""The blocks of docs/speed.md that are not about one method; `python benchmarks/pages.py` fills them."""

from functools import partial
from typing import Any

from pages import RESULTS, kept, read, table

RACES = {
    "W1": "W1: 1000 devices, 2000 items, about 60 each, dim 32",
    "SeqMF": "SeqMF: the same people, dim 32, what follows what included (`--only SeqMF`)",
    "ML-1M": "one epoch of MovieLens-1M, dim 32",
}
RUNNERS = {
    "NumPy loop": "NumPy, one device after another",
    "Tacit": "Tacit, the engine as `simulate` runs it",
    "implicit ALS-CG": "`implicit`, one ALS-CG iteration, 2 threads",
    "Tacit, row-sparse": "Tacit, FCF `own`, row-sparse",
    "Tacit, dense": "Tacit, FCF `all`, dense updates",
}


def races() -> str:
    """Every race, its first runner and those that are held against it; the error is of the first of ours."""
    lines = []
    for name, title in RACES.items():
        race = read("speed-cpu")[name]
        first, ours, *rest = race["runners"].items()
        error = f" (error {race['error_against_float64']:.0e})"
        lines.append(_runner(title, first, "", "1", ""))
        lines.append(_runner("", ours, error, f"**{ours[1]['times_faster']:.2f}**", race["target"]))
        lines += [_runner("", one, "", f"{one[1]['times_faster']:.2f}", "reported") for one in rest]
    return table(["race", "runner", "ms", "times faster", "target"], lines)


def _runner(race: str, runner: tuple[str, dict[str, float]], error: str, ratio: str, target: str) -> list[str]:
    name, found = runner
    return [race, RUNNERS[name] + error, f"{found['ms']:.1f}", ratio, target]


def sizes(method: str = "") -> str:
    """A round of everybody by how many there are, on the CPU and on the GPU."""
    found = {on: _by_devices(f"scale-{method}{on}") for on in ("cpu", "gpu")}
    gpu = read(f"scale-{method}gpu")["machine"]["device"].removeprefix("NVIDIA ")
    head = ["2 CPU cores: µs/device", "peak GiB", "compile s", f"{gpu}: µs/device", "GPU GiB", "compile s"]
    lines = []
    for devices in sorted({*found["cpu"], *found["gpu"]}):
        cpu = _cells(found["cpu"].get(devices), "peak_GiB")
        lines.append([f"{devices:,}", *cpu, *_cells(found["gpu"].get(devices), "gpu_peak_GiB")])
    return table(["devices", *head], lines)


def _by_devices(name: str) -> dict[int, dict[str, Any]]:
    rows = read(name)["rows"] if (RESULTS / f"{name}.json").is_file() else []
    return {row["devices"]: row for row in rows}


def _cells(row: dict[str, Any] | None, memory: str) -> list[str]:
    if row is None:
        return ["–"] * 3
    return [f"{row['us_per_device']:.3g}", f"{row[memory]:.2f}", f"{row['compile_s']:.1f}"]


def asking() -> str:
    """Ranking everything for everybody, and loading a large log."""
    found, load = read("evaluation-cpu")["runners"], read("load-cpu")
    product, plain, rank, top = (
        found[name]
        for name in (
            "JAX product + top 10",
            "NumPy product + top 10",
            "Tacit, rank of every target",
            "Tacit, top 10 for everybody",
        )
    )
    base = f"one JAX product of that shape and its top 10 ({product['ms']:.0f} ms; NumPy {plain['ms']:.0f} ms)"
    one = "rank every user's left-out item among all 3,706 items of MovieLens-1M, adapting each vector first"
    other = "the ten best unseen items for every user, ties in random order"
    size = f"{load['events'] / 1e6:.0f} million events from Parquet: {load['users']:,} users, {load['items']:,} items"
    peak = f"peak {load['peak_GiB']:.1f} GiB, of which {load['peak_before_GiB']:.1f} is the libraries'"
    lines = [
        [one, f"{rank['ms']:.0f} ms", f"{1 / rank['times_faster']:.1f} times {base}", "≤ 2"],
        [other, f"{top['ms']:.0f} ms", f"{1 / top['times_faster']:.1f} times", "reported"],
        [f"load {size} (`python benchmarks/load.py`)", f"{load['seconds']:.0f} s", peak, "bounded"],
    ]
    return table(["what", "measured", "against", "target"], lines)


BLOCKS = kept(
    "docs/speed.md",
    {
        "races": ("python benchmarks/speed.py", races),
        "sizes": ("python benchmarks/scale.py", sizes),
        "sizes of seqmf": ("python benchmarks/scale.py --method seqmf", partial(sizes, "seqmf-")),
        "asking": ("python benchmarks/evaluation.py", asking),
    },
)
