"""Messages of a deployment: the server's requests and the nodes' replies, as plain values.

Any transport for numbers, text and bytes can carry them: a dictionary in one process, a record over a network. A message
names its plan folder (`digest`), its run and its round, so that each side can refuse a message that is not meant for it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from tacit.errors import WireError

VERSION = 3
Kind = Literal["hello", "round", "end"]
MessageT = TypeVar("MessageT", "Request", "Reply")


@dataclass(frozen=True)
class Request:
    """Server to node: introduce yourself (`hello`), take part in a round (`round`), or keep the last broadcast (`end`)."""

    kind: Kind
    digest: str  # of the plan folder
    run: str
    to: str = ""  # the name of the node; empty in a `hello`
    stage: int = 0
    round: int = 0
    people: bytes = b""  # int32, ascending: the node's people who take part
    params: bytes = b""  # the broadcast, packed by the plan folder's schema
    public_state: bytes = (
        b""  # the round's public numbers, such as an adaptive clip bound; empty where the stage has none
    )
    nonce: str = ""  # of a `hello`: a new one each time, which the reply repeats, so that no old reply can be used
    counter: int = 0  # the highest counter that a reply of this node has had
    signature: bytes = b""  # with the key whose public half is in the plan folder
    version: int = VERSION

    def signed_bytes(self) -> bytes:
        """The bytes that a signature covers: every field, each with its length."""
        return _signed_bytes(self)


@dataclass(frozen=True)
class Reply:
    """Node to server."""

    name: str  # 32 hexadecimal digits that follow from the node's key; empty in a reply that says nothing
    people: int = 0  # how many people the node holds
    volunteers: bytes = b""  # int32, ascending: which of them volunteer, where the plan has a stage for volunteers
    form: Literal["report", "total", ""] = ""  # one person's report, the total of several, or nothing
    report: bytes = b""
    refused: str = ""  # why the node sends no report, in a sentence
    run: str = ""
    stage: int = 0
    round: int = 0
    nonce: str = ""  # that of the request
    counter: int = 0  # how many messages this node has ever entered in its ledger, this one included
    key: bytes = b""  # the node's public key
    signature: bytes = b""  # with that key
    version: int = VERSION

    def signed_bytes(self) -> bytes:
        """The bytes that a signature covers: every field, each with its length."""
        return _signed_bytes(self)


def _signed_bytes(message: Request | Reply) -> bytes:
    values = asdict(message)
    del values["signature"]
    texts = {name: part if isinstance(part, bytes) else _bytes(part) for name, part in values.items()}
    parts = [type(message).__name__.encode(), *(part for _, part in sorted(texts.items()))]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _bytes(part: object) -> bytes:
    return str(part).encode(errors="surrogatepass")


def ids_of(data: bytes, people: int) -> np.ndarray | None:
    """Indices of a node's people, four bytes each; None unless they ascend strictly and are all below `people`.

    >>> ids_of(np.array([0, 2], "<i4").tobytes(), 3).tolist()
    [0, 2]
    """
    if len(data) % 4:
        return None
    ids = np.frombuffer(data, "<i4")
    wrong = ids.size and (ids[0] < 0 or ids[-1] >= people or (np.diff(ids) <= 0).any())
    return None if wrong else ids.astype(np.int32)


def to_plain(message: Request | Reply) -> dict[str, Any]:
    """The message as a flat dictionary of numbers, text and bytes.

    >>> to_plain(Reply("a1", people=1))["people"]
    1
    """
    return asdict(message)


def from_plain(kind: type[MessageT], values: Mapping[str, Any]) -> MessageT:
    """The message in a dictionary; another version, a missing or an unknown field is refused."""
    if values.get("version") != VERSION:
        raise WireError(
            f"A message must have version {VERSION}, got {values.get('version')!r}: one side runs another Tacit; update it."
        )
    parts = {field.name: field for field in fields(kind)}
    differing = sorted({*values} ^ {*parts})
    if differing:
        raise WireError(f"A message must have the fields {', '.join(parts)}; {differing[0]!r} is missing or unknown.")
    for name, part in parts.items():
        like = part.type if part.type in (int, bytes) else str
        if type(values[name]) is not like:
            raise WireError(
                f"A message's {name} must be of type {getattr(like, '__name__', like)}, got {type(values[name]).__name__}."
            )
        known = get_args(part.type)
        if known and values[name] not in known:
            raise WireError(
                f"A message's {name} must be one of {', '.join(map(repr, known))}, got {values[name][:20]!r}."
            )
    return kind(**values)
