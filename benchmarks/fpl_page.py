"""Puts what was measured into docs/fpl.md and docs/speed.md: every number of their tables comes from a file in results.

python benchmarks/fpl.py
python benchmarks/fpl_page.py
"""

from pages import fill, read, table

ON = {"fpl-cpu": "CPU", "fpl-gpu": "GPU"}


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


if __name__ == "__main__":
    fill("fpl.md", {"epochs": epochs, "alone": alone})
    fill("speed.md", {"epochs": epochs, "scale": scale})
