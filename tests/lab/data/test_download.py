"""Downloads, against a small server in this process: whole, interrupted and resumed, refused, and without a server."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from tacit.cli.data import app
from tacit.errors import DataError
from tacit.lab.data import datasets
from tacit.lab.data.datasets import Dataset, RemoteFile, about_dataset
from tacit.lab.data.download import download, fetch, unpack_file
from tacit.lab.data.synthetic.small import checkerboard

BODY = bytes(range(256)) * 4000


class Owner(BaseHTTPRequestHandler):
    """Serves `files`; breaks off the first answers after `breaks` bytes; remembers the ranges it was asked for."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    breaks: list[int] = []  # noqa: RUF012
    asked: list[str | None] = []  # noqa: RUF012
    edition = '"1"'
    ranges = True

    def do_GET(self):
        body, wanted = self.files.get(self.path), self.headers.get("Range")
        self.asked.append(wanted)
        if body is None:
            return self.send_error(404)
        same = self.headers.get("If-Range") in (None, self.edition)
        start = int(wanted[6:-1]) if wanted and same and self.ranges else 0
        if start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            return self.end_headers()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("ETag", self.edition)
        self.end_headers()
        until = start + self.breaks.pop(0) if self.breaks else len(body)
        self.wfile.write(body[start:until])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def owner():
    class Here(Owner):
        files, breaks, asked = {}, [], []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Here.address = f"http://127.0.0.1:{server.server_port}"  # pyright: ignore
    yield Here
    server.shutdown()
    server.server_close()
    thread.join()


def source(owner, path="/log.bin", body=BODY, **more):
    owner.files[path] = body
    return RemoteFile(owner.address + path, **more)


@pytest.fixture
def toy_dataset(monkeypatch, tmp_path):
    """A registry and a data folder for one test; `toy_dataset(name, files)` adds a dataset."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(datasets, "_REGISTERED", {})

    def add(name, *files, **more):
        read = lambda path=None: checkerboard(6)[0]  # noqa: E731
        entry = Dataset(name, "a toy", read, "none", "nobody", "http://owner.example/page", files, **more)
        datasets.register_dataset(entry)
        return tmp_path / "data" / name

    return add


def zipped(files):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return held.getvalue()


def test_a_whole_download_is_checked_and_reported(owner, tmp_path):
    seen = []
    wanted = source(owner, size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())
    file = fetch(wanted, tmp_path, lambda done, total: seen.append((done, total)))
    assert file.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert len(seen) > 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.bin"]


def test_an_interrupted_download_goes_on(owner, tmp_path):
    owner.breaks.extend([300_000, 400_000])
    wanted = source(owner, sha256=hashlib.sha256(BODY).hexdigest())
    for have in (300_000, 700_000):
        with pytest.raises(DataError, match=f"stopped after {have:,} bytes; the same command resumes it"):
            fetch(wanted, tmp_path)
    assert fetch(wanted, tmp_path).read_bytes() == BODY
    assert owner.asked == [None, "bytes=300000-", "bytes=700000-"]


def test_two_editions_are_never_joined(owner, tmp_path):
    owner.breaks.append(300_000)
    wanted = source(owner)
    with pytest.raises(DataError, match="stopped after"):
        fetch(wanted, tmp_path)
    owner.edition, owner.files["/log.bin"] = '"2"', BODY[::-1]
    assert fetch(wanted, tmp_path).read_bytes() == BODY[::-1]


def test_an_owner_without_ranges_starts_again(owner, tmp_path):
    owner.breaks.append(300_000)
    owner.ranges = False
    wanted = source(owner)
    with pytest.raises(DataError, match="stopped after"):
        fetch(wanted, tmp_path)
    assert fetch(wanted, tmp_path).read_bytes() == BODY


def test_a_part_that_is_whole_needs_nothing_more(owner, tmp_path):
    wanted = source(owner, sha256=hashlib.sha256(BODY).hexdigest())
    (tmp_path / "log.bin.part").write_bytes(BODY)
    assert fetch(wanted, tmp_path).read_bytes() == BODY
    assert owner.asked == [f"bytes={len(BODY)}-"]


def test_a_part_that_is_too_long_is_thrown_away(owner, tmp_path):
    wanted = source(owner)
    (tmp_path / "log.bin.part").write_bytes(BODY + b"more")
    assert fetch(wanted, tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_or_size_is_refused_and_removed(owner, tmp_path):
    with pytest.raises(
        DataError, match=r"must have the checksum 0000000000000000…, got [0-9a-f]{16}…; the file was removed"
    ):
        fetch(source(owner, sha256="0" * 64), tmp_path)
    with pytest.raises(DataError, match="must have 7 bytes, got 1,024,000; the file was removed"):
        fetch(source(owner, size=7), tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_server_and_no_file_get_one_sentence(owner, tmp_path):
    with pytest.raises(
        DataError, match=r"returned 404 Not Found for http.*; try later, or take it from http://page by hand"
    ):
        fetch(RemoteFile(owner.address + "/absent.bin"), tmp_path, page="http://page")
    with pytest.raises(DataError, match=r"127.0.0.1:9 could not be reached \(.*\); check the network and try again\."):
        fetch(RemoteFile("http://127.0.0.1:9/log.bin"), tmp_path)


def test_get_unpacks_and_places(owner, toy_dataset):
    inner = zipped({"toy/ratings": "1", "toy/deep/more": "2"})
    target = toy_dataset(
        "toy", source(owner, "/toy.zip", inner), source(owner, "/notes.txt.gz", gzip.compress(b"hello"))
    )
    assert not about_dataset("toy").present
    assert download("toy") == target
    assert (target / "toy" / "ratings").read_text() == "1"
    assert (target / "notes.txt").read_text() == "hello"
    assert about_dataset("toy").present
    assert sorted(entry.name for entry in target.parent.iterdir()) == ["toy"]
    download("toy")
    assert len(owner.asked) == 2


def test_a_single_folder_inside_is_the_dataset(owner, toy_dataset):
    target = toy_dataset("toy", source(owner, "/toy.zip", zipped({"toy/ratings": "1", "__MACOSX/junk": "2"})))
    download("toy")
    assert (target / "ratings").read_text() == "1"


def test_tar_files_and_plain_files(tmp_path):
    with tarfile.open(tmp_path / "log.tsv.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("log.tsv")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"ab"))
    (tmp_path / "plain.dat").write_bytes(b"x")
    (tmp_path / "out").mkdir()
    unpack_file(tmp_path / "log.tsv.gz", tmp_path / "out")
    unpack_file(tmp_path / "plain.dat", tmp_path / "out")
    assert (tmp_path / "out" / "log.tsv").read_bytes() == b"ab"
    assert (tmp_path / "out" / "plain.dat").read_bytes() == b"x"


def test_an_archive_cannot_write_elsewhere(tmp_path):
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        entry = tarfile.TarInfo("../escaped")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match=r"bad\.tar could not be unpacked"):
        unpack_file(tmp_path / "bad.tar", tmp_path / "out")
    (tmp_path / "bad.zip").write_bytes(zipped({"../escaped": "x"}))
    unpack_file(tmp_path / "bad.zip", tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


def test_a_broken_archive_is_removed_and_leaves_no_folder(owner, toy_dataset):
    target = toy_dataset("toy", source(owner, "/toy.csv.gz", b"\x1f\x8bnonsense"))
    with pytest.raises(DataError, match=r"toy.csv.gz could not be unpacked .* it was removed; try again"):
        download("toy")
    assert not target.exists()


def test_what_cannot_be_downloaded_says_where_to_go(toy_dataset):
    toy_dataset("manual")
    with pytest.raises(DataError, match=r"no automatic download .*get it from http://owner.example/page and put"):
        download("manual")
    toy_dataset("made-of", needs=("ml-1m", "frappe"))
    with pytest.raises(DataError, match="is made of ml-1m and frappe; get those"):
        download("made-of")
    toy_dataset("world", built_in=True)
    with pytest.raises(DataError, match="there is nothing to download"):
        download("world")


def test_the_commands(owner, toy_dataset):
    toy_dataset("toy", source(owner, "/toy.zip", zipped({"toy/ratings": "1"})))
    say = CliRunner()
    listed = json.loads(say.invoke(app, ["list", "--json"]).output)
    assert {entry["name"]: entry["present"] for entry in listed}["toy"] is False
    got = say.invoke(app, ["get", "toy"])
    assert got.exit_code == 0, got.output
    assert "No checksum is known" in got.output
    assert "Terms: none. Cite: nobody." in got.output
    printed = say.invoke(app, ["list"], env={"COLUMNS": "200"}).output
    assert "toy" in printed
    assert "by hand" in printed
    lost = say.invoke(app, ["get", "tyo"])
    assert isinstance(lost.exception, DataError)
    assert "did you mean 'toy'" in str(lost.exception)
