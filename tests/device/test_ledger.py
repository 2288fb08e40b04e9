"""The device's ledger: budgets hold over runs and restarts, and no kill makes it show less than was sent."""

import errno
import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.device.ledger import journal as journal_file
from tacit.device.ledger.journal import _line
from tacit.device.ledger.ledger import _HEAD, Ledger, _to_line
from tacit.errors import DeviceError, PlanError
from tacit.privacy.accounting.events import CorrelatedGaussian, FixedGaussian, Pure, Unbounded
from tacit.privacy.budget import DAY, Budget, spent

DRIVER = Path(__file__).resolve().parents[1] / "support" / "ledger_driver.py"
FIXED = FixedGaussian(noise=1.0, cohort=10, devices=1000)


def message(round=0, event=Pure(1.0), **changes):  # noqa: B008
    amounts = {"event": event, "epsilon": 1.0, "delta": 0.0, "bytes": 100}
    names = {"plan": "plan", "run": "a", "stage": 0, "round": round, "unit": "user", "relation": "replace_one"}
    return {**names, **amounts, **changes}


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def quick(monkeypatch):
    """Many openings, whose flushes are not what is looked at."""
    monkeypatch.setattr(journal_file.os, "fsync", lambda handle: None)


# ---- the ledger: what it says ----


def test_what_was_entered_is_there_after_a_restart(path):
    whole = {"run": "inf", "rounds": 50, "epsilon": math.inf, "delta": 1e-6, "digest": "d1"}
    with Ledger.open(path, Budget(math.inf, 1e-6), Clock(3.5)) as ledger:
        ledger.reserve(**message(0, Pure(0.1)))
        ledger.reserve(**message(1, Pure(math.inf), run="läuft"))
        ledger.reserve(**message(2, FIXED, **whole))
        ledger.reserve(**message(3, Unbounded("inf"), run="nan"))
        entries, summary = ledger.entries, ledger.to_dict()
    with Ledger.open(path, Budget(math.inf, 1e-6), Clock(3.5)) as ledger:
        assert ledger.entries == entries
        assert ledger.to_dict() == summary
        assert ledger.left() == math.inf
    assert [one.time for one in entries] == [3.5] * 4


def test_the_summary(path):
    clock = Clock(1000.0)
    with Ledger.open(path, Budget(5.0, days=2), clock) as ledger:
        assert ledger.to_dict()["renews"] == math.inf
        ledger.reserve(**message(0))
        clock.now += DAY
        ledger.reserve(**message(0, run="b", plan="other", bytes=11))
        assert ledger.to_dict() == {
            "entries": {"plan": 1, "other": 1},
            "bytes": 111,
            "silent": 0,
            "unit": "user",
            "delta": 0.0,
            "spent": 2.0,
            "left": 3.0,
            "days": 2,
            "renews": 1000.0 + 2 * DAY,
        }
        clock.now += DAY
        assert (ledger.spent(), ledger.left(), ledger.to_dict()["renews"]) == (1.0, 4.0, 1000.0 + 3 * DAY)


moves = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "look", "restart"]), st.floats(-3 * DAY, 3 * DAY), st.sampled_from([0.5, 1.0])
    ),
    max_size=25,
)


@settings(max_examples=50)
@given(moves, st.sampled_from([None, 1.0, 4.0]))
def test_the_running_total_is_the_total_of_the_entries(moves, days):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        clock, budget = Clock(50 * DAY), Budget(3.0, days=days)
        ledger = Ledger.open(folder + "/ledger", budget, clock)
        for number, (move, seconds, epsilon) in enumerate(moves):
            clock.now += seconds
            if move == "reserve":
                room = ledger.allowance(Pure(epsilon), most=9)
                try:
                    ledger.reserve(**message(number, Pure(epsilon)))
                    assert room > 0
                except DeviceError:
                    assert room == 0
            elif move == "restart":
                ledger.close()
                ledger = Ledger.open(folder + "/ledger", budget, clock)
            entries = ledger.entries
            now = max(clock.now, entries[-1].time) if entries else clock.now
            assert ledger.spent() == spent(entries, budget, now) <= 3.0
            assert [e.time for e in entries] == sorted(e.time for e in entries)
        ledger.close()


def test_spent_is_silent_until_the_window_renews(path):
    clock = Clock(0.0)
    with Ledger.open(path, Budget(2.0, days=3), clock) as ledger:
        ledger.reserve(**message(0))
        clock.now = DAY
        ledger.reserve(**message(1))
        with pytest.raises(DeviceError) as error:
            ledger.reserve(**message(2))
        assert str(error.value) == (
            "Ledger: this message would bring ε to 3 of a budget of 2 for unit user at δ = 0, "
            "which begins to renew in 2 days; nothing is sent."
        )
        clock.now = 3 * DAY
        ledger.reserve(**message(2))
        assert (ledger.spent(), len(ledger.entries)) == (2.0, 3)
        assert ledger.allowance(Pure(1.0), most=5) == 0


def test_a_refused_message_leaves_no_trace(path):
    with Ledger.open(path, Budget(0.5, 1e-6)) as ledger:
        before = path.read_bytes()
        with pytest.raises(DeviceError) as error:
            ledger.reserve(**message(0, Unbounded("raw")))
        assert "would bring ε to ∞ of a budget of 0.5 for unit user at δ = 1e-06; nothing is sent." in str(error.value)
        with pytest.raises(PlanError, match=r"Entry\.unit must be one of"):
            ledger.reserve(**message(0, unit="person"))
        assert (path.read_bytes(), ledger.spent(), ledger.entries) == (before, 0.0, ())


def test_a_run_has_a_name(path):
    with Ledger.open(path, Budget(1.0)) as ledger, pytest.raises(DeviceError, match="run must be a word"):
        ledger.reserve(**message(run=""))


def test_a_budget_holds_for_many_threads(path):
    with Ledger.open(path, Budget(20.0)) as ledger:

        def work(run):
            for round in range(10):
                try:
                    ledger.reserve(**message(round, run=run))
                except DeviceError:
                    return

        threads = [threading.Thread(target=work, args=(run,)) for run in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = ledger.entries
    assert len(entries) == 20
    with Ledger.open(path, Budget(20.0)) as ledger:
        assert ledger.entries == entries


# ---- the same message again ----


def test_a_message_sent_again_is_charged_once(path):
    clock = Clock(1.0)
    with Ledger.open(path, Budget(1.0), clock) as ledger:
        first = ledger.reserve(**message(digest="x"))
        clock.now = 9.0
        assert ledger.reserve(**message(digest="x")) == first
    with Ledger.open(path, Budget(1.0), clock) as ledger:
        assert ledger.reserve(**message(digest="x")) == first
        assert (ledger.spent(), ledger.entries) == (1.0, (first,))


@pytest.mark.parametrize(
    "change",
    [
        {"event": Pure(0.5)},
        {"bytes": 101},
        {"digest": "y"},
        {"plan": "other"},
        {"unit": "client(silo)"},
        {"epsilon": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_message_for_the_same_round_is_refused(path, change):
    with Ledger.open(path, Budget(9.0)) as ledger:
        ledger.reserve(**message(7, digest="x"))
        with pytest.raises(DeviceError) as error:
            ledger.reserve(**{**message(7, digest="x"), **change})
        assert str(error.value) == (
            "Ledger: run 'a', stage 0, round 7 was entered for a message that is now different; a second one would have "
            "fresh noise, so nothing is sent."
        )
        assert len(ledger.entries) == 1


# ---- time ----


CORRELATED = CorrelatedGaussian(noise=4.0, rounds=30, reports=2, separation=10)


@pytest.mark.parametrize(
    ("rounds", "reason"),
    [
        ((0, 9), "reports must be at least 10 rounds apart, and it has reported in round 0"),
        ((12, 3), "reports must be at least 10 rounds apart, and it has reported in round 12"),
        ((0, 10, 29), "at most 2 reports of one device are priced, and it has sent 2"),
    ],
)
def test_correlated_noise_is_not_asked_for_more_than_is_priced(path, rounds, reason):
    budget, stage = Budget(math.inf, delta=1e-6), {"event": CORRELATED, "rounds": 30, "delta": 1e-6}
    with Ledger.open(path, budget) as ledger:
        for round in rounds[:-1]:
            ledger.reserve(**message(round, **stage))
            ledger.reserve(**message(round, **stage))  # the same message again
        spent_before = ledger.spent()
    with Ledger.open(path, budget) as ledger:
        with pytest.raises(DeviceError, match=reason):
            ledger.reserve(**message(rounds[-1], **stage))
        assert len(ledger.entries) == len(rounds) - 1
        assert ledger.spent() == spent_before  # the stage is charged as a whole, with its first report
        ledger.reserve(**message(rounds[-1], **stage, run="another"))
        ledger.reserve(**message(rounds[-1], **{**stage, "stage": 1}))


def test_a_clock_set_back_renews_nothing(path):
    clock = Clock(100 * DAY)
    with Ledger.open(path, Budget(1.0, days=7), clock) as ledger:
        ledger.reserve(**message(0))
    clock.now = 10 * DAY
    with Ledger.open(path, Budget(9.0, days=7), clock) as ledger:
        assert ledger.reserve(**message(1)).time == 100 * DAY
        assert ledger.spent() == 2.0
        clock.now = 106.9 * DAY
        assert ledger.spent() == 2.0
        clock.now = 107 * DAY
        assert ledger.spent() == 0.0
        clock.now = 106 * DAY  # and counts again
        assert ledger.spent() == 2.0


def test_the_time_of_an_erasure_holds_too(path, tmp_path):
    clock = Clock(5.0)
    with Ledger.open(path, Budget(1.0, days=1), clock) as ledger:
        ledger.erase(tmp_path)
    clock.now = 1.0
    with Ledger.open(path, Budget(1.0, days=1), clock) as ledger:
        assert ledger.reserve(**message()).time == 5.0


# ---- erasing ----


def test_a_device_may_forget_but_amounts_stay(path, tmp_path):
    (tmp_path / "history.csv").write_text("item\n1\n")
    (tmp_path / "home" / "state").mkdir(parents=True)
    (tmp_path / "home" / "state" / "secret").write_bytes(b"s")
    outside = tmp_path.parent / (tmp_path.name + "-outside")
    outside.mkdir()
    (outside / "precious").write_text("stays")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    with Ledger.open(path, Budget(3.0), Clock(7.0)) as ledger:
        ledger.reserve(**message(0, digest="x"))
        assert ledger.erase(tmp_path) == 4
        assert [file.name for file in tmp_path.iterdir()] == ["ledger"]
        assert (outside / "precious").read_text() == "stays"
        assert (ledger.spent(), len(ledger.entries)) == (1.0, 1)
    with Ledger.open(path, Budget(3.0), Clock(7.0)) as ledger:
        assert ledger.spent() == 1.0
        with pytest.raises(DeviceError, match="was entered for a message that is now erased; a second one would have"):
            ledger.reserve(**message(0, digest="x"))
        ledger.reserve(**message(1))
        assert ledger.reserve(**message(1)).round == 1
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["ledger", "report", "erased", "report"]


def test_a_ledger_in_a_folder_of_its_own_stays_where_it_is(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "note").write_text("n")
    with Ledger.open(tmp_path / "deep" / "er" / "ledger", Budget(1.0)) as ledger:
        assert ledger.erase(tmp_path) == 1
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["deep", "deep/er", "deep/er/ledger"]


def test_only_a_folder_can_be_erased(path, tmp_path):
    with Ledger.open(path, Budget(1.0)) as ledger:
        with pytest.raises(
            DeviceError, match="must be the folder of a device, and is not a folder; nothing was erased"
        ):
            ledger.erase(tmp_path / "missing")
        (tmp_path / "history").write_text("h")
        ledger.close()
        with pytest.raises(DeviceError, match="is closed"):
            ledger.erase(tmp_path)
        assert (tmp_path / "history").exists()


def test_an_erasure_that_fails_is_not_entered(path, tmp_path, monkeypatch):
    (tmp_path / "history").write_text("h")
    with Ledger.open(path, Budget(1.0)) as ledger:
        monkeypatch.setattr(Path, "unlink", broken_disk)
        with pytest.raises(
            DeviceError, match=r"was not erased completely \(Input/output error\); fix the cause, then erase again"
        ):
            ledger.erase(tmp_path)
    assert b"erased" not in path.read_bytes()


def test_an_erasure_is_on_disk_before_the_ledger_says_so(path, tmp_path, monkeypatch):
    seen = []
    (tmp_path / "history").write_text("h")
    with Ledger.open(path, Budget(1.0)) as ledger:
        monkeypatch.setattr(
            journal_file.os,
            "fsync",
            lambda handle: seen.append(((tmp_path / "history").exists(), b"erased" in path.read_bytes())),
        )
        ledger.erase(tmp_path)
    assert seen == [(False, False), (False, True)]


# ---- the file: torn, altered, locked ----


def filled(path, number=4):
    with Ledger.open(path, Budget(math.inf), Clock(1.0)) as ledger:
        for round in range(number):
            ledger.reserve(**message(round))
    return path.read_bytes()


@pytest.mark.usefixtures("quick")
def test_power_lost_at_any_byte_of_the_last_lines(path):
    data = filled(path)
    lines = data.splitlines(keepends=True)
    for size in range(len(data) - len(lines[-1]) - len(lines[-2]), len(data) + 1):
        path.write_bytes(data[:size])
        could_have_left = data[:size].count(b"\n") - 1  # a message leaves once its line is whole; less the head
        with Ledger.open(path, Budget(10.0), Clock(1.0)) as ledger:
            assert len(ledger.entries) == ledger.spent() == could_have_left
            assert path.read_bytes() == data[:size]  # looking changes nothing
            ledger.reserve(**message(could_have_left))
        assert path.read_bytes() == b"".join(lines[: could_have_left + 1]) + path.read_bytes().splitlines(True)[-1]
        with Ledger.open(path, Budget(10.0), Clock(1.0)) as ledger:
            assert [one.round for one in ledger.entries] == list(range(could_have_left + 1))


def test_power_lost_while_the_file_was_made(path):
    head = filled(path, number=0)
    for size in range(len(head) + 1):
        path.write_bytes(head[:size])
        with Ledger.open(path, Budget(1.0)) as ledger:
            assert ledger.entries == ()
        assert path.read_bytes() == head


def test_a_tail_of_zeros_is_a_torn_line(path):
    data = filled(path)
    path.write_bytes(data + b"\0" * 300)
    with Ledger.open(path, Budget(9.0), Clock(1.0)) as ledger:
        ledger.reserve(**message(4))
        assert len(ledger.entries) == 5
    assert path.read_bytes().splitlines(keepends=True)[:5] == data.splitlines(keepends=True)
    assert path.read_bytes().count(b"\0") == 0


@pytest.mark.usefixtures("quick")
def test_any_altered_byte_is_noticed(path):
    data = filled(path, number=2)
    for place in range(len(data) - 1):  # the last byte ends the last line: without it, that line is torn
        for other in {data[place] ^ 1, ord("\n")} - {data[place]}:
            path.write_bytes(data[:place] + bytes([other]) + data[place + 1 :])
            with pytest.raises(DeviceError, match=r"must begin with|does not match its checksum"):
                Ledger.open(path, Budget(9.0))


@pytest.mark.parametrize(
    ("order", "line"),
    [([0, 1, 3, 4], 3), ([0, 1, 2, 2, 3, 4], 4), ([0, 1, 3, 2, 4], 3), ([0, 2, 3, 4], 2), ([0, 1, 1], 3)],
)
def test_lines_removed_repeated_or_moved_are_noticed(path, order, line):
    lines = filled(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[number] for number in order))
    with pytest.raises(DeviceError) as error:
        Ledger.open(path, Budget(9.0))
    assert str(error.value) == (
        f"{path}: line {line} does not match its checksum, so the file was altered or damaged; "
        "nothing may be sent until it is restored."
    )


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"no line", b'{"kind":"ledger","version":2}\n'])
def test_a_foreign_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(DeviceError) as error:
        Ledger.open(path, Budget(1.0))
    head = '{"kind":"ledger","version":1,"crc":"' + _line(_HEAD, 0)[0][-11:-3].decode() + '"}'
    assert str(error.value) == f"{path} must begin with {head}, and does not; name another file."
    assert path.read_bytes() == content


def test_one_writer_at_a_time(path):
    with Ledger.open(path, Budget(1.0)):
        with pytest.raises(DeviceError) as error:
            Ledger.open(path, Budget(1.0))
        assert str(error.value) == (
            f"{path} is open already, here or in another process; it has one writer at a time, so close that first."
        )
        code = f"from tacit.device.ledger.ledger import *; Ledger.open({str(path)!r}, Budget(1.0))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "is open already" in other.stderr
    Ledger.open(path, Budget(1.0)).close()


def test_a_fork_may_not_write(path, monkeypatch):
    with Ledger.open(path, Budget(1.0)) as ledger:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(DeviceError, match="was opened by another process; open it again in this one"):
            ledger.reserve(**message())


def test_a_closed_ledger_answers_but_enters_nothing(path):
    ledger = Ledger.open(path, Budget(2.0))
    ledger.reserve(**message(0))
    ledger.close()
    assert ledger.spent() == 1.0
    for round in (0, 1):
        with pytest.raises(DeviceError, match="is closed; open it again before anything is sent"):
            ledger.reserve(**message(round))


@pytest.mark.parametrize("how", ["replaced", "appended", "cut"])
def test_a_file_that_changes_under_an_open_ledger_is_refused(path, how):
    with Ledger.open(path, Budget(2.0)) as ledger:
        if how == "replaced":
            os.replace(path, path.with_name("old"))
            path.write_bytes(path.with_name("old").read_bytes())
        else:
            data = path.read_bytes()
            path.write_bytes(data + b"x" if how == "appended" else data[:-1])
        with pytest.raises(DeviceError, match="was replaced or altered while in use; open it again"):
            ledger.reserve(**message())
        assert ledger.entries == ()


def test_a_file_that_cannot_be_opened_or_read(tmp_path, monkeypatch):
    with pytest.raises(DeviceError, match=r"cannot be opened \(No such file or directory\); name a file in a folder"):
        Ledger.open(tmp_path / "missing" / "ledger", Budget(1.0))
    with pytest.raises(DeviceError, match=r"cannot be opened \(Is a directory\); name a file in a folder"):
        Ledger.open(tmp_path, Budget(1.0))
    monkeypatch.setattr(journal_file.os, "fsync", broken_disk)
    with pytest.raises(DeviceError, match=r"cannot be read \(Input/output error\); nothing may be sent"):
        Ledger.open(tmp_path / "ledger", Budget(1.0))


def broken_disk(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_full_disk_keeps_the_device_silent(path, monkeypatch):
    with Ledger.open(path, Budget(2.0)) as ledger:
        monkeypatch.setattr(journal_file.os, "fsync", broken_disk)
        with pytest.raises(DeviceError, match=r"cannot be written \(Input/output error\); nothing may be sent until"):
            ledger.reserve(**message())
        assert ledger.entries == ()
        monkeypatch.undo()
        with pytest.raises(DeviceError, match="is closed"):
            ledger.reserve(**message())
    with Ledger.open(path, Budget(2.0)) as ledger:  # entered, never sent: more than was sent, not less
        assert ledger.spent() == 1.0


def test_a_write_in_pieces_is_one_line(path, monkeypatch):
    monkeypatch.setattr(journal_file, "FileIO", type("Slow", (journal_file.FileIO,), {"write": write_three_bytes}))
    with Ledger.open(path, Budget(2.0)) as ledger:
        ledger.reserve(**message())
    with Ledger.open(path, Budget(2.0)) as ledger:
        assert ledger.spent() == 1.0


def write_three_bytes(self, data):
    return os.write(self.fileno(), data[:3])


def test_what_may_be_sent_is_on_disk(path, monkeypatch):
    """Only what was flushed survives a power cut: at every return, that is everything entered."""
    durable, flushed_folders = {}, []
    flush = os.fsync

    def remember(handle):
        flush(handle)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            durable["data"] = path.read_bytes()
        elif os.path.samestat(os.fstat(handle), os.stat(path.parent)):
            flushed_folders.append(path.exists())

    monkeypatch.setattr(journal_file.os, "fsync", remember)
    with Ledger.open(path, Budget(9.0)) as ledger:
        assert flushed_folders == [True]
        for round in range(3):
            ledger.reserve(**message(round))
            assert durable["data"] == path.read_bytes()
            assert durable["data"].count(b"\n") == round + 2
    durable.clear()  # a line that was written but not flushed before a kill must be flushed before it is relied upon
    with Ledger.open(path, Budget(9.0)):
        assert durable["data"] == path.read_bytes()


# ---- kills ----


def drive(folder, device, kills, seed):
    run = [sys.executable, str(DRIVER), str(folder), device, str(kills), str(seed)]
    result = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_kill_makes_it_show_less_than_was_sent(tmp_path):
    result = drive(tmp_path, "WriteAhead", 240, seed=0)
    assert result["wrong"] == []
    assert result["kills"] == 240
    assert result["shown"] > 100
    assert result["torn"] > 0
    assert result["used"] == result["left"]
    assert result["shown"] + result["used"] == result["limit"]
    assert not result["jax"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("mutant", "fault"), [("SendsFirst", "sent, but not shown"), ("NeverResends", "charged, but never sent")]
)
def test_the_kills_catch_a_device_that_does_it_wrong(tmp_path, mutant, fault):
    assert any(fault in wrong for wrong in drive(tmp_path, mutant, 50, seed=0)["wrong"])


# ---- size and weight ----


@pytest.mark.slow
def test_a_hundred_thousand_entries_open_quickly(path):
    with Ledger.open(path, Budget(1.0), Clock(0.0)) as ledger:
        record = _to_line(ledger.reserve(**message()))
    path.unlink()
    with open(path, "wb") as file:
        line, crc = _line(_HEAD, 0)
        for round in range(100_001):
            file.write(line)
            line, crc = _line({**record, "round": round, "time": float(round)}, crc)
    read = seconds(lambda: [json.loads(line) for line in path.read_bytes().splitlines()])
    opened = seconds(lambda: Ledger.open(path, Budget(1e6), Clock(1e6)).close())
    with Ledger.open(path, Budget(1e6), Clock(1e6)) as ledger:
        assert (len(ledger.entries), ledger.spent()) == (100_000, 100_000.0)
        reserved = seconds(lambda: [ledger.reserve(**message(round, run="b")) for round in range(10)]) / 10
    assert opened < 6 * read
    assert reserved < read / 50  # the file is not read again


def seconds(work):
    began = time.process_time()
    work()
    return time.process_time() - began


def test_a_ledger_loads_no_arrays():
    code = "import sys, tacit.device.ledger.ledger; sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
