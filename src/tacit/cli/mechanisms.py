"""`tacit plan --mechanisms`: which method takes which mechanism, and why one does not."""

from string import ascii_lowercase

from tacit.cli.common import print_json


def print_mechanisms(as_json: bool) -> None:
    """A row for each method that sends updates, a column for each mechanism; then the reasons, and the other methods."""
    from tacit.device.method import method_names
    from tacit.lab.plans.loader import refusals

    found = {method: refusals(method) for method in method_names()}
    print_json(found) if as_json else print(_to_markdown(found))


def _to_markdown(found: dict[str, dict[str, str]]) -> str:
    none = {method: next(iter(cells.values())) for method, cells in found.items() if all(cells.values())}
    asked = {method: cells for method, cells in found.items() if method not in none}
    reasons = dict.fromkeys(reason for cells in asked.values() for reason in cells.values() if reason)
    marks = dict(zip(reasons, ascii_lowercase))
    head = ["method", *(f"`{name}`" for name in next(iter(found.values())))]
    lines = [head, ["---"] * len(head)]
    for method, cells in asked.items():
        lines.append([f"`{method}`", *(f"no ({marks[reason]})" if reason else "yes" for reason in cells.values())])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [f"- ({mark}) {reason}." for reason, mark in marks.items()]
    for reason in dict.fromkeys(none.values()):
        methods = ", ".join(f"`{method}`" for method, why in none.items() if why == reason)
        notes.append(f"- No mechanism, because {reason}: {methods}.")
    return "\n".join([table, "", *notes])
