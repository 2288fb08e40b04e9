"""The blocks of docs/deploy.md: what comes of killing, and what a round costs; `python benchmarks/pages.py` fills them.

The scripts that measure fill the page themselves when they end.
"""

from typing import Any

from pages import fill, kept, read, table

KILLED = {
    "killed with −9": "killed",
    "by hand": "by hand",
    "seconds until two more rounds were closed": "seconds for two rounds",
    "Flower runs given up": "runs given up by Flower",
    "reports in each round": "reports",
    "lines in each ledger": "lines in each ledger",
}
COSTS = [
    "nodes",
    "people",
    "first round",
    "a round",
    "the simulator's",
    "up",
    "down",
    "a node: Tacit",
    "a node: SuperNode",
]


def faults() -> str:
    """What was killed, and what came of it."""
    found = read("faults")
    rows = found["faults"]
    same = sum(row["as the simulator"] for row in rows)
    return (
        f"{table([*KILLED], [[_cell(row[name]) for name in KILLED.values()] for row in rows])}\n\n"
        f"Four rounds over two nodes of one and eight people, on {_machine(found['cores'], rows)}. In {same} of {len(rows)} cases "
        "the parameters end where the simulator's do with the same keys."
    )


def numbers() -> str:
    """What a round costs."""
    found = read("deploy")
    rows = found["rows"]
    most = max(row["largest_difference"] for row in rows)
    return (
        f"{table(COSTS, [_costs(row) for row in rows])}\n\n"
        f"Over {found['machine']['transport']}, on {_machine(found['machine']['cores'], rows)}. Where the parameters end differs "
        f"from the simulator by at most {most:.0e}."
    )


def soak() -> str:
    """What a long run costs, round by round."""
    found = read("soak")
    heads = [
        "nodes",
        "rounds",
        "a round",
        "SuperLink, CPU a round",
        "server, CPU a round",
        "SuperLink, memory",
        "run folder grows by",
    ]
    rows = [
        [
            f"{row['nodes']}",
            f"{row['rounds']}",
            f"{row['seconds']:.1f} s",
            f"{1e3 * row['link_cpu']:.0f} ms",
            f"{1e3 * row['server_cpu']:.0f} ms",
            " → ".join(f"{size:.0f} MB" for size in row["link_mb"]),
            f"{row['bytes']:.0f} B",
        ]
        for row in found["rows"]
    ]
    return f"{table(heads, rows)}\n\nOver loopback, no TLS, on {_machine(found['cores'], found['rows'])}."


def _costs(row: dict[str, Any]) -> list[str]:
    memory = row["memory_mb"]
    return [
        f"{row['nodes']}",
        f"{row['people']:,}",
        f"{row['first_round_seconds']:.1f} s",
        f"{row['round_seconds']:.1f} s",
        f"{1e3 * row['simulator_round_seconds']:.1f} ms",
        f"{row['bytes_up']:,} B",
        f"{row['bytes_down']:,} B",
        f"{memory['answering_process']:.0f} MB",
        f"{memory['supernode']:.0f} MB",
    ]


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _machine(cores: int, rows: list[dict[str, Any]]) -> str:
    """How busy the machine was: with a load far above its cores, seconds are an order of magnitude."""
    load = [row["load_average"] for row in rows]
    return f"{cores} cores with a load average of {min(load):.0f} to {max(load):.0f}"


BLOCKS = kept(
    "docs/deploy.md",
    {
        "faults": ("python benchmarks/deploy_faults.py", faults),
        "soak": ("python benchmarks/deploy_soak.py", soak),
        "numbers": ("python benchmarks/deploy.py", numbers),
    },
)


def fill_page() -> None:
    """The page, as the results are now."""
    fill(BLOCKS)
