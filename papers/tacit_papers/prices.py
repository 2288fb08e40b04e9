"""Paper prices: the privacy that five papers claim for their own settings, beside what the accountant computes.

What a paper prints or sets is typed here; every other number is computed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from tacit.privacy.accounting.accountant import compose, default_delta, group_privacy, guess_bound
from tacit.privacy.accounting.events import Event, FixedGaussian, Pure, Unbounded
from tacit.privacy.accounting.pld import pld_fixed
from tacit.privacy.accounting.rdp import rdp_fixed
from tacit.privacy.claim import Relation, Trust, Unit

# ---- Tables 4 and 5 of Wang et al. 2021 ----


CELL_COLUMNS = {
    "table": "table",
    "cohort": "M",
    "devices": "N",
    "delta": "δ",
    "printed": "printed",
    "reproduced": "reproduced",
    "rdp": "RDP",
    "lower": "at least",
    "upper": "at most",
    "factor": "printed / at most",
}

# Tables 4 and 5 of Wang et al., z = 1, E₁ = 1000: (table, M, N), then ε as printed at δ = 1e-8, 1e-6 and 1e-4.
_DELTAS = (1e-8, 1e-6, 1e-4)
PRINTED = {
    (4, 5, 4800): (1.7439, 1.3602, 0.9764),
    (4, 10, 4800): (3.2117, 2.7511, 2.2535),
    (4, 15, 4800): (5.9705, 5.2030, 4.3074),
    (4, 20, 4800): (9.4736, 8.3223, 6.9235),
    (4, 25, 4800): (13.7047, 12.1696, 10.2052),
    (4, 30, 4800): (18.9107, 16.6081, 14.3056),
    (5, 2, 760): (2.2994, 1.8388, 1.3783),
    (5, 5, 760): (7.4618, 6.5408, 5.3932),
    (5, 8, 760): (16.2853, 14.3169, 12.0143),
    (5, 10, 760): (23.7651, 21.4626, 18.6182),
    (5, 12, 760): (34.5025, 30.0690, 25.4638),
    (5, 15, 760): (50.1537, 45.5485, 40.9433),
}


def privrec_tables() -> list[dict[str, Any]]:
    """Tables 4 and 5 of Wang et al., cell by cell: printed, reproduced, and what 1000 rounds cost.

    `reproduced` counts every member of a cohort as a round of its own, which gives the printed numbers to the last
    digit. `rdp`, `lower` and `upper` are for 1000 rounds with a cohort of fixed size, replace-one, a trusted server.
    `CELL_COLUMNS` has the titles.
    """
    return [dict(cell) for cell in _cells()]


@lru_cache(maxsize=1)
def _cells() -> tuple[dict[str, Any], ...]:
    return tuple(
        _cell(*place, delta, printed) for place, row in PRINTED.items() for delta, printed in zip(_DELTAS, row)
    )


def _cell(table: int, cohort: int, devices: int, delta: float, printed: float) -> dict[str, Any]:
    lower, upper = pld_fixed(devices, cohort, 1.0, 1000, delta)
    return {
        "table": table,
        "cohort": cohort,
        "devices": devices,
        "delta": delta,
        "printed": printed,
        "reproduced": overcounted(devices, cohort, delta),
        "rdp": rdp_fixed(devices, cohort, 1.0, 1000, delta),
        "lower": lower,
        "upper": upper,
        "factor": printed / upper,
    }


def overcounted(devices: int, cohort: int, delta: float, multiplier: float = 1.0, rounds: int = 1000) -> float:
    """A reproduction of Wang et al.'s Tables 4 and 5, not a bound to use: every member of a cohort counted as a round.

    Sampling, relation and multiplier as in `rdp_fixed`, the classic conversion, and rounds·cohort compositions.
    """
    return rdp_fixed(devices, cohort, multiplier, rounds * cohort, delta, conversion="classic")


# ---- claims of five papers ----


COLUMNS = {
    "paper": "paper",
    "setting": "setting",
    "claimed": "as claimed",
    "accounted": "as accounted",
    "unit": "unit",
    "relation": "neighbours",
    "trust": "trusted",
    "reason": "why",
}


@dataclass(frozen=True)
class Row:
    """One setting of one paper: its claim, the ε it has, and why."""

    paper: str
    setting: str
    claimed: str
    epsilon: float
    reason: str
    delta: float = 0.0
    lower: float = 0.0  # 0: not known
    unit: Unit = "user"
    relation: Relation = "replace_one"
    trust: Trust = "nobody"

    @property
    def accounted(self) -> str:
        """ε as text, with its δ and, where one is known, its lower end."""
        epsilon = "∞" if math.isinf(self.epsilon) else f"{self.epsilon:.4g}"
        between = f"{self.lower:.4g} to " if 0 < self.lower < self.epsilon else ""
        return between + epsilon + (f" at δ = {self.delta:.0e}" if self.delta else "")


def rows() -> list[dict[str, Any]]:
    """The overview, paper by paper; `COLUMNS` has the titles. `epsilon`, `lower` and `delta` are there as numbers too."""
    return [{**asdict(row), "accounted": row.accounted} for row in _rows()]


@lru_cache(maxsize=1)
def _rows() -> tuple[Row, ...]:
    return (*_qharmony(), *_dplcf(), *_fedseqrec(), *_fpl(), *_privrec())


def _cost(events: Iterable[tuple[Event, int]], delta: float) -> dict[str, Any]:
    bound = compose(list(events), delta)
    return {"epsilon": bound.epsilon, "lower": bound.lower, "delta": delta}


def _qharmony() -> Iterable[Row]:
    paper = "QHarmony, Saiapin et al. 2024"
    for log, users, epsilon, cycles, every in (("LSApp", 292, 4.5, 33, 10), ("App Usage", 1000, 1.1, 7, 2)):
        claimed, updates = f"ε = {epsilon}", cycles // every
        clear = compose([(Pure(epsilon), 1), (Unbounded("the largest gradient"), 1)], 0.0).epsilon
        reason = "the largest gradient is sent as it is, and the server can test any history against it"
        yield Row(paper, f"{log}, one message", claimed, clear, reason, trust="server")
        reason = "the random signs alone: k bits of ε/k each, together exactly ε"
        yield Row(paper, f"{log}, one message, signs only", claimed, compose([(Pure(epsilon), 1)], 0.0).epsilon, reason)
        updated = f"Q is updated every {every} of {cycles} cycles, and messages add up"
        setting = f"{log}, {updates} updates, signs only"
        yield Row(paper, setting, claimed, reason=updated, **_cost([(Pure(epsilon), updates)], 0.0))
        reason = f"giving up δ gains next to nothing for {updates} messages"
        yield Row(paper, setting, claimed, reason=reason, **_cost([(Pure(epsilon), updates)], default_delta(users)))


def response_epsilon(p: float, q: float) -> tuple[float, float]:
    """ε of one yes-or-no answer, two-sided and one-sided, where yes is said with probability p if true and q if not.

    >>> response_epsilon(1.0, 0.5)
    (inf, 0.6931471805599453)
    """
    one_sided = math.log(p / q)
    return max(one_sided, math.log((1 - q) / (1 - p)) if p < 1 else math.inf), one_sided


def _dplcf() -> Iterable[Row]:
    paper, claimed, epsilon = "DPLCF, Gao et al. 2020", "ε = 1", 1.0
    p = 1 / (1 + math.exp(-epsilon))
    bit, _ = response_epsilon(p, 1 - p)
    alone: dict[str, Any] = {"unit": "interaction", "relation": "add_remove"}
    yield Row(paper, "SP, one interaction", claimed, bit, "each answer is randomised on its own", **alone)
    for log, users, items, records in (("App Usage", 871, 1682, 51_935), ("MovieLens", 74_529, 9953, 18_848_812)):
        n, delta = round(records / users), default_delta(users)
        reason = f"{n} interactions a user on average, each at ε"
        yield Row(paper, f"SP, {log}, a history or none", claimed, group_privacy(bit, n), reason, relation="zero_out")
        reason = f"two histories of {n} differ in up to {2 * n} answers"
        yield Row(paper, f"SP, {log}, any two such histories", claimed, group_privacy(bit, 2 * n), reason)
        yield Row(
            paper,
            f"SP, {log}, any two such histories",
            claimed,
            reason="the same, giving up δ",
            **_cost([(Pure(bit), 2 * n)], delta),
        )
        reason = f"all {items} answers may differ"
        yield Row(paper, f"SP, {log}, any two users", claimed, group_privacy(bit, items), reason)
    both, one = response_epsilon(1.0, math.exp(-epsilon))
    yield Row(paper, "AP, one interaction", claimed, both, "p = 1, so a no is always true", trust="server", **alone)
    alone["relation"] = "one_sided_1_to_0"
    yield Row(paper, "AP, one interaction, one-sided", claimed, one, "a yes is deniable, a no is not", **alone)


def _fedseqrec() -> Iterable[Row]:
    paper, claimed = "FedSeqRec, Li et al. 2022", "larger λ, more private"
    silo: dict[str, Any] = {"unit": "client(silo)"}
    unclipped = compose([(Unbounded("weights"), 1)], 0.0).epsilon
    reason = "weights have no bound, so no noise covers them; lengths of sequences are sent as they are"
    yield Row(paper, "Laplace noise, any λ", claimed, unclipped, reason, trust="server", **silo)
    clip, scale = 1.0, 0.5
    message = Pure(2 * clip / scale)
    for rounds in (1, 200):
        cost = compose([(message, rounds)], 0.0).epsilon
        setting = f"corrected: update clipped to C = {clip:g} in L1, λ = {scale:g}, {rounds} round{'s' * (rounds > 1)}"
        yield Row(paper, setting, "not in the paper", cost, "2C/λ a round", **silo)


def disclosed(share: float, items: float, triples: float) -> float:
    """The expected fraction of a person's items told, when each triple draws one and tells it with this probability.

    >>> round(disclosed(0.1, 34.34, 1717), 4)
    0.9933
    """
    return 1 - (1 - share / items) ** triples


def _fpl() -> Iterable[Row]:
    items, epochs = 34.34, 50  # Table 1, Brazil: records per user; up to 50 iterations, one triple a record each
    triples = items * epochs
    found = disclosed(1.0, items, triples)
    for share in (0.0, 0.1, 1.0):
        claimed = "no item shared" if share == 0 else f"{share:.0%} of the items shared"
        cost = compose([(Unbounded("updates"), 1)], 0.0).epsilon
        told = disclosed(share, items, triples)
        reason = (
            f"after {epochs} epochs {told:.1%} of a user's items were sent openly; {found:.1%} were in a triple, whose "
            "other update gives the hidden item away"
        )
        yield Row("FPL, Anelli et al. 2021", f"π = {share:g}, Brazil", claimed, cost, reason, trust="server")


def _privrec() -> Iterable[Row]:
    paper, delta = "DP-PrivRec, Wang et al. 2021", 1e-6

    def row(setting: str, claimed: str, reason: str, cohort: int, devices: int, rounds: int, z: float = 1.0) -> Row:
        cost = _cost([(FixedGaussian(2 * z, cohort, devices), rounds)], delta)
        reason = reason.format(rdp=rdp_fixed(devices, cohort, z, rounds, delta))
        return Row(paper, setting, claimed, reason=reason, trust="server", **cost)

    for table, cohort, devices in ((4, 30, 4800), (5, 15, 760)):
        claimed = f"ε = {PRINTED[table, cohort, devices][1]}"
        reason = (
            "the printed ε counts every member of a cohort as a round; 1000 rounds are {rdp:.4g} by RDP, less by PLD"
        )
        yield row(f"Table {table}, {cohort} of {devices}, z = 1, 1000 rounds", claimed, reason, cohort, devices, 1000)
    for step in (2.0, 0.5):
        reason = f"noise is added after the step α₂, so z is really {1 / step:g}; {{rdp:.4g}} by RDP"
        yield row(f"30 of 4800, Algorithm 2, α₂ = {step:g}", "as with α₂ = 1", reason, 30, 4800, 1000, 1 / step)
    for cohort, devices, rounds in ((20, 4800, 80), (30, 760, 40)):
        setting = f"{cohort} of {devices}, {rounds} rounds, as trained"
        yield row(setting, "not stated", "fewer rounds than in the tables; {rdp:.4g} by RDP", cohort, devices, rounds)
    both = compose([(FixedGaussian(2.0, 30, 4800), 1000), (Unbounded("item vectors"), 1)], delta).epsilon
    reason = "stage 1 learns item vectors from people's sequences without noise and releases them"
    yield Row(paper, "both stages", "as stage 2 alone", both, reason, delta, trust="server")
    alone = rdp_fixed(4800, 30, 1.0, 1000, delta)
    reason = f"a private first stage costs little: {{rdp:.4g}} instead of {alone:.4g} by RDP"
    yield row("30 of 4800, 200 private rounds before the 1000", "not in the paper", reason, 30, 4800, 1200)


def guesses() -> list[dict[str, Any]]:
    """What ε means: by how much odds can change, and how often somebody can be right about a fair coin."""
    return [
        {
            "ε": f"{epsilon:g}",
            "odds grow at most by": f"{math.exp(epsilon):.4g}",
            "right at most": f"{guess_bound(epsilon):.2%}",
        }
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
    ]


def to_markdown() -> str:
    """The overview and the tables, as Markdown. Reproduced numbers are cut after four digits, as the printed ones are."""
    cells = [
        {**cell, "delta": f"{cell['delta']:.0e}", "reproduced": math.floor(cell["reproduced"] * 1e4) / 1e4}
        for cell in privrec_tables()
    ]
    return f"{_table(rows(), COLUMNS)}\n\n{_table(cells, CELL_COLUMNS)}"


def _table(values: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    def text(value: Any) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value).replace("_", "-")

    lines = [
        list(titles.values()),
        ["---"] * len(titles),
        *([text(value[name]) for name in titles] for value in values),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def guesses_to_markdown() -> str:
    """What ε means, as Markdown."""
    return _table(guesses(), {name: name for name in guesses()[0]})
