"""DPLCF, Gao et al. 2020: item similarity from randomised bits, Tables 1 to 6 and Figure 3."""

from collections.abc import Iterable
from functools import cached_property

from tacit.lab.dplcf_study import CENTRAL, ROWS, Log, Study, large_log, small_log, study
from tacit.lab.reproduce import Cell, Figure, Options, Table

ABOUT = "Gao et al. 2020: item-based recommendation from randomised bits, one upload a device"
CUTS = tuple(range(2, 11))
NEIGHBOURS = (20, 30, 40, 50)
EPSILONS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PRIVATE = ("BPR-MF", "GMF", "LCF-AP", "LCF-SP", "DPLCF-AP", "DPLCF-SP")

# What the paper prints, for the cuts 2 to 10; Table 6 for 20, 30, 40 and 50 neighbours.
TABLE1 = {"small": (871, 1682, 51_935, 0.96455), "large": (74_529, 9953, 18_848_812, 0.97459)}
SMALL = {
    "HR": {
        "LCF-UB": (0.5885, 0.6989, 0.7609, 0.7977, 0.8195, 0.8414, 0.8586, 0.8655, 0.8713),
        "BPR-MF": (0.2241, 0.2621, 0.2966, 0.3356, 0.3552, 0.3839, 0.4138, 0.4483, 0.4770),
        "GMF": (0.2218, 0.2667, 0.3092, 0.3368, 0.3644, 0.3966, 0.4230, 0.4414, 0.4678),
        "LCF-AP": (0.3345, 0.3897, 0.4368, 0.4678, 0.4977, 0.5207, 0.5471, 0.5609, 0.5839),
        "LCF-SP": (0.3080, 0.3655, 0.4080, 0.4368, 0.4747, 0.4977, 0.5207, 0.5333, 0.5517),
        "DPLCF-AP": (0.3448, 0.4138, 0.4517, 0.4874, 0.5184, 0.5437, 0.5621, 0.5770, 0.5943),
        "DPLCF-SP": (0.2264, 0.2609, 0.2851, 0.2977, 0.3149, 0.3299, 0.3425, 0.3575, 0.3747),
    },
    "NDCG": {
        "LCF-UB": (0.5172, 0.5724, 0.5991, 0.6134, 0.6211, 0.6284, 0.6339, 0.6359, 0.6376),
        "BPR-MF": (0.1949, 0.2138, 0.2287, 0.2438, 0.2508, 0.2603, 0.2698, 0.2801, 0.2885),
        "GMF": (0.1930, 0.2154, 0.2337, 0.2444, 0.2542, 0.2649, 0.2733, 0.2788, 0.2865),
        "LCF-AP": (0.3039, 0.3315, 0.3518, 0.3638, 0.3745, 0.3821, 0.3905, 0.3946, 0.4013),
        "LCF-SP": (0.2792, 0.3079, 0.3263, 0.3374, 0.3509, 0.3585, 0.3658, 0.3696, 0.3749),
        "DPLCF-AP": (0.3088, 0.3433, 0.3596, 0.3734, 0.3844, 0.3929, 0.3987, 0.4032, 0.4081),
        "DPLCF-SP": (0.2103, 0.2276, 0.2380, 0.2428, 0.2490, 0.2540, 0.2580, 0.2625, 0.2674),
    },
}
LARGE = {
    "HR": {
        "LCF-UB": (0.4675, 0.5695, 0.6431, 0.7006, 0.7446, 0.7804, 0.8081, 0.8318, 0.8505),
        "LCF-AP": (0.3662, 0.4454, 0.5060, 0.5541, 0.5935, 0.6280, 0.6563, 0.6806, 0.7030),
        "LCF-SP": (0.3661, 0.4430, 0.4999, 0.5440, 0.5802, 0.6096, 0.6354, 0.6577, 0.6763),
        "DPLCF-AP": (0.3513, 0.4274, 0.4880, 0.5351, 0.5757, 0.6126, 0.6424, 0.6711, 0.6962),
        "DPLCF-SP": (0.4203, 0.5003, 0.5559, 0.5969, 0.6271, 0.6520, 0.6716, 0.6877, 0.7000),
    },
    "NDCG": {
        "LCF-UB": (0.4122, 0.4633, 0.4950, 0.5172, 0.5329, 0.5448, 0.5536, 0.5607, 0.5661),
        "LCF-AP": (0.3234, 0.3629, 0.3891, 0.4077, 0.4217, 0.4332, 0.4421, 0.4494, 0.4559),
        "LCF-SP": (0.3241, 0.3625, 0.3871, 0.4041, 0.4170, 0.4268, 0.4349, 0.4417, 0.4470),
        "DPLCF-AP": (0.3110, 0.3491, 0.3752, 0.3934, 0.4079, 0.4201, 0.4296, 0.4382, 0.4454),
        "DPLCF-SP": (0.3735, 0.4135, 0.4374, 0.4533, 0.4641, 0.4724, 0.4786, 0.4834, 0.4870),
    },
}
TABLE6 = {
    5: {
        "LCF-AP": (0.4077, 0.4170, 0.4212, 0.4245),
        "LCF-SP": (0.4041, 0.4156, 0.4195, 0.4262),
        "DPLCF-SP": (0.4533, 0.4517, 0.4500, 0.4491),
    },
    10: {
        "LCF-AP": (0.4559, 0.4666, 0.4717, 0.4755),
        "LCF-SP": (0.4470, 0.4612, 0.4666, 0.4751),
        "DPLCF-SP": (0.4870, 0.4872, 0.4861, 0.4859),
    },
}


def reproduce(options: Options) -> list[Table | Figure]:
    """The tables and figures that were asked for; Figure 3 has a part for each metric."""
    return list(_Paper(options).parts())


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
        return study(self.small, self.options.seeds, full=True)

    @cached_property
    def on_large(self) -> Study:
        rows = [row for row in ROWS if row not in CENTRAL]  # not in the paper either: too many fake ones
        return study(self.large, self.options.seeds, rows, full=True)

    def parts(self) -> Iterable[Table | Figure]:
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
                table.notes += _small_notes(found, metric) if of == "small" else _large_notes(found, metric)
            yield table

    def noise(self) -> Iterable[Figure]:
        """Figure 3: metrics against ε; the paper prints curves, no numbers."""
        rows = ("LCF-AP", "LCF-SP", "DPLCF-AP", "DPLCF-SP", "DPLCF-AP, shrunk", "DPLCF-SP, shrunk")
        if self.options.size == "paper":
            rows = (*CENTRAL, *rows)
        found = {epsilon: study(self.small, self.options.seeds, rows, epsilon=epsilon) for epsilon in EPSILONS}
        for metric in ("HR@5", "HR@10", "NDCG@5", "NDCG@10"):
            figure = Figure("figure3", f"Figure 3: {metric} against ε", self.small.label, "ε", metric)
            for row in rows:
                figure.series[row] = [(epsilon, one.mean(row, metric)) for epsilon, one in found.items()]
            rivals = [row for row in rows if row in PRIVATE and row != "DPLCF-AP"]
            figure.notes += [_always(found, row, rivals, metric) for row in ("DPLCF-AP", "DPLCF-AP, shrunk")]
            yield figure

    def neighbourhoods(self) -> Iterable[Table]:
        """Table 6: NDCG against the number of neighbours."""
        rows = ("LCF-AP", "LCF-SP", "DPLCF-SP", "DPLCF-SP, shrunk")
        known = {self.large.neighbours: self.on_large} if "on_large" in vars(self) else {}
        found = {
            k: known[k] if k in known else study(self.large._replace(neighbours=k), self.options.seeds, rows)
            for k in NEIGHBOURS
        }
        for part, cut in zip("ab", (5, 10)):
            columns = tuple(f"{k} neighbours" for k in NEIGHBOURS)
            table = Table("table6", f"Table 6{part}: NDCG@{cut} by neighbours", self.large.label, columns)
            for row in rows:
                paper = TABLE6[cut].get(row, (None,) * 4)
                spans = [found[k].interval(row, f"NDCG@{cut}") for k in NEIGHBOURS]
                cells = [Cell(span.mean, span.low, span.high, beside) for span, beside in zip(spans, paper)]
                table.add(row, dict(zip(columns, cells)))
            means = {row: [found[k].mean(row, f"NDCG@{cut}") for k in NEIGHBOURS] for row in rows}
            table.notes += [_flat(means, row) for row in ("DPLCF-SP", "DPLCF-SP, shrunk")]
            yield table


def _cells(found: Study, row: str, metric: str, paper: tuple, full: bool) -> dict[str, Cell]:
    cells = {}
    for cut, beside in zip(CUTS, paper):
        span = found.interval(row, f"{metric}@{cut}", full)
        cells[f"{metric}@{cut}"] = Cell(span.mean, span.low, span.high, beside)
    return cells


def _said(order: str, held: bool, words: str) -> str:
    return f"{order} {'holds' if held else 'does not hold'}: {words}."


def _ahead(found: Study, ours: str, theirs: str, metric: str, cuts: Iterable[int] = CUTS) -> tuple[bool, str]:
    """Whether ours is above theirs at every cut, and by how much."""
    means = [(found.mean(ours, f"{metric}@{k}"), found.mean(theirs, f"{metric}@{k}")) for k in cuts]
    gains = [100 * (a / max(b, 1e-9) - 1) for a, b in means]
    return min(gains) > 0, f"{ours} against {theirs}: {min(gains):+.1f} % to {max(gains):+.1f} %"


def _tested(found: Study, ours: str, theirs: str, metric: str) -> str:
    one = found.compare(ours, theirs, f"{metric}@10")
    return (
        f"Paired t-test, {one.name}: {one.difference.mean:+.4f} [{one.difference.low:+.4f}, {one.difference.high:+.4f}], "
        f"p = {one.t:.2g}."
    )


def _floor(found: Study) -> str:
    return (
        f"the noise of a count, √(M·q(1 − q))/(p − q), is {found.floor:.0f} people, and the median pair that anybody has is "
        f"had by {found.typical:.0f}"
    )


def _best(found: Study, metric: str) -> str:
    rivals = [row for row in found.sampled if row in PRIVATE and not row.startswith("DPLCF")]
    return max(rivals, key=lambda row: found.mean(row, f"{metric}@10"))


def _bound(found: Study, metric: str) -> str:
    below = [row for row in found.sampled if row != "LCF-UB"]
    held = all(found.mean("LCF-UB", f"{metric}@{k}") > found.mean(row, f"{metric}@{k}") for row in below for k in CUTS)
    return _said("D1", held, f"LCF-UB is above everything private at every K ({_floor(found)})")


def _small_notes(found: Study, metric: str) -> list[str]:
    """D1, D2, D4, D5, and the paper's test."""
    ahead, by = _ahead(found, "DPLCF-AP", "LCF-AP", metric)
    raw, raw_by = _ahead(found, "LCF-SP", "DPLCF-SP, raw", metric)
    clamped, clamped_by = _ahead(found, "DPLCF-SP", "LCF-SP", metric)
    central = [_ahead(found, "LCF-SP", row, metric) for row in CENTRAL]
    also = "with counts clamped to what counts can be, it is above LCF-SP" if clamped else "clamping does not mend it"
    return [
        _bound(found, metric),
        _said("D2", ahead, by),
        _said("D2, similarities shrunk by their errors,", *_ahead(found, "DPLCF-AP, shrunk", "LCF-AP", metric)),
        _said("D4", raw, f"raw estimates are worse than none, {raw_by}; {also} ({clamped_by})"),
        _said("D5", all(held for held, _ in central), "; ".join(words for _, words in central)),
        _tested(found, "DPLCF-AP", _best(found, metric), metric),
        _tested(found, "DPLCF-SP, shrunk", "DPLCF-SP", metric),
    ]


def _large_notes(found: Study, metric: str) -> list[str]:
    """D1, D3, and the paper's test."""
    ahead, by = _ahead(found, "DPLCF-SP", "LCF-AP", metric, range(2, 10))
    shrunk, shrunk_by = _ahead(found, "DPLCF-SP, shrunk", "LCF-AP", metric, range(2, 10))
    return [
        _bound(found, metric),
        _said("D3", ahead, f"{by} for K up to 9; {_floor(found)}"),
        _said("D3, similarities shrunk by their errors,", shrunk, shrunk_by),
        _tested(found, "DPLCF-SP", "LCF-AP", metric),
        _tested(found, "DPLCF-SP, shrunk", "LCF-AP", metric),
    ]


def _flat(means: dict[str, list[float]], ours: str) -> str:
    """D7."""
    moved = {row: max(one) - min(one) for row, one in means.items()}
    rising = all(means[row][-1] > means[row][0] for row in ("LCF-AP", "LCF-SP"))
    held = rising and moved[ours] < 0.5 * min(moved["LCF-AP"], moved["LCF-SP"])
    spans = ", ".join(f"{row} {means[row][0]:.4f} … {means[row][-1]:.4f}" for row in ("LCF-AP", "LCF-SP", ours))
    return _said("D7", held, f"{ours} hardly moves with the neighbours while LCF rises: {spans}")


def _always(found: dict[float, Study], ours: str, rivals: list[str], metric: str) -> str:
    """D6."""
    lost = [e for e, one in found.items() if one.mean(ours, metric) < max(one.mean(row, metric) for row in rivals)]
    words = "at every ε" if not lost else f"but not at ε = {', '.join(f'{e:g}' for e in lost)}"
    return _said("D6", not lost, f"{ours} is above every private rival as the paper has them, {words}")
