"""The blocks of docs/privrec.md; `python benchmarks/pages.py` fills them."""

import re
from functools import partial
from typing import Any

from pages import RESULTS, kept, parts_of, read, reproduced, table

MANY = 50_000  # people whose table is shown even where few recipes were run
OURS, RIVAL = "counts and tastes (dp-privrec)", "popularity"


def studies() -> list[dict[str, Any]]:
    """The results of every log, the one of real people first, then by people."""
    found = [read(file.stem) for file in RESULTS.glob("privrec-dp-*.json")]
    return sorted(found, key=lambda one: (one["data"] != "ml-1m", one["people"]))


def recipes() -> str:
    """Each log's Hits@10: a row a recipe, a column an ε."""
    shown = [one for one in studies() if max(map(len, one["rows"].values())) > 2 or one["people"] > MANY]
    return "\n\n".join(map(_recipes, shown))


def _recipes(one: dict[str, Any]) -> str:
    rows = one["rows"]
    epsilons = sorted((e for e in rows if e != "nothing sent"), key=float)
    names = list(dict.fromkeys(name for e in epsilons for name in rows[e]))
    alone = rows["nothing sent"]["untrained, adapted"]["Hits@10"][0]
    lines = [[name, *(_cell(rows[e].get(name)) for e in epsilons)] for name in names]
    lines.append(["untrained, adapted at home (nothing sent)", *[f"{alone:.4f}"] * len(epsilons)])
    head = ["Hits@10 at ε", *("∞" if e == "inf" else e for e in epsilons)]
    words = f"**{one['data']}**: {one['people']:,} people learn, {one['seeds']} seeds from {one['first seed']} on, δ = {one['delta']:.1e}."
    return f"{words}\n\n{table(head, lines)}"


def _cell(cell: dict[str, Any] | None) -> str:
    """A star where the interval of the gain on popularity, person by person, lies above 0."""
    if cell is None:
        return "–"
    mean, low, high = cell["Hits@10"]
    star = " *" if cell.get("Hits@10, less popularity", [0, 0, 0])[1] > 0 else ""
    return f"{mean:.4f} ± {(high - low) / 2:.4f}{star}"


def people() -> str:
    """What counts and tastes gain on counts of the same ε, by how many people learn."""
    found = [one for one in studies() if any(OURS in cells for cells in one["rows"].values())]
    epsilons = sorted({e for one in found for e in one["rows"] if e != "nothing sent"}, key=float)
    head = ["people", *(f"ε = {'∞' if e == 'inf' else e}" for e in epsilons)]
    return table(
        head,
        [[f"{one['people']:,} ({one['data'].split(',')[0]})", *(_gain(one, e) for e in epsilons)] for one in found],
    )


def _gain(one: dict[str, Any], epsilon: str) -> str:
    cells = one["rows"].get(epsilon, {})
    if OURS not in cells:
        return "–"
    base, (mean, low, high) = cells[RIVAL]["Hits@10"][0], cells[OURS]["Hits@10, less popularity"]
    sure = "" if low <= 0 <= high else " *"
    return f"{mean / base:+.0%}{sure}"


def stages() -> str:
    """Each log's Hits@10 by rounds of the first stage; a star where the interval of the gain lies above 0."""
    found = [read(file.stem) for file in sorted(RESULTS.glob("privrec-stages-*.json"))]
    return "\n\n".join(_stages(one) for one in found)


def _stages(one: dict[str, Any]) -> str:
    words = f"**{one['data']}**: {one['people']:,} people learn, {one['seeds']} seeds."
    lines = []
    for row in one["rows"]:
        (mean, low, high), (gain, least, most) = row["Hits@10"], row["gain on no stage 1"]
        star = " *" if least > 0 else ""
        less = (
            f"{gain:+.4f} ({least:+.4f} to {most:+.4f}){star}"
            if (row["stage 1"], row["rounds"]) != ("open", 0)
            else "–"
        )
        lines.append([row["stage 1"], str(row["rounds"]), f"{mean:.4f} ± {(high - low) / 2:.4f}", less])
    made = table(["stage 1", "rounds", "Hits@10", "less no stage 1"], lines)
    return "\n\n".join([words, made, " ".join(_shown(one["rows"], form) for form in ("open", "private"))])


def _shown(rows: list[dict[str, Any]], form: str) -> str:
    """What the intervals of the gains show: help, harm, or neither; and how many rounds that asks for."""
    gains = {row["rounds"]: row["gain on no stage 1"] for row in rows if row["stage 1"] == form and row["rounds"]}
    helps = [count for count, (_, low, _) in gains.items() if low > 0]
    harms = [count for count, (_, _, high) in gains.items() if high < 0]
    words = f"shown to help at {_listed(helps)} rounds" if helps else "not shown to help at any number of rounds"
    also = f", and shown to hurt at {_listed(harms)}" if harms else ""
    return f"A first stage that is {form} is {words}{also}."


def _listed(counts: list[int]) -> str:
    return " and ".join(", ".join(map(str, counts)).rsplit(", ", 1))


def speed() -> str:
    """A round in each way, beside a script that goes step by step; then the engine's own round of more people."""
    one, fast = read("privrec-cpu"), read("privrec-gpu")
    lines = [
        [way, *_pace(found), *(_pace(fast["race"][way]) if way in fast["race"] else ["–"] * 3)]
        for way, found in one["race"].items()
    ]
    words = f"{one['devices']} people, {one['samples']} samples each, {one['epochs']} epochs, {one['items']:,} items; two cores of a CPU, and one {fast['machine']['device']}."
    head = ["way", *(f"{where}: {what}" for where in ("CPU", "GPU") for what in ("ms", "devices/s", "times faster"))]
    return "\n\n".join([words, table(head, lines), _engine()])


def _pace(found: dict[str, float]) -> list[str]:
    return [f"{found['ms']:,.1f}", f"{found['devices_per_second']:,.0f}", f"{found['times_faster']:.1f}"]


def _engine() -> str:
    """A round of everybody as `simulate` plays it, bound and noise included."""
    base = read("privrec-cpu")["race"]["own rows, side by side (vmap)"]["devices_per_second"]
    lines = []
    for name in ("cpu", "gpu"):
        if (RESULTS / f"scale-privrec-{name}.json").is_file():
            made = read(f"scale-privrec-{name}")
            lines += [[made["machine"]["device"], *_crowd(row, base)] for row in made["rows"]]
    head = ["on", "people in the round", "seconds", "devices/s", "of 30 people on the CPU", "peak GiB", "of the GPU"]
    return table(head, lines)


def _crowd(row: dict[str, float], base: float) -> list[str]:
    held = f"{row['gpu_peak_GiB']:.2f}" if row["gpu_peak_GiB"] else "–"
    rate = row["devices_per_s"]
    return [
        *(f"{row['devices']:,}", f"{row['round_s']:.3g}", f"{rate:,.0f}", f"{rate / base:.1f} times"),
        *(f"{row['peak_GiB']:.2f}", held),
    ]


def orders() -> str:
    """Which of the paper's orders hold, in the small size and in the paper's; Figures 4 and 5 have a section of their own."""
    lines = []
    for size, name in (("small", "reproduce-privrec"), ("paper", "reproduce-privrec-paper")):
        for one in (one for one in parts_of(name) if one["name"] not in ("figure4", "figure5")):
            notes = [note for note in one["notes"] if re.match(r"R\d.* (holds|hold):", note)]
            lines += [[_part(one["title"]), size, note] for note in notes]
    return table(["part", "size", "order"], sorted(lines))


def _part(title: str) -> str:
    """Table 3, or Figure 7; with what its log stands for, where it does."""
    return title.partition(":")[0] + "".join(re.findall(r" \[.*\]$", title))


RUN = "tacit reproduce privrec --out benchmarks/results/reproduce-privrec.json"
PAPER = "tacit reproduce privrec --size paper --out benchmarks/results/reproduce-privrec-paper.json"
BLOCKS = kept(
    "docs/privrec.md",
    {
        "speed": ("python benchmarks/privrec.py", speed),
        "stages": ("python benchmarks/privrec_stages.py --jobs 16", stages),
        "recipes": ("python benchmarks/privrec_dp.py --jobs 3", recipes),
        "people": ("python benchmarks/privrec_dp.py --jobs 3", people),
        "noise": (RUN, partial(reproduced, "reproduce-privrec", 4, ("figure4", "figure5"))),
        "budgets": (RUN, partial(reproduced, "reproduce-privrec", 4, ("figure6", "figure7"))),
        "frappe": (RUN, partial(reproduced, "reproduce-privrec", 3, ("table3",))),
        "orders": (RUN, orders),
        "paper": (PAPER, partial(reproduced, "reproduce-privrec-paper")),
    },
)
