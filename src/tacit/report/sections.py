"""Results section: a table, privacy against quality, intervals, rounds, user groups, bytes and time."""

from typing import Any

from tacit.report import charts as draw
from tacit.report.formatting import (
    Dossier,
    bytes_text,
    epsilon_text,
    metric_interval,
    number_text,
    primary_metric,
    privacy_level,
    seconds_text,
    sent_text,
    worst_verdict,
)
from tacit.report.html import Html, join_html, tag
from tacit.report.tradeoff import tradeoff_chart


class Charts:
    """The chart specifications of a page, by name, and the elements in which they are drawn."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}

    def place(self, name: str, spec: dict[str, Any], narrow: dict[str, Any] | None = None) -> Html:
        """The element of a chart; `narrow` is drawn instead on narrow screens."""
        self.specs[name] = spec
        if narrow is not None:
            self.specs[f"{name}-narrow"] = narrow
        return tag("div", cls="chart", data_chart=name, data_narrow=f"{name}-narrow" if narrow else None)


def figure_panel(title: str, drawing: Any, caption: Any, cls: str = "") -> Html:
    """A chart or a table with a title and a caption."""
    return tag("figure", tag("h3", title), drawing, tag("figcaption", caption), cls=cls or None)


def results_section(group: list[Dossier], charts: Charts, number: int, groups: int) -> Html:
    """The results of plans with the same evaluation on the same users."""
    metric = primary_metric(group)
    name = f"results-{number}" if number > 1 else "results"
    parts = [_setting(group), _legend(group), _summary(group)]
    if metric is not None:
        parts.append(_repeats(group, metric))
        drawn = [_tradeoff, _compared, _rounds, _groups] if len(group) > 1 else [_tradeoff, _rounds, _groups]
        parts += [section(group, metric, charts, number) for section in drawn]
    parts += [*_public_state(group, charts, number), _traffic(group, charts, number)]
    title = "Results" if groups == 1 else f"Results: {_where(group[0], number)}"
    return tag("section", tag("h2", title), *parts, id=name)


def _where(dossier: Dossier, number: int) -> str:
    protocol = dossier["protocol"] or {}
    return f"{dossier['data']['name'] or f'log {number}'}, {protocol.get('name', 'not evaluated')}"


def _setting(group: list[Dossier]) -> Html:
    data, protocol = group[0]["data"], group[0]["protocol"]
    people = f"{data['devices']:,} users, {data['items']:,} items, {data['events']:,} events"
    name = f"{data['name']}: " if data["name"] else ""
    words = [f"{name}{people}; half of the users have at least {data['median_history']:.0f} events."]
    if protocol:
        unit = f"one value for each of {protocol['units']:,} {protocol['by']}s"
        words.append(
            f"Evaluated as “{protocol['name']}”: {protocol['about']}. Ranked among {protocol['candidates']}; {unit}."
        )
        treatment = protocol.get("treatment", "")
        words += [f"{treatment[0].upper()}{treatment[1:]}."] if treatment else []
    alike = {name: value for name, value in group[0]["setting"].items() if name != "data" and _all(group, name, value)}
    words += [f"{', '.join(f'{name} {value}' for name, value in alike.items())}.".capitalize()] if alike else []
    notes = list(dict.fromkeys([*data["notes"], *(note for one in group for note in one["notes"])]))
    return join_html(
        tag("p", " ".join(words), cls="lead"),
        tag("p", "Notes: ", "; ".join(notes), ".", cls="notes") if notes else None,
    )


def _all(group: list[Dossier], name: str, value: Any) -> bool:
    return all(one["setting"].get(name) == value for one in group)


def _legend(group: list[Dossier]) -> Html:
    return tag(
        "p", *(tag("span", tag("i", cls=f"dot {one}"), words) for one, words in draw.colour_legend(group)), cls="legend"
    )


# ---- the table ----


def _summary(group: list[Dossier]) -> Html:
    metrics = list(dict.fromkeys(name for one in group for name in one["metrics"]))
    heads = ["plan", *metrics, "ε", "protects", "trusts", "sent per device", "time", "feasibility"]
    cells = [
        tag("th", head, scope="col", cls="number" if head in (*metrics, "ε", "sent per device", "time") else None)
        for head in heads
    ]
    rows = [_row(one, metrics) for one in group]
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="summary")
    words = (
        "Below each metric, half the width of its 95 % interval. ε is that of the whole run; “What is promised” "
        "explains it."
    )
    return tag("figure", tag("div", table, cls="scroll"), tag("figcaption", words))


def _repeats(group: list[Dossier], metric: str) -> Html:
    """Every plan under both treatments of repeats, where the target of a test case is an item that the user already has."""
    parts = group[0].get("parts") or []
    if not parts:
        return join_html()
    heads = [tag("th", "plan", scope="col")]
    heads += [tag("th", part["label"], tag("small", f"{part['cases']:,}"), scope="col", cls="number") for part in parts]
    rows = []
    for one in group:
        values = [tag("td", f"{part['metrics'][metric]:.3f}", cls="number") for part in one["parts"]]
        rows.append(tag("tr", tag("th", one["name"], scope="row"), *values))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), cls="repeats")
    words = (
        f"{metric} by how repeated items are treated, with the number of test cases. New items only: the user's own items are "
        "left out of the ranking, and such test cases are not evaluated. Repeats allowed: nothing is left out."
    )
    return tag("figure", tag("div", table, cls="scroll"), tag("figcaption", words))


def _row(one: Dossier, metrics: list[str]) -> Html:
    whole = one["whole"]
    name = tag("th", tag("i", cls=f"dot {privacy_level(one)}"), one["name"], scope="row")
    numbers = [tag("td", *_metric(one, metric), cls="number") for metric in metrics]
    epsilon = tag("td", epsilon_text(whole["epsilon"]), cls="number epsilon")
    nothing = privacy_level(one) == "home"
    words = [tag("td", "–" if nothing else whole["unit"]), tag("td", "–" if nothing else whole["trust"])]
    cost = [tag("td", text, cls="number") for text in (sent_text(one), seconds_text(one["seconds"]))]
    return tag("tr", name, *numbers, epsilon, *words, *cost, tag("td", _verdict(one)))


def _metric(one: Dossier, metric: str) -> list[Any]:
    if metric not in one["metrics"]:
        return ["–"]
    mean, low, high = metric_interval(one, metric)
    return [f"{mean:.3f}", tag("small", f"± {(high - low) / 2:.3f}") if high > low else None]


def _verdict(one: Dossier) -> Html:
    word = worst_verdict(one)
    return tag("span", word, cls=f"verdict {word.split()[0]}")


# ---- the charts ----


def _tradeoff(group: list[Dossier], metric: str, charts: Charts, number: int) -> Html:
    place = charts.place(f"tradeoff-{number}", tradeoff_chart(group, metric), tradeoff_chart(group, metric, width=290))
    strips = any(one["reach"] for one in group)
    words = [
        f"{metric} upwards, the privacy loss ε of the whole run to the right. Best is top left. "
        "Plans that send nothing are at 0, plans without a finite ε at ∞. ",
        "The dotted line is random guessing. "
        if any(one["plan"]["stage"][-1]["method"] == "random" for one in group)
        else None,
        "An ε can be compared with another only where unit and trust are the same. ",
        "The strips show the predicted ε from which on learning is feasible for this many users." if strips else None,
    ]
    return figure_panel("Privacy against quality", place, words, "wide")


def _compared(group: list[Dossier], metric: str, charts: Charts, number: int) -> Html:
    by = (group[0]["protocol"] or {}).get("by", "user")
    words = (
        f"Lines are 95 % bootstrap intervals over {by}s. Plans whose lines overlap may still differ: the same {by}s were "
        "evaluated."
    )
    return figure_panel(
        f"{metric} of every plan",
        charts.place(
            f"compared-{number}",
            draw.comparison_chart(group, metric),
            draw.comparison_chart(group, metric, narrow=True),
        ),
        words,
    )


def _rounds(group: list[Dossier], metric: str, charts: Charts, number: int) -> Html | None:
    spec = draw.chart_by_round(group, metric)
    if spec is None:
        return None
    words = (
        "Evaluated during the run. A curve that still rises would gain from more rounds; under a finite ε, more rounds need "
        "more noise."
    )
    return figure_panel(f"{metric} round by round", charts.place(f"rounds-{number}", spec), words)


def _public_state(group: list[Dossier], charts: Charts, number: int) -> list[Html]:
    """A public number that the server adapts from round to round, such as the clipping bound."""
    names = dict.fromkeys(name for one in group for row in one["rounds"] for name in row.get("public_state", {}))
    words = "Public state: a number that is broadcast to every device, and that the server adapts from what it has released."
    drawn = [(name, spec) for name in names if (spec := draw.chart_of_public_state(group, name)) is not None]
    return [
        figure_panel(f"{name} round by round", charts.place(f"state-{name}-{number}", spec), words)
        for name, spec in drawn
    ]


def _groups(group: list[Dossier], metric: str, charts: Charts, number: int) -> Html | None:
    made = draw.charts_by_group(group, metric)
    if not made:
        return None
    cells = [
        tag(
            "div",
            tag("h4", tag("i", cls=f"dot {privacy_level(one)}"), one["name"]),
            charts.place(f"groups-{number}-{i}", spec),
        )
        for i, (one, spec) in enumerate(made)
    ]
    others = "; the other plans are faint behind" if len(made) > 1 else ""
    words = f"{metric} for users with few events, left, to many, right, in groups of nearly equal size{others}."
    return figure_panel("Results by length of history", tag("div", *cells, cls="multiples"), words, "wide")


def _traffic(group: list[Dossier], charts: Charts, number: int) -> Html:
    spec = draw.traffic_chart(group) if len(group) > 1 else None
    heads = ("plan", "rounds", "sent", "received", "reports per second", "time in rounds", "time in all")
    cells = [tag("th", head, scope="col", cls="number" if head != "plan" else None) for head in heads]
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *(_cost(one) for one in group)))
    drawing = join_html(
        charts.place(f"bytes-{number}", spec, draw.traffic_chart(group, narrow=True)) if spec else None,
        tag("div", table, cls="scroll"),
    )
    words = (
        "What a device sends ▲ and receives ▽ over the whole run, in the wire's declared form. Time is this machine's, "
        "compiling included; reports per second count the rounds alone."
    )
    return figure_panel("Bytes and time", drawing, words)


def _cost(one: Dossier) -> Html:
    texts = (
        number_text(one["round_count"]),
        sent_text(one),
        "not counted" if one["pooled"] else bytes_text(one["bytes_down_per_device"]),
        f"{one['devices_per_second']:,.0f}" if one["devices_per_second"] else "–",
        seconds_text(one["seconds_of_rounds"]) if one["round_count"] else "–",
        seconds_text(one["seconds"]),
    )
    return tag("tr", tag("th", one["name"], scope="row"), *(tag("td", text, cls="number") for text in texts))
