"""Run folders: the format number, and arrays by name."""

import json

import numpy as np
import pytest

from tacit.core.run_folder import RUN_FORMAT, Folder, read_arrays_by_name, write_arrays, write_json
from tacit.errors import RunError


def begun(path) -> Folder:
    folder = Folder(path)
    folder.begin('name = "p"\n', {"tacit": "0.1.0"}, [])
    return folder


def with_format(folder: Folder, number: int | None) -> Folder:
    facts = json.loads((folder.path / "environment.json").read_text())
    facts.pop("format")
    write_json(folder.path / "environment.json", facts if number is None else {**facts, "format": number})
    return folder


def test_a_new_folder_has_the_format_of_today(tmp_path):
    folder = begun(tmp_path / "run")
    assert folder.format == RUN_FORMAT
    assert json.loads(folder.read("environment.json")) == {"format": RUN_FORMAT, "tacit": "0.1.0"}


def test_a_folder_without_a_number_has_format_1_and_is_read(tmp_path):
    folder = with_format(begun(tmp_path / "run"), None)
    assert folder.format == 1
    assert folder.read("plan.toml") == 'name = "p"\n'


@pytest.mark.parametrize("name", ["plan.toml", "environment.json", "rounds.jsonl"])
def test_a_folder_of_a_newer_format_is_refused_with_a_sentence(tmp_path, name):
    folder = with_format(begun(tmp_path / "run"), RUN_FORMAT + 1)
    with pytest.raises(
        RunError, match=rf"is a run folder of format {RUN_FORMAT + 1}, this Tacit reads up to {RUN_FORMAT}; update"
    ):
        folder.read(name)


def test_arrays_come_back_by_name_and_nested(tmp_path):
    tree = {"columns": {"items": np.arange(3), "it's": np.ones(2)}, "offset": np.zeros(1), "empty": {}}
    write_arrays(tmp_path / "a.npz", tree)
    found = read_arrays_by_name(tmp_path / "a.npz")
    assert sorted(found) == ["columns", "offset"]
    np.testing.assert_array_equal(found["columns"]["items"], np.arange(3))
    np.testing.assert_array_equal(found["columns"]["it's"], np.ones(2))
