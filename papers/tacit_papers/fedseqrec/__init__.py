"""FedSeqRec, Li et al. 2022: organisations train one sequential recommender, Tables 2 to 4 and Figures 5 to 10."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from tacit.lab.plans.loader import load_plan, numbers_trained
from tacit_papers import Cell, Figure, Options, Table, finding
from tacit_papers.fedseqrec.figures import Figures
from tacit_papers.fedseqrec.logs import Log, logs
from tacit_papers.fedseqrec.orders import central, ranking, why_not
from tacit_papers.fedseqrec.printed import COLUMNS, CONVERGED, IMPROVED, PARAMETERS, TABLE2, TABLE3, TABLE4
from tacit_papers.fedseqrec.study import CENTRAL, PLANS, ROWS, WHOLE, Study, plan_of, rounds_of, there

ABOUT = "Li et al. 2022: organisations that may not pool their logs train one sequential recommender"
PARTS = ("table2", "table3", "table4", *(f"figure{n}" for n in range(5, 11)))
REPEATS = {"small": 2, "paper": 5}  # of a table, at most; figures have one
IMPROV = "Improv. over FedNewsRec, %"


def reproduce(options: Options) -> Iterator[Table | Figure]:
    """The tables and figures that were asked for; most have a part for each log."""
    return Paper(options).parts()


class Paper:
    """The paper on the logs that are there; what two parts share is run once."""

    def __init__(self, options: Options):
        self.options, self.seeds = options, options.seeds[: REPEATS[options.size]]

    @cached_property
    def logs(self) -> list[Log]:
        """MoocData and MovieData, or what stands in for them."""
        return logs(self.options.data, self.options.size)

    @cached_property
    def studies(self) -> dict[str, Study]:
        """What each log's rows answered, by the paper's name of the log."""
        return {log.paper: Study(log) for log in self.logs}

    @cached_property
    def figures(self) -> Figures:
        """Figures 5 to 10."""
        return Figures(self.logs, self.seeds[0])

    def parts(self) -> Iterator[Table | Figure]:
        """In the paper's order."""
        wants, papers = self.options.wants, [log.paper for log in self.logs]
        if wants("table2"):
            yield self.statistics()
        if wants("table3"):
            yield from (self.ranking(log) for log in self.logs)
        if wants("table4"):
            yield from (self.pooled(log) for log in self.logs)
        if wants("figure5"):
            yield self.figures.ablations()
        if wants("figure6"):
            yield from self.figures.counts()
        if wants("figure7"):
            yield self.figures.alone()
        for number, draw in ((8, "noises"), (9, "convergence"), (10, "rates")):
            if wants(f"figure{number}"):
                yield from (getattr(self.figures, draw)(paper) for paper in papers)

    def statistics(self) -> Table:
        """Table 2: what is learned from, and what is asked."""
        columns = ("organisations", "people", "items", "training sessions", "test sessions")
        table = Table("table2", "Table 2: months of one person as sessions", self._labels(), columns, 0)
        for log in self.logs:
            ours = (len(log.organisations), *log.kept, *log.sessions)
            table.add(log.paper, dict(zip(columns, map(Cell, ours, [None] * 5, [None] * 5, TABLE2[log.paper]))))
        table.notes.append(
            "Here the last item of every session is the test case; sessions with two items or more left are used for training."
        )
        table.notes += [f"{log.paper}: {note}." for log in self.logs for note in (_kept(log), *log.whole.notes)]
        return table

    def ranking(self, log: Log) -> Table:
        """Table 3: 1 + 99 sampled items, and all items beside them."""
        found = self._learned(log, ROWS)
        table = self._table("table3", f"Table 3: {log.paper}", log)
        for row in ROWS:
            self._add(table, found, row, row, TABLE3[log.paper][row])
        if "FedNewsRec" in found.values:
            table.add(IMPROV, _improved(found, IMPROVED[log.paper]))
        notes = ranking(found, log.paper)
        table.notes += [*notes, *why_not(notes, _leak(log), _smaller(log)), *self._about(log, found)]
        return table

    def pooled(self, log: Log) -> Table:
        """Table 4: the same networks from pooled data, and how many parameters each has."""
        found = self._learned(log, CENTRAL)
        table = self._table("table4", f"Table 4: trained centrally, {log.paper}", log, ("parameters",))
        for row in CENTRAL:
            name = row.removesuffix(", central")
            self._add(table, found, row, row, TABLE4[log.paper][name])
            numbers = (
                max(numbers_trained(plan_of(row, log), log.people.catalog.n_items)) if row in found.values else None
            )
            table.rows[row]["parameters"] = Cell(numbers, paper=PARAMETERS[name])
        federated = [row for row in ("FedSeqRec", "FedNewsRec") if row in there(ROWS)]
        table.notes += central(self._learned(log, federated))
        table.notes.append(fewer())
        return table

    def _learned(self, log: Log, rows: Iterable[str]) -> Study:
        found = self.studies[log.paper]
        for row in there(rows):
            found.add(row, self.seeds)
        return found

    def _table(self, name: str, title: str, log: Log, more: tuple[str, ...] = ()) -> Table:
        repeats = f"{len(self.seeds)} repeat{'s' * (len(self.seeds) > 1)}"
        return Table(name, f"{title}, in per cent, {repeats}", log.label, (*more, *COLUMNS, WHOLE), 2)

    def _add(self, table: Table, found: Study, row: str, shown: str, printed: tuple[float, ...]) -> None:
        """One row, whether its plan is here or not."""
        paper: dict[str, float] = dict(zip(COLUMNS, printed))
        if row not in found.values:
            table.add(shown, {name: Cell(paper=value) for name, value in paper.items()})
            table.notes.append(f"{shown}: there is no built-in plan {PLANS[row]!r}.")
            return
        cells = {name: Cell.of(found.interval(row, name), paper.get(name)) for name in (*COLUMNS, WHOLE)}
        table.add(shown, cells, found.digests[row])

    def _about(self, log: Log, found: Study) -> list[str]:
        """What was asked of whom, and in which size."""
        hyper = ", ".join(f"{name} {value}" for name, value in log.size.network.items())
        steps = log.size.steps.get(log.paper, "all")
        asked = len(next(iter(found.values.values()))[WHOLE])
        return [
            f"1 + 99 sampled items, drawn once for each repeat, and all items never touched beside them; {asked} sessions.",
            f"Networks of FedSeqRec and FedNewsRec here: {hyper}; {rounds_of(log)} rounds of {steps} batches an organisation; "
            "ε = ∞ in every row. Models fitted in the lab are fitted once, and evaluated as often as the others.",
        ]

    def _labels(self) -> str:
        return "; ".join(f"{log.paper}: {log.label}" for log in self.logs)


def _improved(found: Study, printed: tuple[float, ...]) -> dict[str, Cell]:
    """(FedSeqRec − FedNewsRec) / FedNewsRec, in per cent."""

    def gain(metric: str) -> float:
        ours, theirs = found.mean("FedSeqRec", metric), found.mean("FedNewsRec", metric)
        return 100 * (ours / max(theirs, 1e-9) - 1)

    paper: dict[str, float] = dict(zip(COLUMNS, printed))
    return {metric: Cell(gain(metric), paper=paper.get(metric)) for metric in (*COLUMNS, WHOLE)}


def _kept(log: Log) -> str:
    """How much of the log is in a session."""
    (people, items), log_items = log.kept, log.people.catalog.n_items
    return (
        f"{people:,} of {len(log.people):,} people have a month of two or more events, and {items:,} of {log_items:,} items "
        "are in such a month"
    )


def _leak(log: Log) -> str:
    """What the split says about months that come after a question."""
    return next(
        (note for note in log.whole.notes if note.startswith("leak")), "no question lies before what training saw"
    )


def _smaller(log: Log) -> str:
    """How far the networks here are from the published ones; nothing where they are those."""
    ours, theirs = max(numbers_trained(plan_of("FedSeqRec", log))), PARAMETERS["FedSeqRec"]
    if ours >= theirs:
        return ""
    return (
        f"FedSeqRec has {ours:,} parameters and {rounds_of(log)} rounds here, {theirs:,} and about {CONVERGED} in the paper, "
        "where words have vectors that were learned elsewhere"
    )


def fewer() -> str:
    """F8: in the published sizes."""
    ours, theirs, bert = (PARAMETERS[name] for name in ("FedSeqRec", "FedNewsRec", "Bert4Rec"))
    counted = {name: max(numbers_trained(load_plan(name))) for name in ("fedseqrec-paper", "fednewsrec")}
    words = f"{counted['fedseqrec-paper']:,} against {counted['fednewsrec']:,} as counted here; Bert4Rec is printed with {bert:,}"
    held = counted == {"fedseqrec-paper": ours, "fednewsrec": theirs} and ours < min(theirs, bert)
    return finding("F8 (fewer parameters than FedNewsRec and Bert4Rec, published sizes)", held, words)
