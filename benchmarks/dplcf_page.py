"""The blocks of docs/dplcf.md; `python benchmarks/pages.py` fills them."""

import re
from collections.abc import Iterator

from pages import kept, read, table

RECIPES = ("raw", "clamp", "floor", "error", "bound", "expected")
TEST = "NDCG@10 sampled"
SEARCHED = re.compile(r"(.+): .+, the best of \d+ settings by ")
ORDER = re.compile(r"(D\d), (.+): (holds|does not hold) on (.+?); (.+)\.")


# ---- recipes ----


def worlds(result: dict) -> Iterator[tuple[int, dict, list[str]]]:
    """People, their rows, and every ε that is between nothing and no noise."""
    for people, rows in result.items():
        if people.isdigit():
            yield int(people), rows, [epsilon for epsilon in rows if epsilon != "inf"]


def recipes() -> str:
    """NDCG@10 among 99 sampled items by recipe, one table for each number of people."""
    parts = []
    for people, rows, epsilons in worlds(read("dplcf-recipes")):
        low, high = (f"{one[TEST][0]:.3f}" for one in (rows["inf"]["popularity"], rows["inf"]["truth"]))
        parts.append(f"**{people:,} people** (popularity {low}, the truth {high})\n")
        lines = [[epsilon, *_cells(rows[epsilon]), f"{rows[epsilon]['noise of a count']:,.0f}"] for epsilon in epsilons]
        parts.append(table(["ε", *RECIPES, "noise of a count"], lines) + "\n")
    return "\n".join(parts)


def _cells(cells: dict) -> list[str]:
    """The best in bold, and what does not differ from it in print."""
    best = max(f"{cells[name][TEST][0]:.3f}" for name in RECIPES)
    texts = [f"{cells[name][TEST][0]:.3f} ± {_half(cells[name][TEST]):.3f}" for name in RECIPES]
    return [f"**{text}**" if text.startswith(best) else text for text in texts]


def _half(span: list[float]) -> float:
    return (span[2] - span[1]) / 2


def needed() -> str:
    """How much of the way from popularity to the truth the shipped recipe goes."""
    found = list(worlds(read("dplcf-recipes")))
    lines = []
    for people, rows, epsilons in found:
        low, high = (rows["inf"][name][TEST][0] for name in ("popularity", "truth"))
        lines.append([f"{people:,}", *(_share(rows[e]["error"][TEST][0], low, high) for e in epsilons)])
    return table(["people", *(f"ε = {epsilon}" for epsilon in found[0][2])], lines)


def _share(value: float, low: float, high: float) -> str:
    return f"{100 * (value - low) / (high - low):.0f} %".replace("-", "−")


# ---- the paper ----


def ours() -> str:
    """HR@10 and NDCG@10 of every row at ε = 1, among 99 sampled items and among all; a table for each log."""
    parts = [one for one in read("reproduce-dplcf")["parts"] if one["name"] in ("table2", "table3", "table4", "table5")]
    columns = [(metric, way) for metric in ("HR@10", "NDCG@10") for way in ("of 100", "of all")]
    made = []
    for log in dict.fromkeys(one["data"] for one in parts):
        rows: dict[str, dict] = {}
        for one in parts:
            if one["data"] == log:
                _gather(rows, one)
        head = ["", *(f"{metric}, {way}" for metric, way in columns)]
        lines = [[name, *(_cell(cells[column]) for column in columns)] for name, cells in rows.items()]
        made.append(f"**{log}**\n\n{table(head, lines)}\n")
    return "\n".join(made)


def _gather(rows: dict[str, dict], part: dict) -> None:
    way = "of 100" if "99 sampled" in part["title"] else "of all"
    for name, cells in part["rows"].items():
        metric = "HR@10" if "HR@10" in cells else "NDCG@10"
        rows.setdefault(name, {})[metric, way] = cells[metric]


def _cell(cell: dict) -> str:
    return f"{cell['ours']:.3f} ± {_half([0, cell['low'], cell['high']]):.3f}"


def orders() -> str:
    """Every order of the paper with its verdict, as the notes of the tables by NDCG have it."""
    lines = []
    for one in read("reproduce-dplcf")["parts"]:
        if "NDCG" in one["title"] and "NDCG@5" not in one["title"]:
            found = (ORDER.fullmatch(note) for note in one["notes"])
            lines += [[order[1], order[2], order[4], order[3], order[5]] for order in found if order]
    return table(["order", "claim", "log", "verdict", "by"], sorted(lines))


def searched() -> str:
    """What was chosen for the central models, as the notes of the tables have it."""
    notes = [note for one in read("reproduce-dplcf")["parts"] for note in one["notes"] if SEARCHED.match(note)]
    return "\n".join(f"- {note}" for note in dict.fromkeys(notes))


RUN = "tacit reproduce dplcf --seeds 5 --out benchmarks/results/reproduce-dplcf.json"
BLOCKS = kept(
    "docs/dplcf.md",
    {
        "recipes": ("python benchmarks/dplcf_recipes.py", recipes),
        "needed": ("python benchmarks/dplcf_recipes.py", needed),
        "searched": (RUN, searched),
        "ours": (RUN, ours),
        "orders": (RUN, orders),
    },
)
