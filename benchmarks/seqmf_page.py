"""The blocks of docs/seqmf.md; `python benchmarks/pages.py` fills them. The results are kept in several runs:

tacit reproduce seqmf --part table1 --part table2 --part figure4 --out three-seeds.json
tacit reproduce seqmf --part table1 --data apps-weak --out weak.json
tacit reproduce seqmf --part figure2 --part figure3 --part figure5 --part figure6 --part cost --seeds 1 --out one-seed.json
python benchmarks/seqmf_cold.py
python benchmarks/seqmf_page.py three-seeds.json weak.json one-seed.json

Files that are named take the place of the same parts in results/reproduce-seqmf.json.
"""

import json
import re
import sys
from pathlib import Path

from pages import RESULTS, kept, read, reproduced, span, table


def merge(files: list[str]) -> None:
    """Put the parts of some runs in the place of the same parts, measured on the same data."""
    found = read("reproduce-seqmf")
    parts = {_which(part): part for part in found["parts"]}
    for file in files:
        parts |= {_which(part): part for part in json.loads(Path(file).read_text(encoding="utf-8"))["parts"]}
    text = json.dumps({**found, "parts": list(parts.values())}, indent=1, ensure_ascii=False)
    (RESULTS / "reproduce-seqmf.json").write_text(f"{text}\n", encoding="utf-8")


def _which(part: dict) -> tuple[str, str, str]:
    return part["name"], part["title"], part["data"]


# ---- people who are new ----


def depth() -> str:
    """HR@5 by how much a person has done, one table for each world."""
    found, parts = read("seqmf-cold")["depth"], []
    for world in dict.fromkeys(label.partition(":")[0] for label in found):
        columns = {label.partition(": ")[2]: rows for label, rows in found.items() if label.startswith(f"{world}:")}
        names = list(next(iter(columns.values())))
        lines = [[name, *(span(rows[name]["HR@5"]) for rows in columns.values())] for name in names]
        parts.append(f"**{world}** (synthetic)\n\n{table(['HR@5', *(_after(at) for at in columns)], lines)}\n")
    return "\n".join(parts)


def _after(at: str) -> str:
    unit, count = at.split()
    return f"{count} {unit.removesuffix('s') if count == '1' else unit}"


def kept_share() -> str:
    """The share of the gain in a first session that is left when reports are private."""
    found = read("seqmf-cold")["kept"]
    epsilons = list(next(iter(found.values()))["share kept"])
    lines = []
    for label, one in found.items():
        world, people = label.split()
        shares = [f"{100 * one['share kept'][epsilon]:.0f} %".replace("-", "−") for epsilon in epsilons]
        lines.append([world, f"{int(people):,}", f"{one['gain']:+.3f}", *shares])
    return table(["log", "people", "gain in HR@5 without noise", *(f"kept at ε = {e}" for e in epsilons)], lines)


def recipes() -> str:
    """Every recipe tried, in a first session."""
    ((where, found),) = read("seqmf-cold")["recipes"].items()
    ordered = sorted(found.items(), key=lambda pair: -pair[1]["HR@5"][0])
    return f"{table([f'recipe ({where})', 'HR@5'], [[name, span(one['HR@5'])] for name, one in ordered])}\n"


def italy() -> str:
    """Types of places in six Italian cities."""
    found = read("seqmf-cold")["italy"]["types of places"]
    columns = {name: rows for name, rows in found.items() if isinstance(rows, dict)}
    names = list(next(iter(columns.values())))
    lines = [[name, *(span(rows[name]["HR@5"]) for rows in columns.values())] for name in names]
    heads = [name if name == "newest fifth" else f"new, after {_after(name)}" for name in columns]
    return f"{found['people']:,} people, {found['types']} types of places.\n\n{table(['HR@5', *heads], lines)}\n"


# ---- the paper ----


def tables() -> str:
    """HR at 1, 3 and 5 of every row, the paper's in brackets, and what the notes say."""
    parts = []
    for one in read("reproduce-seqmf")["parts"]:
        if one["name"] in ("table1", "table2"):
            columns = ("HR@1", "HR@3", "HR@5")
            lines = [[row, *(texts[column] for column in columns)] for row, texts in one["texts"].items()]
            notes = "\n".join(f"- {note}" for note in one["notes"])
            parts.append(f"**{one['title']}** ({one['data']})\n\n{table(['', *columns], lines)}\n\n{notes}\n")
    return "\n".join(parts)


def figures() -> str:
    """What the notes of Figures 3 to 6 say, and where each curve ends."""
    parts = []
    for one in read("reproduce-seqmf")["parts"]:
        if re.fullmatch(r"figure[3-6]", one["name"]) and "right" in one["title"]:
            lines = [[name, f"{points[-1][1]:+.3f}"] for name, points in one["series"].items()]
            notes = "\n".join(f"- {note}" for note in one["notes"])
            title = f"**{one['title']}** ({one['data']}), after the last cycle"
            parts.append(f"{title}\n\n{table(['', one['y']], lines)}\n\n{notes}\n")
    return "\n".join(parts)


def activity() -> str:
    """Figure 2: who is active in a cycle, in one line each."""
    found = [one for one in read("reproduce-seqmf")["parts"] if one["name"] == "figure2"]
    return "\n".join(f"- {one['title']} ({one['data']}): {one['notes'][0]}" for one in found)


def cost() -> str:
    """Section 4.3."""
    return reproduced("reproduce-seqmf", only=("cost",))


COLD, RUN = "python benchmarks/seqmf_cold.py", "tacit reproduce seqmf --out benchmarks/results/reproduce-seqmf.json"
BLOCKS = kept(
    "docs/seqmf.md",
    {
        "depth": (COLD, depth),
        "kept": (COLD, kept_share),
        "recipes": (COLD, recipes),
        "italy": (COLD, italy),
        "tables": (RUN, tables),
        "figures": (RUN, figures),
        "activity": (RUN, activity),
        "cost": (RUN, cost),
    },
)


if __name__ == "__main__":
    merge(sys.argv[1:])
