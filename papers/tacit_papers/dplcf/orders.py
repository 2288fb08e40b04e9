"""The orders that DPLCF's paper found, D1 to D7, each held or failed by the numbers of a study, with tests and reasons."""

from collections.abc import Iterable, Mapping
from typing import Any

from tacit_papers.dplcf.study import CENTRAL, JUDGED, Study

CUTS = tuple(range(2, 11))
PRIVATE = ("BPR-MF", "GMF", "LCF-AP", "LCF-SP", "DPLCF-AP", "DPLCF-SP")
_TESTED = (5, 10)  # the cuts at which differences are tested


def orders(found: Study, metric: str) -> list[str]:
    """D1 to D5 on one log, whichever log the paper found them on; then paired tests of what they compare."""
    notes = [_bound(found, metric), *_estimates(found, metric), _raw(found, metric)]
    if all(row in found.sampled for row in CENTRAL):
        notes.append(_central(found, metric))
    pairs = (
        *(("DPLCF-AP", "LCF-AP"), ("DPLCF-SP", "LCF-AP"), ("DPLCF-SP", "LCF-SP"), ("DPLCF-SP, raw", "LCF-SP")),
        *(
            ("DPLCF-AP, shrunk", "DPLCF-AP"),
            ("DPLCF-SP, shrunk", "DPLCF-SP"),
            ("DPLCF-SP, shrunk", _best(found, metric)),
        ),
    )
    return [*notes, *(_tested(found, *pair, metric) for pair in pairs)]


def searched(found: Study) -> list[str]:
    """What was chosen for the central models, out of how many settings."""
    return [
        f"{row}: {_settings(one.best.settings)}, the best of {len(one.tried)} settings by {JUDGED} of each user's last training "
        f"item, which was held out ({JUDGED} {one.best.value:.4f}; the worst has {min(t.value for t in one.tried):.4f})."
        for row, one in found.chosen.items()
    ]


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix('hyper.')} {value:g}" for name, value in settings.items())


def flat(means: Mapping[str, list[float]], ours: str, label: str) -> str:
    """D7, from means by the number of neighbours: ours moves less than half as much as either LCF, and those rise."""
    moved = {row: max(one) - min(one) for row, one in means.items()}
    rising = all(means[row][-1] > means[row][0] for row in ("LCF-AP", "LCF-SP"))
    held = rising and moved[ours] < 0.5 * min(moved["LCF-AP"], moved["LCF-SP"])
    spans = ", ".join(f"{row} {means[row][0]:.4f} … {means[row][-1]:.4f}" for row in ("LCF-AP", "LCF-SP", ours))
    return _said("D7", f"{ours} hardly moves with the neighbours while LCF rises", held, label, spans)


def always(found: Mapping[float, Study], ours: str, rivals: list[str], metric: str) -> str:
    """D6, from one study for each ε, against the rivals that were run at every one of them."""
    lost = [e for e, one in found.items() if one.mean(ours, metric) < max(one.mean(row, metric) for row in rivals)]
    words = "at every ε" if not lost else f"not at ε = {', '.join(f'{e:g}' for e in lost)}"
    label = next(iter(found.values())).log.label
    claim = f"{ours} above {', '.join(rivals[:-1])} and {rivals[-1]}"
    return _said("D6", claim, not lost, label, f"{metric}, {words}")


def _said(order: str, claim: str, held: bool, label: str, words: str) -> str:
    return f"{order}, {claim}: {'holds' if held else 'does not hold'} on {label}; {words}."


def _bound(found: Study, metric: str) -> str:
    below = [row for row in found.sampled if row != "LCF-UB"]
    held = all(found.mean("LCF-UB", f"{metric}@{k}") > found.mean(row, f"{metric}@{k}") for row in below for k in CUTS)
    return _said("D1", "LCF-UB above everything private at every K", held, found.log.label, _loud(found))


def _estimates(found: Study, metric: str) -> Iterable[str]:
    """D2 and D3: the paper's on App Usage, and on MovieLens up to K = 9; as clamped, and as shrunk."""
    for order, ours, cuts in (("D2", "DPLCF-AP", CUTS), ("D3", "DPLCF-SP", CUTS[:-1])):
        for row in (ours, f"{ours}, shrunk"):
            held, by = _ahead(found, row, "LCF-AP", metric, cuts)
            claim = f"{row} above LCF-AP at K = {cuts[0]} … {cuts[-1]}"
            yield _said(order, claim, held, found.log.label, by if held else f"{by}; {_loud(found)}")


def _raw(found: Study, metric: str) -> str:
    """D4: the paper's on App Usage; with a word on clamping, which it does not mention."""
    raw, raw_by = _ahead(found, "LCF-SP", "DPLCF-SP, raw", metric)
    clamped, clamped_by = _ahead(found, "DPLCF-SP", "LCF-SP", metric)
    also = "clamping mends it" if clamped else "clamping does not mend it at every K"
    return _said("D4", "raw estimates worse than none", raw, found.log.label, f"{raw_by}; {also}, {clamped_by}")


def _central(found: Study, metric: str) -> str:
    central = [_ahead(found, "LCF-SP", row, metric) for row in CENTRAL]
    held = all(held for held, _ in central)
    return _said(
        "D5",
        "central models of the randomised bits below LCF",
        held,
        found.log.label,
        "; ".join(by for _, by in central),
    )


def _ahead(found: Study, ours: str, theirs: str, metric: str, cuts: Iterable[int] = CUTS) -> tuple[bool, str]:
    """Whether ours is above theirs at every cut, and by how much."""
    means = [(found.mean(ours, f"{metric}@{k}"), found.mean(theirs, f"{metric}@{k}")) for k in cuts]
    gains = [100 * (a / max(b, 1e-9) - 1) for a, b in means]
    return min(gains) > 0, f"{ours} against {theirs}: {min(gains):+.1f} % to {max(gains):+.1f} %"


def _tested(found: Study, ours: str, theirs: str, metric: str) -> str:
    """The paired test over users, at two cuts."""
    some = [found.compare(ours, theirs, f"{metric}@{cut}") for cut in _TESTED]
    words = (
        f"@{cut} {one.difference.mean:+.4f} [{one.difference.low:+.4f}, {one.difference.high:+.4f}], p = {one.t:.2g}"
        for cut, one in zip(_TESTED, some)
    )
    return f"Paired t-test, {ours} − {theirs}, {metric}: {'; '.join(words)}."


def _loud(found: Study) -> str:
    return (
        f"the noise of a count, √(M·q(1 − q))/(p − q), is {found.floor:.0f} people, and the median co-occurring pair is "
        f"had by {found.typical:.0f}"
    )


def _best(found: Study, metric: str) -> str:
    """The best private rival that is not DPLCF."""
    rivals = [row for row in found.sampled if row in PRIVATE and not row.startswith("DPLCF")]
    return max(rivals, key=lambda row: found.mean(row, f"{metric}@10"))
