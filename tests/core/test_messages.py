"""The wire carries exactly what the schema declares and refuses everything else."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.messages import Report, pack, schema_of, unpack
from tacit.core.sparse_rows import Rows
from tacit.errors import WireError

TABLE = {"bias": jnp.zeros(3), "items": jnp.zeros((5, 2)), "steps": jnp.zeros(4, jnp.int32)}


def report(**leaves):
    rng = np.random.default_rng(0)
    payload = {
        "bias": rng.normal(size=3).astype(np.float32),
        "items": Rows(np.array([1, 4, 5, 5], np.int32), np.array([[1, 2], [3, 4], [0, 0], [0, 0]], np.float32), 5),
        "steps": np.array([0, 7, 0, 2**31 - 1], np.int32),
    }
    return Report({**payload, **leaves}, np.array([1.5], np.float32), np.True_)


@pytest.mark.parametrize("form", ["dense", "rows"])
def test_there_and_back(form):
    schema = schema_of(TABLE, 1, form)
    sent = report()
    got = unpack(schema, pack(schema, sent))
    table = np.zeros((5, 2), np.float32)
    table[[1, 4]] = [[1, 2], [3, 4]]
    np.testing.assert_array_equal(got.payload["items"], table)
    np.testing.assert_array_equal(got.payload["bias"], sent.payload["bias"])
    np.testing.assert_array_equal(got.payload["steps"], sent.payload["steps"])
    assert got.weight == [1.5]
    assert got.sent


def test_dense_bytes_do_not_depend_on_which_rows_were_touched():
    schema = schema_of(TABLE, 1)
    sizes = {
        len(pack(schema, report(items=Rows(np.array(i), np.ones((len(i), 2)), 5)))) for i in ([0], [1, 2, 3], [5, 5])
    }
    assert sizes == {schema.bytes()}


def test_row_bytes_are_computed_from_the_number_of_rows():
    schema = schema_of({"items": jnp.zeros((5, 2))}, 1, "rows")
    message = pack(schema, Report({"items": report().payload["items"]}, np.ones(1), np.True_))
    assert len(message) == schema.bytes(rows=2)
    assert schema.has_rows


def test_a_table_and_its_rows_are_the_same_bytes():
    schema = schema_of({"items": jnp.zeros((5, 2))}, 1, "rows")
    table = np.zeros((5, 2), np.float32)
    table[[1, 4]] = [[1, 2], [3, 4]]
    as_rows = pack(schema, Report({"items": report().payload["items"]}, np.ones(1), np.True_))
    assert as_rows == pack(schema, Report({"items": table}, np.ones(1), np.True_))


def test_silence_is_a_header():
    schema = schema_of(TABLE, 1)
    message = pack(schema, report()._replace(sent=np.False_))
    assert len(message) == 18
    assert not unpack(schema, message).sent


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda m: m[:10], "truncated"),
        (lambda m: m[:-1], "truncated"),
        (lambda m: m + b"\0", "oversized"),
        (lambda m: b"NOPE" + m[4:], "must begin with"),
        (lambda m: m[:4] + b"\x09" + m[5:], "version"),
        (lambda m: m[:6] + b"12345678" + m[14:], "different plans"),
        (lambda m: m[:14] + b"\xff\xff\xff\x7f" + m[18:], "oversized"),
        (lambda m: m[:5] + b"\0" + m[6:], "silent and empty"),
        (lambda m: m[:18] + b"\0\0\xc0\x7f" + m[22:], "weights must be finite"),
        (lambda m: m[:22] + b"\0\0\xc0\x7f" + m[26:], "must hold finite"),
    ],
)
def test_a_spoilt_message_is_refused(spoil, words):
    schema = schema_of(TABLE, 1)
    with pytest.raises(WireError, match=words):
        unpack(schema, spoil(pack(schema, report())))


def test_forged_positions_are_refused():
    schema = schema_of({"items": jnp.zeros((5, 2))}, 1, "rows")
    for index in ([3, 3], [4, 1], [-1, 2], [2, 5]):
        rows = Rows(np.array(index), np.ones((2, 2), np.float32), 5)
        with pytest.raises(WireError, match="increase strictly"):
            unpack(schema, pack(schema, Report({"items": rows}, np.ones(1), np.True_)))


def test_another_plans_report_is_refused():
    with pytest.raises(WireError, match="different plans"):
        unpack(schema_of({"items": jnp.zeros((6, 2))}, 1), pack(schema_of(TABLE, 1), report()))


def test_a_report_of_the_wrong_form_is_not_packed():
    with pytest.raises(WireError, match="3 leaves and 1 weight"):
        pack(schema_of(TABLE, 1), report()._replace(weight=np.ones(2)))
    with pytest.raises(WireError, match="must have shape"):
        pack(schema_of(TABLE, 1), report(bias=np.zeros(4)))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_noise_is_refused_with_a_sentence(data):
    for form in ("dense", "rows"):
        with pytest.raises(WireError):
            unpack(schema_of(TABLE, 1, form), data)


@settings(max_examples=200)
@given(st.data())
def test_a_flipped_byte_never_escapes_as_another_error(data):
    schema = schema_of(TABLE, 1, "rows")
    message = bytearray(pack(schema, report()))
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= data.draw(st.integers(1, 255))
    try:
        got = unpack(schema, bytes(message))
    except WireError:
        return
    assert got.payload["items"].shape == (5, 2)
