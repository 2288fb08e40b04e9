"""The blocks of docs/fpl.md and of docs/speed.md that are about FPL; `python benchmarks/pages.py` fills them."""

from functools import partial
from typing import Any

import numpy as np
from pages import RESULTS, Picture, kept, read, reproduced, table

from tacit.device.method import revealed

ON = {"fpl-cpu": "CPU", "fpl-gpu": "GPU"}
BLIND = ("chance", "popularity")  # what is guessed without a message
MESSAGES = 100
ENDLESS = 512  # where ∞ stands on the picture's axis
SHOWN = ("F1@10 of the lists", "best attack's F1")


def by_log() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """log -> variant -> a row a seed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in read("fpl-privacy")["rows"]:
        found.setdefault(row["log"], {}).setdefault(row["name"], []).append(row)
    return found


def _f1(rows: list[dict[str, Any]]) -> str:
    return f"{np.mean([row['metrics']['F1@10'] for row in rows]):.4f}"


def _attack(rows: list[dict[str, Any]], name: str, *parts: str) -> str:
    """What an attack reached after the most messages it was given, seed by seed, on average."""
    mine = [[one for one in row["attacks"] if one["attack"] == name and one["rounds"] <= MESSAGES] for row in rows]
    last = [max(ones, key=lambda one: one["rounds"]) for ones in mine if ones]
    return ", ".join(f"{np.mean([one[part] for one in last]):.3f}" for part in parts) if last else "–"


def withheld() -> str:
    """What π hides, and what is found all the same."""
    lines = []
    for log, variants in by_log().items():
        for name, rows in variants.items():
            if name.startswith("pFPL"):
                sign = _attack(rows, "sign", "precision", "recall")
                inversion = _attack(rows, "inversion", "precision", "recall", "f1")
                popular = _attack(rows, "popularity", "f1")
                lines.append([log, name.removeprefix("pFPL, "), _f1(rows), sign, inversion, popular])
    head = [
        "log",
        "what is shown",
        "F1@10 of the lists",
        "sign: precision, recall",
        "inversion: precision, recall, F1",
        "popular items' F1",
    ]
    return table(head, lines)


def protects() -> str:
    """Every variant on every log: what is promised, what is left, what is found."""
    lines = []
    for log, variants in by_log().items():
        for name, rows in variants.items():
            epsilon = "∞" if rows[0]["epsilon"] in (float("inf"), "inf", None) else f"{rows[0]['epsilon']:g}"
            kept = "nothing" if epsilon == "∞" else f"{rows[0]['unit']}, {rows[0]['trust']}"
            lines.append([log, name, epsilon, kept, _f1(rows), _best(rows), str(len(rows))])
    return table(["log", "variant", "ε", "unit, trusted", "F1@10", "best attack's F1", "seeds"], lines)


def _best(rows: list[dict[str, Any]]) -> str:
    best = [max((one["f1"] for one in row["attacks"] if one["attack"] not in BLIND), default=None) for row in rows]
    found = [one for one in best if one is not None]
    return f"{np.mean(found):.3f}" if found else "–"


def points(logs: tuple[str, ...]) -> list[dict[str, Any]]:
    """What the picture shows: of each variant its quality, and what the best attack finds; no promise stands at ∞."""
    made = []
    for log in logs:
        for name, rows in by_log()[log].items():
            promised = rows[0]["epsilon"] not in (float("inf"), "inf", None)
            way = name.split(",")[0] + (f", ε per {rows[0]['unit']}" if promised else "")
            about = {
                "log": log,
                "way": way,
                "variant": name,
                "order": rows[0]["epsilon"] if promised else ENDLESS,
            }
            quality = float(np.mean([row["metrics"]["F1@10"] for row in rows]))
            made += [{**about, "what": SHOWN[0], "value": quality}] if name != "Top-Pop" else []
            made += [{**about, "what": SHOWN[1], "value": float(_best(rows))}] if _best(rows) != "–" else []
    return made


def picture(logs: tuple[str, ...] = ("ml-1m", "foursquare-italy")) -> Any:
    """Privacy against quality, and against what attacks find, a column for each log; the dashed line is Top-Pop."""
    import altair as alt

    shown, columns = points(logs), []
    x = alt.X("order:Q", title="ε", scale=alt.Scale(type="log", domain=[1.5, 1.4 * ENDLESS]))
    x = x.axis(values=[2, 8, 32, 128, ENDLESS], labelExpr=f"datum.value >= {ENDLESS} ? '∞' : datum.label", grid=False)
    color = alt.Color("way:N", title=None, scale=alt.Scale(scheme="category10"))
    for log in logs:
        popular = float(_f1(by_log()[log]["Top-Pop"]))
        for what in SHOWN:
            data = alt.Data(values=[one for one in shown if (one["log"], one["what"]) == (log, what)])
            base = alt.Chart(data).encode(x=x, y=alt.Y("value:Q", title=what), color=color, tooltip="variant:N")
            line = base.mark_line(strokeWidth=1, opacity=0.5).transform_filter(f"datum.order < {ENDLESS}")
            layers = [line, base.mark_point(filled=True, size=60, opacity=0.9)]
            layers += (
                [alt.Chart().mark_rule(strokeDash=[4, 4]).encode(y=alt.datum(popular))] if what == SHOWN[0] else []
            )
            columns.append(alt.layer(*layers).properties(width=300, height=180, title=log))
    grid = alt.vconcat(alt.hconcat(*columns[::2]), alt.hconcat(*columns[1::2]))
    return grid.configure_legend(orient="bottom", labelFontSize=12).configure(background="white")


def _revealed() -> dict[str, Any]:
    found = revealed("fpl")
    assert found is not None
    return found


def shares() -> str:
    """What each share shows in the open, what is found all the same, and what is found of items never shared."""
    lines = [
        [
            row["log"],
            f"{row['pi']:g}",
            f"{row['shown']:.3f}",
            f"{row['found']:.3f} ({row['attack']})",
            f"{row['popular']:.3f}",
        ]
        for row in _revealed()["rows"]
    ]
    head = ["log", "π", "shown in the open", "found by the best attack", "popular items, guessed blindly"]
    columns = {
        "found": "never shared: found",
        "found_of_the_rest": "the rest: found",
        "ranked": "ranked above an item not had",
        "popular": "... by popularity alone",
        "F1@10": "F1@10 of the lists",
        "F1@10, all shared": "... where all is shared",
    }
    kept = [[row["log"], *(f"{row[name]:.3f}" for name in columns)] for row in _revealed()["never"]]
    never = ["log", *columns.values()]
    return f"{table(head, lines)}\n\n{table(never, kept)}"


def share_picture() -> str:
    """How much of what a person has is shown, found and guessed, against π, a panel for each log; as SVG."""
    import vl_convert

    ways = {"found": "found by the best attack", "shown": "shown in the open", "popular": "popular items, guessed"}
    points = [
        {"log": row["log"], "pi": row["pi"], "way": words, "value": row[name]}
        for row in _revealed()["rows"]
        for name, words in ways.items()
    ]
    points += [
        {"log": row["log"], "pi": 1.0, "way": "of items never shared, found", "value": row["found"]}
        for row in _revealed()["never"]
    ]
    colour = {
        "field": "way",
        "type": "nominal",
        "title": None,
        "sort": [*ways.values()],
        "legend": {"orient": "bottom", "labelLimit": 300},
    }
    value = {
        "field": "value",
        "type": "quantitative",
        "title": "share of a person's items",
        "scale": {"domain": [0, 1]},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": points},
        "background": "white",
        "facet": {"column": {"field": "log", "type": "nominal", "title": None, "sort": None}},
        "spec": {
            "width": 300,
            "height": 200,
            "mark": {"type": "line", "point": {"size": 50}},
            "encoding": {"x": {"field": "pi", "type": "quantitative", "title": "π"}, "y": value, "color": colour},
        },
    }
    return vl_convert.vegalite_to_svg(spec)


def people() -> str:
    """F1@10 of what protects, beside Top-Pop, among more and more people."""
    found: dict[int, dict[str, list[float]]] = {}
    rows = [row for path in RESULTS.glob("fpl-people-*.json") for row in read(path.stem)["rows"]]
    for row in sorted(rows, key=lambda row: row["people"]):
        found.setdefault(row["people"], {}).setdefault(row["name"], []).append(row["F1@10"])
    names = list(next(iter(found.values())))
    lines = [[f"{count:,}", *(f"{np.mean(ways[name]):.4f}" for name in names)] for count, ways in found.items()]
    return table(["people", *names], lines)


def epochs() -> str:
    """An epoch beside one of `implicit`, on one core and on two."""
    lines = []
    for one in read("fpl-cpu")["epoch"]:
        them, us = one["implicit"], one["pFPL"]
        both = (f"{them[unit]:.0f} / {us[unit]:.0f}" for unit in ("ms", "cpu_ms"))
        ratios = (f"{us[ratio]:.2f}" for ratio in ("times_faster", "times_less_cpu"))
        lines.append([str(one["threads"]), *both, *ratios, f"{one['load']:.1f}"])
    head = [
        "threads",
        "ms, implicit / pFPL",
        "ms of CPU, the least",
        "times faster",
        "times less CPU",
        "load of the machine",
    ]
    return f"{table(head, lines)}\n\n{_verdict()}"


def _verdict() -> str:
    parts = []
    for one in read("fpl-cpu")["epoch"]:
        met = "is met" if one["pFPL"]["times_faster"] >= 1 else "is not met"
        parts.append(f"{met} with {one['threads']} thread{'s' if one['threads'] > 1 else ''}")
    return f"The target, no slower, {'; it '.join(parts)}."


def alone() -> str:
    """Rounds of one device a second, and a minute."""
    lines = []
    for name, where in ON.items():
        found = read(name)["alone"]["rounds_per_second"]
        lines.append([where, f"{found:,.0f}", f"{60 * found:,.0f}"])
    return table(["sFPL", "rounds a second", "a minute"], lines)


def scale() -> str:
    """A round of everybody, one pair each."""
    heads = ["devices", "ms a round", "µs a device", "peak GiB", "compile s"]
    lines = [
        [
            f"{row['devices']:,}",
            f"{1e3 * row['round_s']:,.1f}",
            f"{row['us_per_device']:.2f}",
            f"{row['peak_GiB']:.2f}",
            f"{row['compile_s']:.1f}",
        ]
        for row in read("fpl-cpu")["scale"]
    ]
    return table(heads, lines)


PRIVACY, SPEED = "python benchmarks/fpl_privacy.py", "python benchmarks/fpl.py"
RUN = "tacit reproduce fpl --out benchmarks/results/reproduce-fpl.json"
BLOCKS = [
    *kept(
        "docs/fpl.md",
        {
            "shares": (f"{PRIVACY} --shares", shares),
            "withheld": (PRIVACY, withheld),
            "protects": (PRIVACY, protects),
            "people": (f"{PRIVACY} --people 500 2000 8000", people),
            "beside": (RUN, partial(reproduced, "reproduce-fpl", 4)),
            "epochs": (SPEED, epochs),
            "alone": (SPEED, alone),
        },
    ),
    *kept("docs/speed.md", {"scale": (SPEED, scale), "epochs": (SPEED, epochs)}),
]
PICTURES = [
    Picture("fpl-privacy.svg", PRIVACY, lambda path: picture().save(path)),
    Picture("fpl-share.svg", f"{PRIVACY} --shares", lambda path: path.write_text(share_picture(), encoding="utf-8")),
]
