"""The law of a table of noise, entry by entry, from its thresholds."""

from fractions import Fraction

import numpy as np

from tacit.privacy.mechanisms._parts.noise_tables import AliasTable, GaussianTable, LaplaceTable


def masses(table: AliasTable) -> list[Fraction]:
    """What a table draws, by going through its entries: exact fractions."""
    bits = (95 if table.signed else 96) - table.width
    alias = [int(word) & (2**table.width - 1) for word in table.words[0]]
    cut = [int(a) >> table.width << 64 | int(b) << 32 | int(c) for a, b, c in table.words.T]
    law = [Fraction(0)] * 2**table.width
    for entry, (below, other) in enumerate(zip(cut, alias)):
        law[entry] += Fraction(below, 2 ** (bits + table.width))
        law[other] += Fraction(2**bits - below, 2 ** (bits + table.width))
    assert sum(law) == 1
    return law


def law_of(table: GaussianTable | LaplaceTable) -> np.ndarray:
    """P(k) for k from −n to n, as floats."""
    if isinstance(table, GaussianTable):
        half = np.array([float(mass) for mass in masses(table.table)[: table.table.reach + 1]])
        half[1:] /= 2
        one = law = np.concatenate([half[:0:-1], half])
        for factor in table.factors[1:]:
            spread = np.zeros((one.size - 1) * factor + 1)
            spread[::factor] = one
            law = np.convolve(law, spread)
        return law
    first, *rest = (np.array([float(mass) for mass in masses(part)]) for part in table.tables)
    positive, negative = first[: first.size // 2], first[first.size // 2 :]  # G, and −1 − G
    for more in rest:
        positive, negative = np.outer(more, positive).ravel(), np.outer(more, negative).ravel()
    return np.concatenate([negative[::-1], positive, [0.0]])
