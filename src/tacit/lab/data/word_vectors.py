"""Word vectors from a file: one word and its numbers a line, as GloVe and word2vec's text form write them."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.nets.neural.text import CatalogWithText, hashed_vectors, tokens_of


def with_word_vectors(log: Population, path: str | Path, tokens: int = 30) -> Population:
    """The log with a frozen vector for every word its catalog uses; a word the file does not have gets a hashed one.

    Hashed vectors are as long as the file's, so that neither outweighs the other. A note has how many were found.
    """
    about, words = tokens_of(log.catalog, tokens)
    found = read_vectors(path, {word.lower() for word in words})
    width = next(iter(found.values())).size
    known = np.array([word.lower() in found for word in words])
    length = np.sqrt(np.mean([np.square(vector).sum() for vector in found.values()]))
    vectors = np.array(hashed_vectors(words, width, float(length)))
    for place in np.flatnonzero(known):
        vectors[place] = found[words[place].lower()]
    catalog = CatalogWithText.of(log.catalog, about, vectors)
    return replace(log, catalog=catalog, notes=(*log.notes, f"{known.sum()} of {known.size} words have a vector"))


def read_vectors(path: str | Path, wanted: set[str]) -> dict[str, np.ndarray]:
    """The vectors of some words, out of a text file, compressed or not; all must be equally wide."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"Word vectors {str(path)!r} do not exist; name a text file of a word and its numbers a line.")
    opened = gzip.open if path.suffix == ".gz" else open
    found: dict[str, np.ndarray] = {}
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            word, _, rest = line.partition(" ")
            if word in wanted:
                found[word] = _numbers(path, word, rest)
    if not found:
        raise DataError(f"Word vectors {str(path)!r} have none of the {len(wanted)} words of this catalog.")
    widths = {vector.size for vector in found.values()}
    if len(widths) > 1:
        raise DataError(f"Word vectors {str(path)!r} must be equally wide, got widths {sorted(widths)}.")
    return found


def _numbers(path: Path, word: str, text: str) -> np.ndarray:
    try:
        return np.array(text.split(), np.float32)
    except ValueError:
        raise DataError(
            f"Word vectors {str(path)!r}: {word!r} must be followed by numbers, got {text[:40]!r}."
        ) from None
