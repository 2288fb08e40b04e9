"""The blocks of docs/bench.md; `python benchmarks/pages.py` fills them."""

from collections import Counter
from typing import Any

from pages import kept, read

from tacit.lab.experiments.bench.rows import LOGS
from tacit.lab.experiments.bench.tables import advice, bench_tables
from tacit.lab.plans.loader import plan_names


def made_with() -> str:
    """How much there is, and what it was made on."""
    results = read("bench")
    rows = results["rows"]
    numbers = [row for row in rows if "metrics" in row]
    seeds = sorted({row["seed"] for row in rows})
    wanted = len(plan_names()) * len(LOGS) * len(seeds)
    rest = f" {wanted - len(rows)} of {wanted} have not been run yet." if len(rows) < wanted else ""
    return (
        f"Size {results['size']}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}; "
        f"{len(numbers)} rows with numbers, {len(rows) - len(numbers)} that say why not.{rest} "
        f"Made on {' and '.join(machines(rows))}, shared with other work.\n"
    )


def machines(rows: list[dict[str, Any]]) -> list[str]:
    """Each machine with how many rows it made, in words."""
    made = Counter("{device}, cores {cores}, JAX {jax}".format_map(row["machine"]) for row in rows)
    return [f"{machine} ({count} rows)" for machine, count in made.most_common()]


MADE = "tacit reproduce --all --out benchmarks/results/bench.json"
PARTS = {
    "advice": (MADE, lambda: advice(read("bench")["rows"])),
    "made with": (MADE, made_with),
    "tables": (MADE, lambda: bench_tables(read("bench")["rows"])),
}
BLOCKS = kept("docs/bench.md", PARTS)
