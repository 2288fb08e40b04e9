"""PrivRec, Wang et al. 2021: a meta-learned recommender with user-level privacy, Tables 2 to 6, Figures 2 to 9."""

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from tacit.core.plan import Plan
from tacit_papers import Cell, Figure, Options, Table, finding
from tacit_papers.prices import privrec_tables
from tacit_papers.privrec.membership import APPS, MOVIES, membership_table
from tacit_papers.privrec.orders import falls, faster, order, plateau, reached, rises
from tacit_papers.privrec.printed import COLUMNS, CUTS, ORDER, TABLE2, TABLE3
from tacit_papers.privrec.stages import (
    BUDGETS,
    DRAWN,
    NOISY,
    ON_STAND_IN,
    PAPER,
    beside,
    budget_plan,
    by_chance,
    helped,
    in_stages,
    lost,
    two_against_one,
    with_noise,
)
from tacit_papers.privrec.study import (
    ROWS,
    WAY,
    Log,
    Study,
    answer,
    app_log,
    by_round,
    milliseconds,
    movie_log,
    plan_of,
    quicker,
    run_study,
)

ABOUT = "Wang et al. 2021: a small network meta-learned in rounds, with noise for every person"
PARTS = ("table2", "table3", "table4", "table5", "table6", *(f"figure{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9)))
INACTIVE = "Hits@20"
COUNTED = (
    "The paper draws DP-PrivRec alone, in two stages, without printing numbers, and its ε is of stage 2, with every member of a "
    "cohort counted as a round. As printed, stage 1 has no noise, so the run's ε is ∞ at every point of that line."
)


def reproduce(options: Options) -> Iterator[Table | Figure]:
    """The tables and figures that were asked for; without Frappe, its parts are made on a stand-in that says so."""
    return Paper(options).parts()


class Paper:
    """The paper on the logs that are there; what two parts share is run once."""

    def __init__(self, options: Options):
        self.options, self.seed = options, options.seeds[0]
        self.seeds = options.seeds if options.size == "paper" else options.seeds[:1]

    @cached_property
    def movies(self) -> Log:
        """MovieLens-1M, or a synthetic log like it."""
        return movie_log(self.options.data, self.options.size)

    @cached_property
    def apps(self) -> Log:
        """Frappe, or a synthetic stand-in that says so."""
        return app_log(self.options.size)

    @cached_property
    def on_movies(self) -> Study:
        """Every row of Table 2."""
        return run_study(self.movies, self.seeds, ROWS)

    def parts(self) -> Iterator[Table | Figure]:
        """In the paper's order."""
        wants = self.options.wants
        if wants("figure2"):
            yield self.activity()
        if wants("table2"):
            yield self.ranking("table2", "Table 2: MovieLens-1M", self.movies, self.on_movies, TABLE2)
        if wants("table3"):
            found = run_study(self.apps, self.seeds, ROWS)
            yield self.ranking("table3", "Table 3: Frappe", self.apps, found, TABLE3)
        if wants("figure3"):
            yield from self.settings("Figure 3", self.movies)
            yield from self.settings("Figure 3, Frappe", self.apps)
        if wants("figure4"):
            yield self.with_noise(4, self.movies, TABLE2)
        if wants("figure5"):
            yield self.with_noise(5, self.apps, TABLE3)
        for number in (4, 5):
            if wants(f"table{number}"):
                yield accounting(number)
        for number, log, printed in ((6, "movies", TABLE2), (7, "apps", TABLE3)):
            if wants(f"figure{number}"):
                yield self.budgets(number, getattr(self, log), printed)
        for title, log, printed in (("MovieLens-1M", "movies", MOVIES), ("Frappe", "apps", APPS)):
            if self.options.parts and wants("table6"):
                yield membership_table("table6", f"Table 6: membership, {title}", getattr(self, log), printed)
        if wants("figure8"):
            yield self.inactive()
        if wants("figure9"):
            yield self.speed()

    def activity(self) -> Figure:
        """Figure 2: how many people have how many items."""
        figure = Figure("figure2", "Figure 2: people by items visited", self.movies.label, "items", "share of people")
        edges = (20, 50, 100, 200, 500, 1000, 2000)
        lengths = self.movies.people.lengths
        figure.draw("more than so many items", ((n, (lengths > n).mean()) for n in edges))
        figure.notes.append(
            f"half of the people have at most {np.median(lengths):.0f} items, the mean is {lengths.mean():.0f}."
        )
        return figure

    def ranking(self, name: str, title: str, log: Log, found: Study, printed: dict) -> Table:
        """Tables 2 and 3."""
        table = Table(name, log.told(f"{title}, {counted(self.seeds)}"), log.label, COLUMNS)
        for row in (*printed, *(row for row in ROWS if row not in printed)):
            paper = printed.get(row, (None,) * len(COLUMNS))
            spans = [found.interval(row, c) if row in found.values else None for c in COLUMNS]
            cells = [Cell(paper=p) if s is None else Cell.of(s, p) for s, p in zip(spans, paper)]
            table.add(log.told(row), dict(zip(COLUMNS, cells)), found.digests.get(row))
        table.notes.append(order("R1", {row: found.mean(row, "Hits@10") for row in ORDER}, "Hits@10"))
        if "FedGNN" in found.values:
            table.notes.append(helped())
        table.notes.append("R7, membership, is in Table 6, which trains many models: ask for it by name.")
        table.notes += [_sizes(log), *_stands_in(log)]
        return table

    def settings(self, title: str, log: Log) -> Iterable[Figure]:
        """Figure 3: rounds, epochs at home, and people a round."""
        yield self.rounds(title, log)
        yield self.setting(title, log, "epochs at home", {e: {"hyper.epochs": e} for e in log.size.epochs})
        yield self.setting(title, log, "people a round", {m: {"cohort.count": m} for m in log.size.cohorts})

    def rounds(self, title: str, log: Log) -> Figure:
        """Hits@20 on the way through the longest run."""
        plan = plan_of("PrivRec", log.size, {"rounds": max(log.size.rounds)})
        return _swept(title, log, "rounds", by_round(log, plan, self.seed, log.size.rounds), [plan])

    def setting(self, title: str, log: Log, x: str, settings: dict[int, dict[str, int]]) -> Figure:
        """Hits@20 by one setting."""
        plans = {at: plan_of("PrivRec", log.size, one) for at, one in settings.items()}
        curve = {at: answer(log, plan, self.seed) for at, plan in plans.items()}
        return _swept(title, log, x, curve, plans.values())

    def with_noise(self, number: int, log: Log, printed: dict) -> Figure:
        """Figures 4 and 5: Hits@k with noise and without, in one stage and in two."""
        title = f"Figure {number}: Hits@k with noise, {counted(self.seeds)}"
        figure = Figure(f"figure{number}", log.told(title), log.label, "k", "Hits@k")
        found, costs = with_noise(log, self.seeds)
        for row in NOISY:
            figure.draw(row, ((cut, found.mean(row, f"Hits@{cut}")) for cut in CUTS), [found.digests[row]])
        figure.draw(PAPER, zip(CUTS, printed["PrivRec"]))
        means = {row: found.mean(row, "Hits@10") for row in NOISY}
        figure.notes += [*by_chance(found), *two_against_one(found), *in_stages(means, lost(found)), DRAWN]
        figure.notes += [*(f"{row}: {words}" for row, words in costs.items()), *_stands_in(log)]
        return figure

    def budgets(self, number: int, log: Log, printed: dict) -> Figure:
        """Figures 6 and 7: Hits@20 against ε, in two stages as the paper has them, and in one."""
        title = log.told(f"Figure {number}: Hits@20 against ε, one seed")
        figure, people = Figure(f"figure{number}", title, log.label, "ε", "Hits@20"), len(log.split(self.seed).train)
        worth = []
        for row in BUDGETS:
            plans = {e: budget_plan(row, log, people, e) for e in log.size.epsilons}
            figure.draw(row, ((e, answer(log, plan, self.seed)) for e, plan in plans.items()), _digests(plans.values()))
            worth.append(beside(row, plans, people))
        open_ = plan_of("PrivRec", quicker(log.size))
        without = answer(log, open_, self.seed)
        figure.draw("PrivRec, no noise", ((e, without) for e in log.size.epsilons), [open_.digest])
        figure.draw(PAPER, ((e, printed["PrivRec"][CUTS.index(20)]) for e in log.size.epsilons))
        figure.notes += [rises("R3", row, figure.series[row]) for row in BUDGETS]
        figure.notes += [reached("R3", row, figure.series[row], without) for row in BUDGETS]
        figure.notes += [*worth, COUNTED, *_stands_in(log)]
        return figure

    def inactive(self) -> Figure:
        """Figure 8: people with few items."""
        found = run_study(self.movies, self.seeds, ("PrivRec", "PrivRec-SGD"))
        few = found.inactive
        figure = Figure("figure8", "Figure 8: Hits@20 of people with few items", self.movies.label, "group", "Hits@20")
        means = {row: found.values[row][INACTIVE] for row in ("PrivRec", "PrivRec-SGD")}
        for row, values in means.items():
            points = [(0.0, values[few].mean() if few.any() else 0.0), (1.0, values.mean())]
            figure.draw(row, points, [found.digests[row]])
        gain = figure.series["PrivRec"][0][1] / max(figure.series["PrivRec-SGD"][0][1], 1e-9) - 1
        words = f"PrivRec is {gain:+.0%} against PrivRec-SGD on {few.sum()} people with fewer than 20 test items"
        figure.notes.append(finding("R5, by 20 % or more", bool(few.any()) and gain >= 0.2, words))
        figure.notes.append("group 0: fewer than 20 items in the test half; group 1: all people.")
        return figure

    def speed(self) -> Figure:
        """Figure 9: time of a round, first order against second."""
        size = self.movies.size
        whole = {"hyper.batch": 0, "hyper.epochs": 2}
        plans = {
            "REPTILE, two steps": plan_of("PrivRec", size, whole),
            "MAML, second order": plan_of("NN-SELF", size),
        }
        title = "Figure 9: milliseconds of a round's work on this machine"
        figure = Figure("figure9", title, self.movies.label, "people a round", "ms")
        took = {count: milliseconds(self.movies, plans, count) for count in size.cohorts}
        for name, plan in plans.items():
            figure.draw(name, ((count, one[name]) for count, one in took.items()), [plan.digest])
        figure.notes.append(faster("R6", figure.series["REPTILE, two steps"], figure.series["MAML, second order"]))
        return figure


def _swept(title: str, log: Log, x: str, curve: dict[int, float], plans: Iterable[Plan]) -> Figure:
    title = log.told(f"{title}: Hits@20 of PrivRec by {x}, one seed")
    figure = Figure("figure3", title, log.label, x, "Hits@20")
    figure.draw("PrivRec", curve.items(), _digests(plans))
    figure.notes += [plateau("R2", x, curve), *_stands_in(log)]
    return figure


def counted(seeds: tuple[int, ...]) -> str:
    """How many seeds, in words."""
    return f"{len(seeds)} seed{'s' * (len(seeds) > 1)}"


def accounting(number: int) -> Table:
    """Tables 4 and 5: ε as printed, as printed numbers come about, and as it is."""
    columns = ("printed", "reproduced", "RDP", "PLD, at least", "PLD, at most")
    title = f"Table {number}: ε of 1000 rounds, z = 1; reproduced counts every member of a cohort as a round"
    table = Table(f"table{number}", title, "accounting, no data", columns, 4)
    cells = [cell for cell in privrec_tables() if cell["table"] == number]
    for cell in cells:
        values = [cell[name] for name in ("printed", "reproduced", "rdp", "lower", "upper")]
        table.add(
            f"{cell['cohort']} of {cell['devices']}, δ = {cell['delta']:.0e}", dict(zip(columns, map(Cell, values)))
        )
    table.notes += falls("R4", cells)
    return table


def _digests(plans: Iterable[Plan]) -> list[str]:
    return [plan.digest for plan in plans]


def _stands_in(log: Log) -> list[str]:
    """What the log stands for, and how people who launch an app again are evaluated."""
    return [ON_STAND_IN, f"Evaluation: {WAY.choice(log.people).words}."] if log.stand_in else []


def _sizes(log: Log) -> str:
    hyper = ", ".join(f"{name} {value}" for name, value in log.size.hyper.items())
    return f"PrivRec's network here: {hyper}; at most {log.size.asked} people evaluated for each seed."
