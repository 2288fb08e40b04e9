"""SeqMF, Saiapin et al. 2024: next-app recommendation, Tables 1 and 2 in one split, Figures 2 to 6 cycle by cycle, a phone's cost."""

import math
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property

import jax
import numpy as np

from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.evaluation.sessions import active_users, cycles_of, drop_quick_repeats
from tacit.lab.experiments.online import Timeline
from tacit_papers import Cell, Figure, Options, Table, finding
from tacit_papers.seqmf.printed import CORES, DIM, INSTALLED, METRICS, MILLISECONDS, TABLES
from tacit_papers.seqmf.study import (
    REGIMES,
    RIVALS,
    TUNED,
    Dynamic,
    Place,
    Static,
    measured_cost,
    mechanisms,
    operations,
    phone_flops,
    place,
    static,
)

ABOUT = "Saiapin et al. 2024: the next app, from a shared table and a vector solved at home"
PARTS = ("table1", "table2", *(f"figure{n}" for n in range(2, 7)), "cost")
TRIALS = {"small": 4, "paper": 60}  # of the authors' grid of 1,200, drawn by chance
USERS = {"small": {"LSApp": 100, "App Usage": 150}, "paper": {"LSApp": None, "App Usage": None}}
FOLLOWED = {"small": {"LSApp": 30, "App Usage": 150}, "paper": {"LSApp": None, "App Usage": None}}  # cycle by cycle
CHART = "control: public chart"
SAME = 0.005  # a difference in HR@5 below this is none


def reproduce(options: Options) -> Iterator[Table | Figure]:
    """The tables and figures that were asked for; Figures 3 to 6 have two parts, as in the paper."""
    parts = (part for paper in ("LSApp", "App Usage") for part in _Paper(paper, options).parts())
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeasibilityWarning)  # the figures are about noise that hides everything
            part = next(parts, None)
        if part is None:
            break
        yield part
    if options.wants("cost"):
        yield phone()


class _Paper:
    """One log of the paper; what its table and figures share is made once."""

    def __init__(self, paper: str, options: Options):
        self.paper, self.options = paper, options
        self.table, self.regimes, self.noises = (1, 3, 5) if paper == "LSApp" else (2, 4, 6)

    @cached_property
    def where(self) -> Place:
        return self._place(USERS)

    @cached_property
    def dynamic(self) -> Dynamic:
        return Dynamic(self._place(FOLLOWED))

    def _place(self, users: dict[str, dict[str, int | None]], seeds: Iterable[int] | None = None) -> Place:
        seeds = self.options.seeds if seeds is None else seeds
        return place(self.paper, self.options.data, seeds, users[self.options.size][self.paper])

    def parts(self) -> Iterator[Table | Figure]:
        """In the paper's order."""
        wants = self.options.wants
        if wants(f"table{self.table}"):
            yield self.ranking()
        if self.paper == "LSApp" and wants("figure2"):
            yield from self.activity()
        if wants(f"figure{self.regimes}"):
            yield from self.followed()
        if wants(f"figure{self.noises}"):
            yield from self.noised()

    # ---- one cut ----

    def ranking(self) -> Table:
        """Tables 1 and 2, with the controls below."""
        found = static(self.where, TRIALS[self.options.size])
        title = f"Table {self.table}: the next app, in place of {self.paper}"
        table = Table(f"table{self.table}", title, self.where.label, METRICS)
        for row in (*RIVALS, TUNED):
            table.add(row, _cells(found, row, TABLES[self.paper].get(row)), found.digests[row])
        table.notes += [*_orders(found, self.paper), *_spent(found), f"{TUNED}: {'; '.join(found.chosen)}."]
        return table

    # ---- cycles ----

    def activity(self) -> Iterable[Figure]:
        """Figure 2: who is active when, before and after the log is cut into cycles."""
        where = self._place(USERS, self.options.seeds[:1])  # one world is shown
        log = drop_quick_repeats(where.worlds[0])
        for words, balanced in (("by the calendar", False), ("in cycles of each person's own days", True)):
            counts = active_users(log, cycles_of(log, where.cycles, balanced), where.cycles)
            points = [(float(t), float(n)) for t, n in enumerate(counts)]
            figure = Figure("figure2", f"Figure 2: active people {words}", where.label, "cycle", "people")
            figure.draw("active people", points)
            figure.notes.append(
                f"From {counts.min()} to {counts.max()} of {len(log)} people are active, coefficient of variation "
                f"{counts.std() / counts.mean():.3f}."
            )
            yield figure

    def followed(self) -> Iterable[Figure]:
        """Figures 3 and 4: how often a person's own vector follows, against rivals and controls."""
        lines = {row: self.dynamic.of(*how) for row, how in REGIMES.items()}
        yield from self._pair(self.regimes, "regimes", lines, "SeqMF Full", _followed_notes(lines, self.paper))

    def noised(self) -> Iterable[Figure]:
        """Figures 5 and 6: the same table through every mechanism, and the controls that never send."""
        lines = {
            row: self.dynamic.of("seqmf-authors", settings)
            for row, settings in mechanisms(self.dynamic.where.epsilon).items()
        }
        for row in ("control: untrained Q", "control: on-device only", "control: public chart"):
            lines[row] = self.dynamic.of(*REGIMES[row])
        notes = _noised_notes(lines, self.dynamic.where.epsilon)
        yield from self._pair(self.noises, f"ε = {self.dynamic.where.epsilon:g} a message", lines, "no noise", notes)

    def _pair(
        self, number: int, about: str, lines: dict[str, list[Timeline]], base: str, notes: list[str]
    ) -> Iterable[Figure]:
        """A metric by cycle, and its sum against a base."""
        name = f"figure{number}"
        left = Figure(name, f"Figure {number}, left: HR@5 by cycle, {about}", self.dynamic.where.label, "cycle", "HR@5")
        right = Figure(
            name,
            f"Figure {number}, right: cumulative δHR@5 against {base}",
            self.dynamic.where.label,
            "cycle",
            "sum of δHR@5",
        )
        for row, timelines in lines.items():
            made_by = [one.plan.digest for one in timelines]
            left.draw(row, _points(Dynamic.mean(timelines)), made_by)
            ahead = [one.ahead(other, "HR@5") for one, other in zip(timelines, lines[base])]
            right.draw(row, _points(np.mean(ahead, axis=0)), made_by)
        right.notes += notes
        return (left, right)


def _points(values: np.ndarray) -> list[tuple[float, float]]:
    return [(float(cycle), float(value)) for cycle, value in enumerate(values, 1) if np.isfinite(value)]


def phone() -> Table:
    """Section 4.3: what a round costs a phone by the paper's formula, beside the same round measured here."""
    counted, flops, took = operations(INSTALLED, DIM), phone_flops(CORES), measured_cost(INSTALLED, DIM)
    rows = {
        "user vector, T_u": (counted["user vector"], MILLISECONDS["user vector"], took["adapt_ms"]),
        "gradient, T_g": (counted["gradient"], MILLISECONDS["gradient"], None),
        "both": (sum(counted.values()), sum(MILLISECONDS.values()), took["round_ms"]),
    }
    data = f"one device, {INSTALLED} apps, dimension {DIM}; a phone of {flops / 1e9:.2f} GFLOP/s by the formula"
    columns = ("operations", "ms, by the formula", "ms, measured here")
    table = Table("cost", "Section 4.3: one round on a device", data, columns, digits=4)
    for row, (count, printed, measured) in rows.items():
        cells = Cell(count), Cell(1e3 * count / flops, paper=printed), Cell(measured)
        table.add(row, dict(zip(columns, cells)))
    table.notes += _cost_notes(counted, flops)
    return table


def _cost_notes(counted: dict[str, int], flops: float) -> list[str]:
    """Where the paper's formula, its numbers and its equations disagree."""
    each = " + ".join(f"{value:.3f}" for value in MILLISECONDS.values())
    square = 2 * INSTALLED * DIM**2
    return [
        f"The paper prints no counts, and {each} = {sum(MILLISECONDS.values()):.3f} ms: each part is rounded, then added. "
        f"The formula gives {1e3 * sum(counted.values()) / flops:.4f} ms.",
        f"T_g has a term 2·N_u·d², {square:,} operations or {square / counted['gradient']:.0%} of it, and Eq. 12 has no "
        "product of that size: its matrices are N_u × N_u and N_u × d.",
        f"Measured: medians where this table was made ({jax.default_backend()}), in single precision. The user vector is "
        "solved in the smaller of the two dimensions, and the measured round includes making the message.",
    ]


def _cells(found: Static, row: str, printed: tuple | None) -> dict[str, Cell]:
    cells = {}
    for metric, beside in zip(METRICS, printed or (None,) * len(METRICS)):
        span = found.interval(row, metric)
        cells[metric] = Cell.of(span, beside)
    return cells


def _orders(found: Static, paper: str) -> list[str]:
    """S1 to S3, and what training does."""
    every = [found.mean("SeqMF", metric) - found.mean("MF", metric) for metric in METRICS]
    rule = "SR-od" if paper == "LSApp" else "SR"
    lost = found.mean(rule, "HR@5") - found.mean("SeqMF", "HR@5")
    near = found.mean("MF", "HR@5") - found.mean("MFU", "HR@5")
    trained = found.compare("SeqMF", "control: untrained Q", "HR@5")
    tuned = found.compare(TUNED, "control: untrained Q", "HR@5")
    home = found.compare("seqmf, private", "control: on-device only", "HR@5")
    return [
        finding("S1", min(every) > 0, f"SeqMF is above MF on every metric, by {min(every):+.3f} to {max(every):+.3f}"),
        finding("S2", lost >= 0, f"{rule} is at least as good as SeqMF, {lost:+.3f} in HR@5"),
        finding("S3", abs(near) <= 0.03, f"MF is near MFU, {near:+.3f} in HR@5"),
        f"Training: {trained}. {tuned}.",
        f"Federation: {home}.",
    ]


def _spent(found: Static) -> list[str]:
    sending = {row: epsilon for row, epsilon in found.epsilon.items() if epsilon not in ("0", "∞")}
    words = "; ".join(f"{row}: ε = {epsilon} for the run, per user, nobody trusted" for row, epsilon in sending.items())
    unbounded = ", ".join(row for row, epsilon in found.epsilon.items() if epsilon == "∞" and row != CHART)
    return [
        f"Privacy: {words}; ε = ∞: {unbounded}; the others send nothing. The chart is made of the pooled log here; a public "
        "one would cost nothing."
    ]


def _means(lines: dict[str, list[Timeline]]) -> dict[str, float]:
    """HR@5 over all cycles in which anybody was active."""
    return {row: float(np.nanmean([one.metrics["HR@5"] for one in timelines])) for row, timelines in lines.items()}


def _followed_notes(lines: dict[str, list[Timeline]], paper: str) -> list[str]:
    """S4 or S5."""
    means = _means(lines)
    full, rare, never = (means[f"SeqMF {regime}"] for regime in ("Full", "Rare", "Global"))
    untrained = abs(full - means["control: untrained Q"])
    words = ", ".join(f"{row} {value:.3f}" for row, value in means.items())
    if paper == "LSApp":
        made = [
            finding(
                "S4", full > max(means["SR-od"], means["MRU"]), f"SeqMF Full is above SR-od and MRU; means: {words}"
            ),
            finding("S4", full >= rare >= never, "Full is at least Rare, and Rare at least Global"),
        ]
    else:
        made = [
            finding("S5", abs(full - rare) < 2 * SAME, f"Full and Rare are alike; means: {words}"),
            finding("S5", never < means["SR-od"], "Global is below SR-od"),
            finding("S5", means["MRU"] > full - SAME, "MRU is about as good as SeqMF or better"),
        ]
    verb = "cannot be told from" if untrained < SAME else "differs from"
    return [*made, f"SeqMF Full {verb} the same table before any training: {untrained:.4f} in HR@5, on average."]


def _noised_notes(lines: dict[str, list[Timeline]], epsilon: float) -> list[str]:
    """S6, what it means beside the untrained table, and what was really spent."""
    means = _means(lines)
    free, printed = means["no noise"], means["QHarmony as printed"]
    rivals = [means["Laplace"], means["k-Harmony"]]
    order = printed > means["Kashin"] > max(rivals)
    untrained = means["control: untrained Q"]
    best = max((row for row in means if row not in ("no noise", *REGIMES)), key=means.__getitem__)
    words = ", ".join(f"{row} {value:.4f}" for row, value in means.items())
    return [
        finding("S6", printed >= free - SAME, f"QHarmony as printed is no worse than no noise; means: {words}"),
        finding("S6", order, "it is above Kashin, and Kashin above Laplace and k-Harmony"),
        f"The table that was never trained has {untrained:.4f}: QHarmony keeps {printed - untrained:+.4f} of what training "
        f"brings, which is {free - untrained:+.4f}. Of the mechanisms {best} has the most, {means[best]:.4f}.",
        _true_totals(lines, epsilon),
    ]


def _true_totals(lines: dict[str, list[Timeline]], epsilon: float) -> str:
    totals = []
    for row, timelines in lines.items():
        spent = timelines[0].run.spent()["epsilon"]["worst"]
        if row not in ("no noise", *REGIMES):
            totals.append(f"{row} {'∞' if math.isinf(spent) else f'{spent:g}'}")
    return f"ε = {epsilon:g} is one message's. Over all messages of a device, basic composition, nobody trusted: {', '.join(totals)}."
