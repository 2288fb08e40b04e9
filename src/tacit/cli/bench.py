"""`tacit reproduce --all`: every plan on every log of the bench, under one protocol, saved row by row."""

from pathlib import Path

from tacit.cli.common import print_json

DEFAULT = Path("bench.json")
LIMIT = {"small": 300.0}  # seconds for a row, where no limit was named


def run_bench(
    data: list[str], plans: list[str], seeds: int, size: str, limit: float | None, out: Path | None, as_json: bool
) -> None:
    """Make the rows that the file does not hold, then print all of them, and what to use for what."""
    from tacit.lab.experiments.bench import BenchOptions, bench
    from tacit.lab.experiments.bench.tables import advice, bench_tables

    options = BenchOptions(tuple(data), tuple(plans), tuple(range(seeds)), size, limit or LIMIT.get(size), quiet=False)
    results = bench(options, out or DEFAULT).to_dict()
    if as_json:
        print_json(results)
    else:
        print(bench_tables(results["rows"]), advice(results["rows"]), f"kept in {out or DEFAULT}", sep="\n\n")
