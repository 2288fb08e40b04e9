"""Paper tables: Tables 4 and 5 of Wang et al. 2021, cell by cell, as printed and as accounted."""

from functools import lru_cache
from typing import Any

from tacit.privacy.accounting.pld import pld_fixed
from tacit.privacy.accounting.rdp import rdp_fixed

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
