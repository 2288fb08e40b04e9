"""Run folders of another version: former names are migrated, a newer format is refused."""

import json

import numpy as np
import polars as pl
import pytest

import tacit
from tacit.core.run_folder import RUN_FORMAT, write_json
from tacit.errors import RunError

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
LOG = pl.DataFrame({"user_id": [0, 0, 1, 1, 2, 3], "item_id": [1, 2, 2, 3, 0, 3]})
SETTINGS = {"privacy.mechanism": "randomized_response", "privacy.epsilon": 2.0}


@pytest.fixture
def saved(tmp_path):
    """A saved run, and its folder."""
    run = tacit.simulate("popularity", LOG, settings=SETTINGS, quiet=True, out=tmp_path / "run")
    run.save(tmp_path / "run")
    return run, tmp_path / "run"


def as_format_1(path) -> None:
    """The folder as an earlier version wrote it: without a format, and with a mechanism's former name."""
    text = (path / "plan.toml").read_text()
    (path / "plan.toml").write_text(text.replace('"randomized_response"', '"response"'))
    facts = json.loads((path / "environment.json").read_text())
    del facts["format"]
    write_json(path / "environment.json", {**facts, "plan_digest": "of the former name"})


def test_a_folder_of_format_1_is_loaded_with_the_names_of_today(saved):
    run, path = saved
    as_format_1(path)
    again = tacit.Run.load(path)
    assert again.plan == run.plan
    np.testing.assert_array_equal(again.params["counts"], run.params["counts"])


@pytest.mark.bitwise
def test_a_folder_of_format_1_is_resumed(saved):
    run, path = saved
    as_format_1(path)
    again = tacit.simulate("popularity", LOG, settings=SETTINGS, quiet=True, out=path, resume=True)
    np.testing.assert_array_equal(again.params["counts"], run.params["counts"])


def test_a_folder_of_a_newer_format_is_refused(saved):
    _, path = saved
    facts = json.loads((path / "environment.json").read_text())
    write_json(path / "environment.json", {**facts, "format": RUN_FORMAT + 1})
    for attempt in (
        lambda: tacit.Run.load(path),
        lambda: tacit.simulate("popularity", LOG, settings=SETTINGS, quiet=True, out=path, resume=True),
    ):
        with pytest.raises(RunError, match=f"of format {RUN_FORMAT + 1}, this Tacit reads up to {RUN_FORMAT}"):
            attempt()
