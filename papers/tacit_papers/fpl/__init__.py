"""FPL, Anelli et al. 2021: federated pairwise learning with control over disclosed items, Tables 1 and 2 and Figure 1."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tacit.lab.evaluation.statistics import interval
from tacit.lab.experiments.search import SearchResult
from tacit_papers import Cell, Figure, Options, Table, finding
from tacit_papers.fpl.study import CORE, FORMS, Log, Study, covered, logs, oldest_first, run_study

ABOUT = "Anelli et al. 2021: pairwise learning in which users control the share of their items that is disclosed"
PARTS = ("table1", "table2", "figure1")
COLUMNS = ("P@10", "R@10", "F1@10", "IC@10", "G@10")

# What the paper prints: Table 1's training sets, and P, R, IC and G at 10 of Table 2.
TABLE1 = {  # |U|, |I|, X⁺, X⁺/|U|, X⁺/|I|, and X⁺/(|I|·|U|), which is printed with a % and is a share
    "Brazil": (17_473, 47_270, 599_958, 34.34, 12.69, 0.00073),
    "Canada": (1340, 29_518, 63_514, 47.40, 2.15, 0.00161),
    "Italy": (1353, 25_522, 54_088, 39.98, 2.20, 0.00157),
}
TABLE2 = {
    "Brazil": {
        "Random": (0.00013, 0.00015, 46_120, 0.70946),
        "Top-Pop": (0.01909, 0.02375, 19, 0.00020),
        "VAE": (0.10320, 0.13153, 5503, 0.02117),
        "BPR-MF": (0.07702, 0.09494, 2552, 0.00756),
        "FCF, as the authors": (0.03089, 0.03749, 911, 0.00095),
        "sFPL": (0.07757, 0.09581, 1581, 0.00561),
        "pFPL": (0.07771, 0.09582, 2114, 0.00638),
    },
    "Canada": {
        "Random": (0.00030, 0.00035, 10_815, 0.26809),
        "Top-Pop": (0.04239, 0.04679, 18, 0.00030),
        "VAE": (0.06060, 0.06317, 1044, 0.00652),
        "BPR-MF": (0.03694, 0.03650, 1216, 0.00998),
        "FCF, as the authors": (0.03724, 0.03836, 504, 0.00174),
        "sFPL": (0.04515, 0.04550, 451, 0.00243),
        "pFPL": (0.04582, 0.04637, 425, 0.00213),
    },
    "Italy": {
        "Random": (0.00030, 0.00029, 10_478, 0.28914),
        "Top-Pop": (0.04634, 0.05506, 19, 0.00035),
        "VAE": (0.10421, 0.21324, 165, 0.02336),
        "BPR-MF": (0.04560, 0.05458, 19, 0.00036),
        "FCF, as the authors": (0.03126, 0.03708, 403, 0.00158),
        "sFPL": (0.04701, 0.05600, 18, 0.00036),
        "pFPL": (0.04642, 0.05465, 96, 0.00056),
    },
}
BEST_PI = {  # under Table 2
    "Brazil": {"sFPL": 0.5, "sFPL+": 0.9, "pFPL": 0.8, "pFPL+": 0.8},
    "Canada": {"sFPL": 0.1, "sFPL+": 0.4, "pFPL": 0.1, "pFPL+": 0.3},
    "Italy": {"sFPL": 0.4, "sFPL+": 0.2, "pFPL": 1.0, "pFPL+": 0.1},
}


def reproduce(options: Options) -> Iterator[Table | Figure]:
    """The tables and figures that were asked for; Table 2 and Figure 1 have a part for each log."""
    return _Paper(options).parts()


class _Paper:
    """The paper on the logs that are there; what a table and a figure share is run once."""

    def __init__(self, options: Options):
        self.options = options
        self.seeds = options.seeds if options.size == "paper" else options.seeds[:1]
        self.studies: dict[str, Study] = {}

    @cached_property
    def logs(self) -> list[Log]:
        return logs(self.options.data, self.options.size)

    def study(self, log: Log) -> Study:
        """Every row on one log, made when the first part needs it."""
        if log.label not in self.studies:
            self.studies[log.label] = run_study(log, self.options.size, self.seeds)
        return self.studies[log.label]

    def parts(self) -> Iterator[Table | Figure]:
        """Table 1 at once, before anything is learned; then log by log."""
        if self.options.wants("table1"):
            yield self.statistics()
        for log in self.logs:
            if self.options.wants("table2"):
                yield self.ranking(self.study(log))
            if self.options.wants("figure1"):
                yield self.withholding(self.study(log))

    def statistics(self) -> Table:
        """Table 1: what is learned from."""
        columns = ("users", "items", "interactions", "X⁺/|U|", "X⁺/|I|", "filled in ‰")
        table = Table("table1", "Table 1: what is learned from", "; ".join(log.label for log in self.logs), columns, 2)
        for log in self.logs:
            ours = (log.people, len(set(log.split.train.items.tolist())), log.records)
            *paper, filled = TABLE1.get(log.country or "", (None,) * 6)
            printed = (*paper, None if filled is None else 1000 * filled)
            table.add(log.label, dict(zip(columns, map(Cell, (*ours, *_shares(*ours)), *[[None] * 6] * 2, printed))))
        table.notes.append("The paper prints the last column as a percentage; it is a share, so it stands in ‰ here.")
        table.notes += [note for log in self.logs if log.country for note in _misprints(log.country)]
        return table

    def ranking(self, found: Study) -> Table:
        """Table 2."""
        log, seeds = found.log, f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
        title = (
            f"Table 2: lists of 10, {seeds}; settings chosen on validation, α and F by BPR-MF, π by each form itself"
        )
        table = Table("table2", title, log.label, (*COLUMNS, "π"), 4)
        printed, best = TABLE2.get(log.country or "", {}), BEST_PI.get(log.country or "", {})
        for row in found.answers:
            table.add(row, _cells(found, row, printed.get(row)), found.digests.get(row))
            if row in FORMS:
                table.rows[row]["π"] = Cell(found.form(row).best.settings["pi"], paper=best.get(row))
        table.notes += [*_searched(found), *_orders(found), *_tests(found), _coverage(log)]
        if log.country is not None:
            table.notes.append(_turned(log, self.options.size))
        return table

    def withholding(self, found: Study) -> Figure:
        """Figure 1: F1 against π; the paper's curves begin at 0.1 and are not printed as numbers."""
        grid = found.grid
        found.draw("pFPL", grid.pis)
        found.draw("sFPL", grid.pis)
        figure = Figure("figure1", "Figure 1: F1@10 against π", found.log.label, "π", "F1@10")
        epochs = {row: found.form(row).best.settings["epochs"] for row in found.curves}
        figure.draw("pFPL", found.curves["pFPL"], [found.plan("pFPL", pi, epochs["pFPL"]).digest for pi in grid.pis])
        figure.draw("sFPL", found.curves["sFPL"])  # in the lab: no plan made it
        figure.notes += [_peak(row, points, found.log.country) for row, points in found.curves.items()]
        nothing, popular = found.curves["pFPL"][0][1], found.mean("Top-Pop", "F1@10")
        words = f"pFPL at π = 0 has F1@10 {nothing:.4f}, Top-Pop {popular:.4f}"
        figure.notes.append(finding("P3 (π = 0 still beats Top-Pop)", nothing > popular, words))
        figure.notes.append(
            f"{epochs['pFPL']} epochs of pFPL and {epochs['sFPL']} of sFPL, as each chose. The curve of sFPL is made in the "
            "lab, triple after triple by the same law; its row of Table 2 is made round by round."
        )
        figure.notes.append(
            "π is withholding, not noise: at every π the claim is ε = ∞; docs/fpl.md has what it reveals."
        )
        return figure


def _shares(users: int, items: int, records: int) -> tuple[float, float, float]:
    return records / users, records / items, 1000 * records / (users * items)


def _misprints(country: str) -> list[str]:
    """Where the paper's ratios are not those of its own counts."""
    users, items, records, *ratios = TABLE1[country]
    found = zip(("X⁺/|U|", "X⁺/|I|"), (users, items), ratios)
    return [
        f"{country}: {name} is printed as {ratio:.2f}; the printed counts give {records:,}/{count:,} = {records / count:.2f}, "
        f"so {ratio:.2f} is a misprint."
        for name, count, ratio in found
        if abs(records / count - ratio) > 0.0051
    ]


def _cells(found: Study, row: str, printed: tuple[float, ...] | None) -> dict[str, Cell]:
    paper: dict[str, float] = {}
    if printed is not None:
        p, r, coverage, evenness = printed
        paper = {"P@10": p, "R@10": r, "F1@10": 2 * p * r / (p + r), "IC@10": coverage, "G@10": evenness}
    cells = {name: Cell(found.mean(row, name), paper=paper.get(name)) for name in COLUMNS}
    if found.mean(row, "IC@10").is_integer():
        cells["IC@10"] = Cell(int(found.mean(row, "IC@10")), paper=paper.get("IC@10"))
    for name in ("P@10", "R@10"):
        span = interval(found.values(row, name))
        cells[name] = Cell.of(span, paper.get(name))
    return cells


def _searched(found: Study) -> list[str]:
    """What was chosen, out of how many, on the newest fifth of everybody's training data."""
    all_of = {"BPR-MF": found.factors, **found.forms}
    return [f"{row}: {_settings(one.best.settings)}; {_out_of(one)}." for row, one in all_of.items()]


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {value:g}" for name, value in settings.items())


def _out_of(one: SearchResult) -> str:
    if len(one.tried) == 1:
        return "not searched at this size"
    return f"the best of {len(one.tried)} by F1@10 on the validation part, {one.best.value:.4f}"


def _orders(found: Study) -> list[str]:
    """P1, P4 and P5."""
    f1 = {row: found.mean(row, "F1@10") for row in found.answers}
    pairs = (("sFPL", "pFPL"), ("sFPL", "BPR-MF"), ("pFPL", "BPR-MF"))
    p = {pair: found.compare(*pair, "P@10").t for pair in pairs}
    alike = "; ".join(f"{a} {f1[a]:.4f} and {b} {f1[b]:.4f}, p = {p[a, b]:.2g}" for a, b in pairs)
    best = max(f1, key=lambda row: f1[row])
    lists = {row: found.mean(row, "IC@10") for row in ("Top-Pop", "BPR-MF", "pFPL")}
    near = all(abs(f1[row] / f1["Top-Pop"] - 1) < 0.1 for row in ("BPR-MF", "pFPL"))
    widths = ", ".join(f"{row} {lists[row]:.0f} different items, F1 {f1[row]:.4f}" for row in lists)
    weak = f1["FCF, as the authors"]
    return [
        finding("P1 (no significant difference)", min(p.values()) >= 0.05, f"F1@10 of {alike}"),
        finding(
            "P4 (VAE is the most accurate)", best == "VAE", f"best is {best} with {f1[best]:.4f}, VAE {f1['VAE']:.4f}"
        ),
        finding(
            "P4 (FCF as the authors ran it is below pFPL)",
            weak < f1["pFPL"],
            f"{weak:.4f} against {f1['pFPL']:.4f}; FCF itself has {f1['FCF']:.4f}",
        ),
        finding("P5 (BPR-MF and pFPL are within a tenth of Top-Pop)", near, widths),
    ]


def _tests(found: Study) -> list[str]:
    made = []
    for ours, theirs in (("pFPL", "Top-Pop"), ("pFPL", "FCF"), ("VAE", "pFPL")):
        one = found.compare(ours, theirs, "P@10")
        span = f"{one.difference.mean:+.4f} [{one.difference.low:+.4f}, {one.difference.high:+.4f}]"
        made.append(f"Paired t-test, {one.name}: {span}, p = {one.t:.2g}.")
    return made


def _coverage(log: Log) -> str:
    return (
        f"VAE answers for all {log.people:,} people here. Fitted on the {CORE}-core alone, as is often done, it would cover "
        f"{covered(log):.0%}; the paper's covers 14 % of Italy, so its row is not about the same people."
    )


def _turned(log: Log, size: str) -> str:
    """What the paper's Top-Pop looks like if the oldest fifth is asked."""
    turned = log._replace(split=oldest_first(log.split))
    found = run_study(turned, size, (0,), ("Top-Pop",))
    p, r = TABLE2[log.country or ""]["Top-Pop"][:2]
    return (
        f"Asked for everybody's oldest fifth instead of the newest, Top-Pop has P@10 {found.mean('Top-Pop', 'P@10'):.4f} and "
        f"R@10 {found.mean('Top-Pop', 'R@10'):.4f}; the paper prints {p:.4f} and {r:.4f}."
    )


def _peak(row: str, points: list[tuple[float, float]], country: str | None) -> str:
    """P2."""
    best, value = max(points, key=lambda point: point[1])
    beside = f"; the paper's best is {BEST_PI[country][row]:g}" if country else ""
    words = f"F1@10 is highest at π = {best:g}, {value:.4f}, and {points[-1][1]:.4f} at π = 1{beside}"
    return finding(f"P2 ({row} peaks below π = 1)", best < 1, words)
