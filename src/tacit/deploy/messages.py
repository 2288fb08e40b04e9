"""Letters: what server and device write to each other around a broadcast and a report, as plain values.

Any transport that carries numbers, words and bytes will do: a dictionary in one process, a record over a network. A letter
says for which plan folder (`digest`), which run and which round it is, so that both sides can refuse what is not meant
for them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar

import numpy as np

from tacit.errors import WireError

VERSION = 2
Kind = Literal["hello", "round", "end"]
Letter = TypeVar("Letter", "Ask", "Answer")


@dataclass(frozen=True)
class Ask:
    """Server to node: say who you are (`hello`), take part in a round, or keep the last broadcast (`end`)."""

    kind: Kind
    digest: str  # of the plan folder
    run: str
    to: str = ""  # the node's own name; in a `hello`, nobody in particular
    stage: int = 0
    round: int = 0
    people: bytes = b""  # int32, ascending: who of the node's people is asked
    params: bytes = b""  # the broadcast, packed by the plan folder's schema
    dials: bytes = b""  # the round's public numbers, such as a clip bound that moves; none, where the stage has none
    signature: bytes = b""  # by the key that the plan folder names
    version: int = VERSION

    def signed_words(self) -> bytes:
        """Everything that a signature covers, each part with its length."""
        values = asdict(self)
        del values["signature"]
        parts = [part if isinstance(part, bytes) else str(part).encode() for _, part in sorted(values.items())]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@dataclass(frozen=True)
class Answer:
    """Node to server."""

    name: str  # the node's own, for life
    people: int = 0  # how many it holds
    volunteers: bytes = b""  # int32, ascending: who of them volunteers, where the plan asks volunteers
    form: Literal["report", "total", ""] = ""  # one person's report, a shard's total, or nothing
    report: bytes = b""
    refused: str = ""  # why it stays silent, in a sentence
    run: str = ""
    stage: int = 0
    round: int = 0
    version: int = VERSION


def ids_of(data: bytes, people: int) -> np.ndarray | None:
    """Some of a node's people, in four bytes each; None where these are not numbers below `people`, ascending, each once.

    >>> ids_of(np.array([0, 2], "<i4").tobytes(), 3).tolist()
    [0, 2]
    """
    if len(data) % 4:
        return None
    ids = np.frombuffer(data, "<i4")
    wrong = ids.size and (ids[0] < 0 or ids[-1] >= people or (np.diff(ids) <= 0).any())
    return None if wrong else ids.astype(np.int32)


def to_plain(letter: Ask | Answer) -> dict[str, Any]:
    """The letter as a flat dictionary of numbers, words and bytes.

    >>> to_plain(Answer("a1", people=1))["people"]
    1
    """
    return asdict(letter)


def from_plain(kind: type[Letter], values: Mapping[str, Any]) -> Letter:
    """The letter in a dictionary; another version, a missing or a strange part is refused."""
    if values.get("version") != VERSION:
        raise WireError(
            f"A letter must have version {VERSION}, got {values.get('version')!r}: one side runs another Tacit; update it."
        )
    parts = {field.name: field for field in fields(kind)}
    strange = sorted({*values} ^ {*parts})
    if strange:
        raise WireError(f"A letter must have the parts {', '.join(parts)}; {strange[0]!r} is missing or strange.")
    for name, part in parts.items():
        like = part.type if part.type in (int, bytes) else str
        if type(values[name]) is not like:
            raise WireError(
                f"A letter's {name} must be of type {getattr(like, '__name__', like)}, got {type(values[name]).__name__}."
            )
    return kind(**values)
