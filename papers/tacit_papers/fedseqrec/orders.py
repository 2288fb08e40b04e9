"""Findings of Li et al. 2022: whether each holds in our measurements, as one sentence with the reason."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from tacit.lab.evaluation.statistics import PairedTest
from tacit_papers.fedseqrec.printed import COLUMNS
from tacit_papers.tables import finding

FEDERATED = ("FedSeqRec", "FedNewsRec", "FCF", "FedRec++")  # as in both of the paper's tables, best first
Points = Sequence[tuple[float, float]]


class Rows(Protocol):
    """What every row of a table answered."""

    values: dict

    def mean(self, row: str, metric: str) -> float:
        """Of a row."""
        ...

    def compare(self, ours: str, theirs: str, metric: str) -> PairedTest:
        """One row against another, session by session."""
        ...


def above(name: str, found: Rows, ours: str, theirs: str) -> str:
    """One row is above another on every metric, or where not; how much in NDCG@10, and whether that could be chance."""
    below = [metric for metric in COLUMNS if found.mean(ours, metric) <= found.mean(theirs, metric)]
    where = f"not in {', '.join(below)}; " if below else ""
    words = f"{where}{difference(found.compare(ours, theirs, 'NDCG@10'))}"
    return finding(f"{name} ({ours} above {theirs} on every metric)", not below, words)


def difference(one: PairedTest) -> str:
    """By how much in NDCG@10, and whether the sessions asked can tell the two apart."""
    span = one.difference
    words = f"{span.mean:+.2f} [{span.low:+.2f}, {span.high:+.2f}] in NDCG@10"
    return words if span.low > 0 or span.high < 0 else f"{words}; the sessions asked cannot tell them apart"


def ranking(found: Rows, paper: str) -> list[str]:
    """F1 among those who keep data apart, F2 against the central ones."""
    there = [row for row in FEDERATED if row in found.values]
    notes = [above("F1", found, high, low) for high, low in pairwise(there)]
    for row in ("GRU4Rec", "SR-GNN", "Bert4Rec"):
        if row in found.values:
            ours, theirs = ("FedSeqRec", row) if row != "Bert4Rec" or paper == "MovieData" else (row, "FedSeqRec")
            notes.append(above("F2", found, ours, theirs))
    return notes


def why_not(notes: Sequence[str], leak: str, smaller: str) -> list[str]:
    """What may stand behind an order of Table 3 that fails: months that leak, and how much `smaller` everything is here."""
    failed = [note for note in notes if " does not hold" in note]
    reasons = []
    if any(name in note for note in failed for name in ("FCF", "FedRec++")):
        reasons.append(
            "The reason may be that FCF and FedRec++ learn from all of a person's months, later ones too, and FedSeqRec is "
            f"shown the month alone. {leak[:1].upper()}{leak[1:]}."
        )
    if failed and smaller:
        reasons.append(f"The reason may be that {smaller}.")
    return reasons


def central(found: Rows) -> list[str]:
    """F3: pooling helps, and the order among what is pooled."""
    pairs = [("FedSeqRec, central", "FedSeqRec"), ("FedNewsRec, central", "FedNewsRec")]
    pairs.append(("FedSeqRec, central", "FedNewsRec, central"))
    return [above("F3", found, *pair) for pair in pairs if set(pair) <= set(found.values)]


def gains(moved: Mapping[str, tuple[float, float]]) -> list[str]:
    """F4 and F5: what re-averaging and the tensor layer add to NDCG@5, in per cent, log by log."""
    notes = []
    for log, (averaging, tensor) in moved.items():
        notes.append(
            finding(f"F4 (re-averaging above averaging, {log})", averaging > 0, f"{averaging:+.1f} % of NDCG@5")
        )
        notes.append(finding(f"F5 (the tensor layer helps, {log})", tensor > 0, f"{tensor:+.1f} % of NDCG@5"))
    if {"MoocData", "MovieData"} <= set(moved):
        more, less = moved["MoocData"][0], moved["MovieData"][0]
        words = f"{more:+.1f} % against {less:+.1f} %"
        notes.append(finding("F4 (more where organisations differ more)", more > less, words))
    return notes


def rises(name: str, row: str, points: Points) -> str:
    """The last point is above the first."""
    (first, low), (last, high) = points[0], points[-1]
    return finding(f"{name} ({row})", high > low, f"from {low:.2f} at {first:g} to {high:.2f} at {last:g}")


def falls(name: str, row: str, points: Points) -> str:
    """Every point is below the one before."""
    values = " > ".join(f"{y:.2f}" for _, y in points)
    broken = [f"{y:.2f} at {x:g} is not below {before:.2f}" for (_, before), (x, y) in pairwise(points) if y >= before]
    return finding(f"{name} ({row})", not broken, "; ".join(broken) if broken else values)


def together(means: Mapping[str, float], both: str) -> str:
    """Everybody together is above each one alone."""
    alone = max(value for row, value in means.items() if row != both)
    words = ", ".join(f"{row} {value:.2f}" for row, value in means.items())
    return finding("F6 (together above alone)", means[both] > alone, f"NDCG@10: {words}")


def settled(name: str, row: str, points: Points) -> str:
    """The second half of the way moves less than the first."""
    values = [y for _, y in points]
    middle = values[(len(values) - 1) // 2]
    words = f"from {values[0]:.2f} over {middle:.2f} to {values[-1]:.2f}"
    return finding(f"{name} ({row})", abs(values[-1] - middle) <= abs(middle - values[0]), words)
