"""DPLCF, Gao et al. 2020: item similarity from randomised bits, Tables 1 to 6 and Figure 3."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from tacit_papers import Cell, Figure, Options, Table
from tacit_papers.dplcf.orders import CUTS, PRIVATE, always, flat, orders, searched
from tacit_papers.dplcf.printed import LARGE, SMALL, TABLE1, TABLE6
from tacit_papers.dplcf.study import CENTRAL, ROWS, Log, Study, large_log, run_study, small_log

ABOUT = "Gao et al. 2020: item-based recommendation from randomised bits, one upload a device"
PARTS = (*(f"table{n}" for n in range(1, 7)), "figure3")
NEIGHBOURS = (20, 30, 40, 50)
EPSILONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def reproduce(options: Options) -> Iterator[Table | Figure]:
    """The tables and figures that were asked for; Figure 3 has a part for each metric."""
    return _Paper(options).parts()


class _Paper:
    """The paper on the logs that are there; what two tables share is run once."""

    def __init__(self, options: Options):
        self.options = options

    @cached_property
    def small(self) -> Log:
        return small_log(self.options.data, self.options.size)

    @cached_property
    def large(self) -> Log:
        return large_log(self.options.data, self.options.size)

    @cached_property
    def on_small(self) -> Study:
        return run_study(self.small, self.options.seeds, full=True)

    @cached_property
    def on_large(self) -> Study:
        rows = [row for row in ROWS if row not in CENTRAL]  # not in the paper either: too many fake ones
        return run_study(self.large, self.options.seeds, rows, full=True)

    def parts(self) -> Iterator[Table | Figure]:
        """In the paper's order."""
        wants = self.options.wants
        if wants("table1"):
            yield self.statistics()
        for number, of, metric, printed in (
            *((2, "small", "HR", SMALL), (3, "small", "NDCG", SMALL)),
            *((4, "large", "HR", LARGE), (5, "large", "NDCG", LARGE)),
        ):
            if wants(f"table{number}"):
                yield from self.ranking(number, of, metric, printed[metric])
        if wants("figure3"):
            yield from self.noise()
        if wants("table6"):
            yield from self.neighbourhoods()

    def statistics(self) -> Table:
        """Table 1."""
        columns = ("users", "items", "interactions", "empty in ‰")
        table = Table("table1", "Table 1: the logs", f"{self.small.label}; {self.large.label}", columns, 0)
        for row, log, size in (("App Usage", self.small, "small"), ("MovieLens", self.large, "large")):
            people, printed = log.people, TABLE1[size]
            ours = (len(people), people.catalog.n_items, people.items.size, log.sparsity)
            scales = (1, 1, 1, 1000)
            cells = (Cell(a * scale, paper=b * scale) for a, b, scale in zip(ours, printed, scales))
            table.add(f"{row}: {log.label}", dict(zip(columns, cells)))
        return table

    def ranking(self, number: int, of: str, metric: str, printed: dict) -> Iterable[Table]:
        """Tables 2 to 5: among 99 sampled items as in the paper, then among all."""
        found: Study = getattr(self, f"on_{of}")
        name = "App Usage" if of == "small" else "MovieLens"
        for full in (False, True):
            among = (
                "all items not yet seen, one seed" if full else f"1 + 99 sampled items, {len(self.options.seeds)} seeds"
            )
            title = f"Table {number}: {metric}@K in place of {name}, ε = 1, among {among}"
            table = Table(f"table{number}", title, found.log.label, tuple(f"{metric}@{cut}" for cut in CUTS))
            for row in found.sampled:
                paper = (None,) * 9 if full else printed.get(row, (None,) * 9)
                table.add(row, _cells(found, row, metric, paper, full), found.digests[row])
            if not full:
                table.notes += [*orders(found, metric), *searched(found)]
            yield table

    def noise(self) -> Iterable[Figure]:
        """Figure 3: metrics against ε; the paper prints curves, no numbers."""
        rows = ("LCF-AP", "LCF-SP", "DPLCF-AP", "DPLCF-SP", "DPLCF-AP, shrunk", "DPLCF-SP, shrunk")
        if self.options.size == "paper":
            rows = (*CENTRAL, *rows)
        found = {epsilon: run_study(self.small, self.options.seeds, rows, epsilon=epsilon) for epsilon in EPSILONS}
        for metric in ("HR@5", "HR@10", "NDCG@5", "NDCG@10"):
            figure = Figure("figure3", f"Figure 3: {metric} against ε", self.small.label, "ε", metric)
            for row in rows:
                points = ((epsilon, one.mean(row, metric)) for epsilon, one in found.items())
                figure.draw(row, points, [one.digests[row] for one in found.values()])
            rivals = [row for row in rows if row in PRIVATE and row != "DPLCF-AP"]
            figure.notes += [always(found, row, rivals, metric) for row in ("DPLCF-AP", "DPLCF-AP, shrunk")]
            yield figure

    def neighbourhoods(self) -> Iterable[Table]:
        """Table 6: NDCG against the number of neighbours."""
        rows = ("LCF-AP", "LCF-SP", "DPLCF-SP", "DPLCF-SP, shrunk")
        known = {self.large.neighbours: self.on_large} if "on_large" in vars(self) else {}
        found = {
            k: known[k] if k in known else run_study(self.large._replace(neighbours=k), self.options.seeds, rows)
            for k in NEIGHBOURS
        }
        for part, cut in zip("ab", (5, 10)):
            columns = tuple(f"{k} neighbours" for k in NEIGHBOURS)
            table = Table("table6", f"Table 6{part}: NDCG@{cut} by neighbours", self.large.label, columns)
            for row in rows:
                paper = TABLE6[cut].get(row, (None,) * 4)
                spans = [found[k].interval(row, f"NDCG@{cut}") for k in NEIGHBOURS]
                cells = [Cell.of(span, beside) for span, beside in zip(spans, paper)]
                table.add(row, dict(zip(columns, cells)))
            means = {row: [found[k].mean(row, f"NDCG@{cut}") for k in NEIGHBOURS] for row in rows}
            table.notes += [flat(means, row, self.large.label) for row in ("DPLCF-SP", "DPLCF-SP, shrunk")]
            yield table


def _cells(found: Study, row: str, metric: str, paper: tuple, full: bool) -> dict[str, Cell]:
    cells = {}
    for cut, beside in zip(CUTS, paper):
        span = found.interval(row, f"{metric}@{cut}", full)
        cells[f"{metric}@{cut}"] = Cell.of(span, beside)
    return cells
