"""The blocks of docs/fedseqrec.md; `python benchmarks/pages.py` fills them."""

from functools import partial
from typing import Any

from pages import RESULTS, kept, part, read, reproduced, table

from tacit_papers import paper

NAME = "reproduce-fedseqrec"


def made(*kinds: str) -> list[dict[str, Any]]:
    """The tables or figures there are."""
    parts = read(NAME)["parts"] if (RESULTS / f"{NAME}.json").is_file() else []
    return [one for one in parts if one["name"].startswith(kinds)]


def tables() -> str:
    """Tables 2 to 4, the paper's numbers in brackets."""
    return "\n".join(part(one) for one in made("table"))


def figures() -> str:
    """Figures 5 to 10: those that compare a few as tables, curves point by point; and what has not been run yet."""
    drawn = [part(one, 2) for one in made("figure")]
    missing = [
        name for name in paper("fedseqrec").PARTS if name not in {one["name"] for one in made("table", "figure")}
    ]
    words = [f"Not run here yet: {', '.join(missing)} (`tacit reproduce fedseqrec --part NAME`).\n"] if missing else []
    return "\n".join([*drawn, *words])


def weights() -> str:
    """How much each recipe gains on averaging, world by world."""
    found = read("fedseqrec-weights")
    worlds = list(dict.fromkeys((row["taste_gap"], row["activity_gap"]) for row in found["rows"]))
    cells = {(row["recipe"], row["taste_gap"], row["activity_gap"]): row for row in found["rows"]}
    recipes = list(dict.fromkeys(row["recipe"] for row in found["rows"]))
    head = ["MRR at taste, activity", *(f"{taste:g}, {activity:g}" for taste, activity in worlds)]
    lines = [[recipe, *(_gain(cells[recipe, *world]) for world in worlds)] for recipe in recipes]
    size = found["size"]
    words = (
        f"{size['users']} people in {size['silos']} organisations, {found['seeds']} seeds, {size['rounds']} rounds. "
    )
    return f"{words}A star: the interval of the difference from `average`, person by person, does not hold 0.\n\n{table(head, lines)}"


def _gain(row: dict[str, Any]) -> str:
    star = "" if row["gain"][1] <= 0 <= row["gain"][2] else " *"
    return f"{row['mrr'][0]:.4f} ({row['gain'][0]:+.4f}){star}"


def speed() -> str:
    """Epochs, memory and steps, machine by machine."""
    lines = []
    for platform in ("cpu", "gpu"):
        if not (RESULTS / f"fedseqrec-{platform}.json").is_file():
            continue
        found = read(f"fedseqrec-{platform}")
        on, epoch = found["machine"]["device"], found.get("epoch")
        if epoch:
            took = [f"{epoch[name]['ms']:.0f} ms" for name in ("central loop", "local epoch")]
            lines.append(
                [on, "an epoch: central loop, at home", ", ".join(took), f"{epoch['local over central']:.2f} ×"]
            )
        lines += [[on, *one] for one in _items(found.get("items", {}), platform)]
        for row in found.get("memory", ()):
            lines.append(
                [on, f"{row['people']:,.0f} people, 20 steps", f"{row['seconds']:.1f} s", f"{row['GiB']:.2f} GiB"]
            )
        for row in found.get("step", ()):
            share = "–" if row["share of peak"] is None else f"{row['share of peak']:.1%} of peak"
            lines.append(
                [on, f"published size, {row['batch']} a step", f"{row['samples a second']:,.0f} samples/s", share]
            )
    return table(["machine", "what", "took", "and"], lines)


def _items(found: dict[str, Any], platform: str) -> list[list[str]]:
    """A step with items made each time and once: milliseconds, and how many times less of the processors that made it."""
    races = {name: race for name, race in found.items() if name != "log"}
    where = found.get("log", "").partition(",")[0]
    return [
        [
            f"a step of the published size, {where}, {name}: items each time, once",
            ", ".join(f"{race[way]['ms']:,.{0 if platform == 'cpu' else 1}f} ms" for way in ("each time", "once")),
            f"{race['once']['times_faster']:.1f} times faster"
            + (f", {race['once']['times_less_cpu']:.1f} times less CPU" if platform == "cpu" else ""),
        ]
        for name, race in races.items()
    ]


def words() -> str:
    """NDCG@10 round by round, with longer hashed words and shorter."""
    found = read("fedseqrec-cpu")["words"]
    ways = {name: way for name, way in found.items() if isinstance(way, dict)}
    rounds = range(1, 1 + max(len(way["NDCG@10"]) for way in ways.values()))
    lines = [
        [name, f"{way['length']:.1f}", *(f"{value:.1f}" for value in way["NDCG@10"])] for name, way in ways.items()
    ]
    return table(["hashed words", "length", *(f"round {number}" for number in rounds)], lines)


RUN = f"tacit reproduce fedseqrec --out benchmarks/results/{NAME}.json"
BLOCKS = kept(
    "docs/fedseqrec.md",
    {
        "tables": (RUN, tables),
        "figures": (RUN, figures),
        "paper": (
            f"tacit reproduce fedseqrec --size paper --out benchmarks/results/{NAME}-paper.json",
            partial(reproduced, f"{NAME}-paper"),
        ),
        "weights": ("python benchmarks/fedseqrec_weights.py --jobs 16", weights),
        "speed": ("python benchmarks/fedseqrec.py", speed),
        "words": ("python benchmarks/fedseqrec.py", words),
    },
)
