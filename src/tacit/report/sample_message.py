"""Sample message: one device's history beside what can be read from its message under each plan."""

from collections.abc import Iterable
from typing import Any

from tacit.report.charts import row_sizes_chart
from tacit.report.formatting import Dossier, bytes_text, privacy_level
from tacit.report.html import Html, join_html, tag
from tacit.report.sections import Charts

_LEAD = (
    "One device with a history of median length, and the last message it sent under each plan. Items of its history are "
    "coloured: they are known in the lab only, not to a reader of the message."
)
_WARNING = "This part shows one user's history. It is for the lab: leave it out of a page that is published."


def sample_messages(dossiers: list[Dossier], charts: Charts) -> Html | None:
    """One block for each device shown; most plans share one device."""
    shown = [one for one in dossiers if one["specimen"]]
    if not shown:
        return None
    groups: dict[str, list[Dossier]] = {}
    for one in shown:
        history = one["specimen"]["history"]
        groups.setdefault(repr((one["data"]["digest"], history)), []).append(one)
    lead = [tag("p", _LEAD, cls="lead"), tag("p", _WARNING, cls="notes")]
    blocks = [_block(group, charts, place) for place, group in enumerate(groups.values())]
    return tag("section", tag("h2", "What one device sent"), *lead, *blocks, id="sent")


def _block(group: list[Dossier], charts: Charts, place: int) -> Html:
    messages = [_message(one, charts, f"sent-{place}-{i}") for i, one in enumerate(group)]
    return tag("div", _history(group[0]["specimen"]), tag("div", *messages, cls="messages"), cls="device")


def _history(specimen: dict[str, Any]) -> Html:
    chips = [_chip(one["label"], own=True, times=one["times"]) for one in specimen["history"]]
    more = specimen["distinct"] - len(chips)
    words = f"{specimen['events']} events, {specimen['distinct']} different items"
    return tag(
        "aside",
        tag("h3", "Its history"),
        tag("p", words, cls="quiet"),
        tag("p", *chips, tag("span", f"and {more} more", cls="quiet") if more > 0 else None, cls="chips"),
    )


def _chip(label: str, own: bool | None, times: int = 1) -> Html:
    again = tag("b", f"×{times}") if times > 1 else None
    return tag("span", label, again, cls="chip own" if own else "chip")


def _message(one: Dossier, charts: Charts, name: str) -> Html:
    specimen = one["specimen"]
    head = tag("h3", tag("i", cls=f"dot {privacy_level(one)}"), one["name"], tag("small", _size(specimen)))
    if specimen["kind"] == "nothing":
        return tag("article", head, tag("p", "Nothing leaves the device."))
    if specimen["kind"] == "raw":
        return tag(
            "article",
            head,
            tag("p", "The whole history, pooled on one machine: everything on the left is visible."),
        )
    parts = [_view(view, charts, f"{name}-{i}", specimen) for i, view in enumerate(specimen["views"])]
    return tag("article", head, *parts, _released(specimen, charts, name), _bytes(specimen))


def _size(specimen: dict[str, Any]) -> str:
    return "" if specimen["bytes"] is None else bytes_text(specimen["bytes"])


def _view(view: dict[str, Any], charts: Charts, name: str, specimen: dict[str, Any] | None = None) -> Html:
    if view["kind"] == "claims":
        return _claims(view, specimen)
    if view["kind"] == "sizes":
        return _sizes(view, charts, name)
    return _signs(view) if view["kind"] == "signs" else _bits(view)


def _claims(view: dict[str, Any], specimen: dict[str, Any] | None) -> Html:
    """Items named in the message, the true ones coloured."""
    chips = [_chip(row["label"], row.get("own"), row["count"]) for row in view["rows"]]
    more = view["said"] - len(view["rows"])
    left = tag("span", f"and {more:,} more", cls="quiet") if more else None
    return join_html(tag("p", _claimed(view, specimen)), tag("p", *chips, left, cls="chips"))


def _claimed(view: dict[str, Any], specimen: dict[str, Any] | None) -> str:
    said, noun, true, own = view["said"], f"of {view['of']:,} {view['noun']}", view.get("true"), view.get("own")
    if true is None:
        return f"The message names {said:,} {noun}."
    if specimen and specimen["mechanism"] == "none" and said == true == own:
        return f"The message names {said:,} {noun}: exactly those of the history. A reader learns all of it."
    if specimen and specimen["mechanism"] == "none":
        return f"The message names {said:,} {noun}; {true:,} of them are in the history."
    return (
        f"The message claims {said:,} {noun}. {true:,} of them are true, {said - true:,} are made up, and {own - true:,} "
        f"of the {own:,} in the history are denied. ε limits how certain a reader can be of any one."
    )


def _sizes(view: dict[str, Any], charts: Charts, name: str) -> Html:
    """The rows with the largest values: drawn, and the first of them written out."""
    shown = [row for row in view["rows"] if "numbers" in row][:8]
    digits = _digits(abs(value) for row in shown for value in (row["size"], *row["numbers"]))
    rows = [
        tag("tr", tag("th", _chip(row["label"], row.get("own")), scope="row"), _numbers(row, view, digits))
        for row in shown
    ]
    size = "value" if view["width"] == 1 else "norm"
    head = tag("tr", tag("th", "largest"), tag("th", size, cls="number"), tag("th", _columns(view)))
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *rows), cls="rows"), cls="scroll")
    return join_html(tag("p", *_separated(view)), charts.place(name, row_sizes_chart(view)), table)


def _digits(values: Iterable[float]) -> int:
    """The number of decimals that suits the largest of some numbers."""
    return max(0, 3 - len(str(int(max(values, default=0.0)))) + 1)


def _columns(view: dict[str, Any]) -> str:
    if view["width"] == 1:
        return ""
    return f"its {view['width']} numbers" if view["width"] <= 5 else f"the first of its {view['width']} numbers"


def _numbers(row: dict[str, Any], view: dict[str, Any], digits: int) -> Html:
    text = "".join(f"{value:+{digits + 5}.{digits}f}" for value in row["numbers"]).replace("-", "−")
    shown = row["size"] if view["width"] > 1 else row["numbers"][0]
    size = tag("td", f"{shown:.{digits}f}".replace("-", "−"), cls="number")
    return join_html(size, tag("td", text if view["width"] > 1 else "", cls="numbers"))


def _separated(view: dict[str, Any]) -> list[Any]:
    wide, rows = view["width"] > 1, f"for each of {view['of']:,} {view['noun']}"
    table = f"A row of {view['width']} numbers {rows}" if wide else f"A number {rows}"
    zero = f"; {view['zero']:,} are exactly zero" if view["zero"] else ""
    how = "along the direction most rows share" if wide else "by their numbers"
    drawn = f"{table}{zero}. Below, the {len(view['rows'])} largest {how}. "
    if view["separation"] is None:
        return [drawn]
    percent = round(100 * view["separation"])
    means = "By this value alone, items of the history rank above other items in "
    return [drawn, means, tag("b", f"{percent} %"), f" of all pairs; guessing gets 50 %. {_disclosure(percent)}"]


def _disclosure(percent: int) -> str:
    if percent >= 90:
        return "The message reveals the history."
    if percent >= 75:
        return "The message reveals much of the history."
    return "The message reveals some of the history." if percent >= 60 else "To this reader it looks like noise."


def _signs(view: dict[str, Any]) -> Html:
    scale = f" The scale of the update, {view['scale']:g}, is sent without noise." if "scale" in view else ""
    many = f"{view['said']:,} positions" if view["said"] != 1 else "One position"
    words = (
        f"{many} out of {view['of']:,}, drawn at random regardless of the history, and for each a sign: a random bit, "
        f"biased towards the true number there.{scale}"
    )
    return join_html(tag("p", words), tag("table", tag("tbody", *map(_sign, view["rows"][:20])), cls="rows"))


def _sign(row: dict[str, Any]) -> Html:
    return tag(
        "tr",
        tag("th", _chip(row["label"], row.get("own")), scope="row"),
        tag("td", f"number {row['column']} of its row", cls="quiet"),
        tag("td", "+1" if row["sign"] > 0 else "−1", cls="number sign"),
    )


def _bits(view: dict[str, Any]) -> Html:
    bits, shown = view["bits"], view["bits"][:256]
    words = f"{len(bits):,} bits without meaning one by one; the server can decode only their sum over many devices."
    return join_html(tag("p", words), tag("p", tag("code", shown, "…" if len(bits) > 256 else ""), cls="bits"))


def _released(specimen: dict[str, Any], charts: Charts, name: str) -> Html | None:
    """The noisy sum that the server releases, where the server adds the noise."""
    made = specimen["released"]
    if not made:
        return None
    words = f"That is what the server sees. It releases the sum of {made['reports']:,} such reports, with noise:"
    views = [_view(view, charts, f"{name}-released-{i}") for i, view in enumerate(made["views"])]
    return tag("div", tag("h4", "What is released"), tag("p", words), *views, cls="released")


def _bytes(specimen: dict[str, Any]) -> Html:
    exact = "the message as sent" if specimen["exact"] else "computed again with the final parameters of the run"
    words = f"stage {specimen['stage']}, round {specimen['round']}; {exact}; on the wire it begins "
    return tag("p", words, tag("code", specimen["head"], " …"), cls="wire")
