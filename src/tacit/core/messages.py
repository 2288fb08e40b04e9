"""Messages: broadcast and report, and their bytes by a declared schema, so that traffic can be computed.

A message is a header (magic, version, sent, schema digest, body length) and a body: the weights, then the leaves in
sorted path order. A leaf of a table is written `dense` (the bytes do not reveal which rows were touched) or, where the
plan says so, as `rows` (positions are visible to anyone who reads the message). All numbers are little-endian.
"""

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from tacit.core.sparse_rows import Rows, is_rows
from tacit.errors import WireError

MAGIC = b"TCIT"
VERSION = 1
_HEADER = struct.Struct("<4sBB8sI")  # magic, version, sent, schema digest, body bytes
_COUNT = struct.Struct("<I")


class Broadcast(NamedTuple):
    """Server to device: the round, the parameters, and dials (public numbers, such as a clip bound)."""

    round: Any  # int32[]
    params: dict[str, Any]
    dials: dict[str, Any]


class Report(NamedTuple):
    """Device to server. Only the gate builds one."""

    payload: Any
    weight: Any  # float32[k]
    sent: Any  # bool[]


@dataclass(frozen=True)
class Leaf:
    """One array of a message: its path, its dense shape, its type, and how it is written."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    form: Literal["dense", "rows"]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, position included."""
        return 4 + math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def bytes(self, rows: float | None = None) -> float:
        """Bytes of this leaf; a `rows` leaf has `rows` rows, or all of them by default."""
        if self.form == "dense":
            return math.prod(self.shape) * np.dtype(self.dtype).itemsize
        return _COUNT.size + (self.shape[0] if rows is None else rows) * self.row_bytes


@dataclass(frozen=True)
class Schema:
    """The declared form of a message."""

    leaves: tuple[Leaf, ...]
    weights: int
    tree: Any  # how the leaves are put back together

    @property
    def digest(self) -> bytes:
        """Eight bytes that both sides must share."""
        return hashlib.sha256(repr((self.leaves, self.weights)).encode()).digest()[:8]

    def bytes(self, rows: float | None = None) -> float:
        """Size of one message with its header; without `rows`, the largest possible."""
        return _HEADER.size + 4 * self.weights + sum(leaf.bytes(rows) for leaf in self.leaves)

    def bytes_of(self, messages: Any, rows: Any) -> Any:
        """Bytes of so many messages; `rows` [..., tables] is the number of rows of each table that is written by rows."""
        each = np.array([leaf.row_bytes for leaf in self.leaves if leaf.form == "rows"], np.int64)
        return messages * int(self.bytes(0)) + np.asarray(rows, np.int64) @ each

    def like(self) -> Any:
        """The shapes and types of what the leaves stand for, put together."""
        shapes = [jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype)) for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, shapes)

    @property
    def tables(self) -> int:
        """How many leaves are written row by row."""
        return sum(leaf.form == "rows" for leaf in self.leaves)

    @property
    def has_rows(self) -> bool:
        """Whether positions are visible in the message."""
        return self.tables > 0


def schema_of(payload: Any, weights: int, form: Literal["dense", "rows"] = "dense") -> Schema:
    """The schema of payloads shaped like this one, whose tables are dense; `rows` writes tables row by row."""
    flat, tree = jax.tree_util.tree_flatten_with_path(payload)
    leaves = []
    for path, leaf in flat:
        written = form if len(leaf.shape) > 0 else "dense"
        leaves.append(Leaf(jax.tree_util.keystr(path), tuple(leaf.shape), str(np.dtype(leaf.dtype)), written))
    return Schema(tuple(leaves), weights, tree)


def pack(schema: Schema, report: Report) -> bytes:
    """The bytes of a report. A silent report is a header alone."""
    if not bool(report.sent):
        return _HEADER.pack(MAGIC, VERSION, 0, schema.digest, 0)
    weight = np.asarray(report.weight, "<f4").reshape(-1)
    leaves = jax.tree.leaves(report.payload, is_leaf=is_rows)
    if len(leaves) != len(schema.leaves) or weight.size != schema.weights:
        raise WireError(
            f"A report must have {len(schema.leaves)} leaves and {schema.weights} weight(s), "
            f"got {len(leaves)} and {weight.size}."
        )
    body = weight.tobytes() + b"".join(_write(leaf, value) for leaf, value in zip(schema.leaves, leaves))
    return _HEADER.pack(MAGIC, VERSION, 1, schema.digest, len(body)) + body


def unpack(schema: Schema, data: bytes) -> Report:
    """The report in these bytes; a mismatch, a truncated or an oversized message is refused."""
    body = _open(schema, data)
    if body is None:
        return silent(schema)
    weight = np.frombuffer(body, "<f4", schema.weights)
    at, leaves = weight.nbytes, []
    for leaf in schema.leaves:
        value, at = _read(leaf, body, at)
        leaves.append(value)
    if at != len(body):
        raise WireError(f"A report must end after {at} bytes of body, got {len(body)}.")
    if not np.isfinite(weight).all():
        raise WireError("A report's weights must be finite numbers.")
    return Report(jax.tree.unflatten(schema.tree, leaves), weight, np.True_)


def pack_tree(schema: Schema, tree: Any) -> bytes:
    """The bytes of a tree that carries no weight: a broadcast's parameters, a shard's total."""
    return pack(schema, Report(tree, np.zeros(0, np.float32), np.True_))


def unpack_tree(schema: Schema, data: bytes) -> Any:
    """The tree in these bytes; an empty message is refused like any other that does not fit."""
    report = unpack(schema, data)
    if not report.sent:
        raise WireError("A message that must hold a tree is empty.")
    return report.payload


def silent(schema: Schema) -> Report:
    """The report of a device that sends nothing: zeros that are not counted."""
    leaves = [np.zeros(leaf.shape, leaf.dtype) for leaf in schema.leaves]
    return Report(jax.tree.unflatten(schema.tree, leaves), np.zeros(schema.weights, np.float32), np.False_)


def _open(schema: Schema, data: bytes) -> memoryview | None:
    """Check the header; the body, or None for a silent report."""
    if len(data) < _HEADER.size:
        raise WireError(f"A report is at least {_HEADER.size} bytes long, got {len(data)}: it is truncated.")
    magic, version, sent, digest, length = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise WireError(f"A report must begin with {MAGIC!r} version {VERSION}, got {magic!r} version {version}.")
    if digest != schema.digest:
        raise WireError(
            f"The report's schema {digest.hex()} is not the plan's {schema.digest.hex()}: device and server hold different plans."
        )
    if length > schema.bytes():
        raise WireError(f"A report of this plan is at most {schema.bytes():.0f} bytes, got {length}: it is oversized.")
    if len(data) != _HEADER.size + length:
        word = "truncated" if len(data) < _HEADER.size + length else "oversized"
        raise WireError(f"A report announced {length} bytes of body, got {len(data) - _HEADER.size}: it is {word}.")
    if sent not in (0, 1) or bool(sent) != bool(length):
        raise WireError("A report must be silent and empty, or sent and not empty.")
    return memoryview(data)[_HEADER.size :] if sent else None


def _write(leaf: Leaf, value: Any) -> bytes:
    dtype = np.dtype(leaf.dtype).newbyteorder("<")
    if leaf.form == "dense":
        table = _densify(leaf, value)
        if table.shape != leaf.shape:
            raise WireError(f"Leaf {leaf.path} must have shape {leaf.shape}, got {table.shape}.")
        return table.astype(dtype, copy=False).tobytes()
    index, rows = _touched(value)
    return _COUNT.pack(index.size) + index.astype("<i4").tobytes() + rows.astype(dtype, copy=False).tobytes()


def _densify(leaf: Leaf, value: Any) -> np.ndarray:
    if not isinstance(value, Rows):
        return np.asarray(value)
    index, rows = np.asarray(value.index), np.asarray(value.value)
    table = np.zeros(leaf.shape, rows.dtype)
    real = index < leaf.shape[0]
    table[index[real]] = rows[real]
    return table


def _touched(value: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions and values of the rows that are not zero: the same for a table and for its Rows."""
    if isinstance(value, Rows):
        index, rows = np.asarray(value.index), np.asarray(value.value)
    else:
        rows = np.asarray(value)
        index = np.arange(rows.shape[0])
    used = rows.reshape(rows.shape[0], -1).any(axis=1)
    return index[used], rows[used]


def _read(leaf: Leaf, body: memoryview, at: int) -> tuple[np.ndarray, int]:
    dtype = np.dtype(leaf.dtype).newbyteorder("<")
    if leaf.form == "dense":
        table, at = _take(leaf, body, at, dtype, math.prod(leaf.shape))
        return _finite(leaf, table).reshape(leaf.shape), at
    count, at = _take(leaf, body, at, np.dtype("<u4"), 1)
    if count[0] > leaf.shape[0]:
        raise WireError(f"Leaf {leaf.path} has {leaf.shape[0]} rows, got {count[0]}: it is oversized.")
    index, at = _take(leaf, body, at, np.dtype("<i4"), int(count[0]))
    if index.size and (index[0] < 0 or index[-1] >= leaf.shape[0] or (np.diff(index) <= 0).any()):
        raise WireError(f"Leaf {leaf.path}: positions must increase strictly from 0 to {leaf.shape[0] - 1}.")
    rows, at = _take(leaf, body, at, dtype, index.size * math.prod(leaf.shape[1:]))
    table = np.zeros(leaf.shape, leaf.dtype)
    table[index] = _finite(leaf, rows).reshape((index.size, *leaf.shape[1:]))
    return table, at


def _take(leaf: Leaf, body: memoryview, at: int, dtype: np.dtype, count: int) -> tuple[np.ndarray, int]:
    end = at + count * dtype.itemsize
    if end > len(body):
        raise WireError(f"Leaf {leaf.path} needs {end - at} bytes, got {len(body) - at}: the report is truncated.")
    return np.frombuffer(body[at:end], dtype), end


def _finite(leaf: Leaf, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise WireError(f"Leaf {leaf.path} must hold finite numbers.")
    return values
