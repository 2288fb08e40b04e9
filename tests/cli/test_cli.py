"""The command line, as a person meets it."""

import json
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from tacit.cli import main
from tacit.cli.reproduce import command as reproduce
from tacit.errors import DataError, RunError
from tacit_papers import Table


def tacit(*words, check=True):
    """A command in this process, which has imported everything already: what it prints, and its exit code."""
    out, err, code = StringIO(), StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(), patch("sys.argv", ["tacit", *words]):
        warnings.simplefilter("default")
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return _checked(subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue()), check)


def tacit_alone(*words, check=True):
    """A command in a process of its own, as from a shell."""
    command = [sys.executable, "-m", "tacit", *words]
    return _checked(subprocess.run(command, capture_output=True, text=True), check)


def _checked(result, check):
    if check:
        assert result.returncode == 0, result.stderr
    return result


def test_every_command_file_is_a_command_and_help_is_in_its_order(capsys):
    import tacit.cli as cli

    files = {path.stem for path in Path(cli.__file__).parent.glob("[!_]*.py")} - {"common"}
    names = [name for name, _ in cli._commands()]
    assert {*names} == files
    assert names[:2] == ["demo", "run"]
    orders = [file.ORDER for _, file in cli._commands()]
    assert orders == sorted(set(orders)), "two commands have one place"
    listed = [
        line.split()[1]
        for line in tacit_alone("--help").stdout.splitlines()
        if line.startswith("│ ") and line[2] != " "
    ]
    assert [name for name in listed if name in files] == names


def test_a_command_is_added_by_one_file(tmp_path, monkeypatch):
    """A file beside the others is enough: it is found, listed and run."""
    import tacit.cli as cli

    (tmp_path / "hello.py").write_text(
        'ORDER = 1\n\n\ndef command() -> None:\n    """Say hello."""\n    print("hello")\n'
    )
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    assert cli._commands()[0][0] == "hello"
    assert CliRunner().invoke(cli._build(), ["hello"]).stdout == "hello\n"
    sys.modules.pop("tacit.cli.hello")


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert tacit("--version").stdout == f"tacit {version('tacit')}\n"


def test_plan_lists_and_prints():
    _is_one_sentence(tacit("plan", "--trust", "me", check=False), "--trust is one of nobody, server, organisation")
    printed = tacit("plan", "fcf").stdout
    assert 'method = "fcf"' in printed
    assert "ε = ∞ per run" in printed


@pytest.mark.slow
def test_plans_are_listed_with_what_they_send_and_guarantee():
    rows = json.loads(tacit("plan", "--trust", "nobody", "--json").stdout)
    found = {row["name"]: (row["sends"], row["guarantee"]["epsilon"], row["guarantee"]["unit"]) for row in rows}
    assert found["seqmf"] == ("1 message, qharmony", 4.5, "user")
    assert found["mfu"] == ("nothing", 0.0, "user")
    assert not {"fpl-dp", "fcf", "bert4rec", "dplcf-ap"} & set(found), "the server is trusted, or nothing is guaranteed"


def test_a_plan_as_json_counts_what_is_trained():
    printed = json.loads(tacit("plan", "fedseqrec-paper", "--json").stdout)
    assert printed["numbers_trained"][1] == 1_884_406
    assert printed["guarantee"]["epsilon"] == "inf"
    assert printed["stage"][1]["method"] == "fedseqrec"


@pytest.mark.slow
def test_run_json_then_resume(tmp_path):
    words, folder = ["run", "popularity", "--devices", "60", "--json"], str(tmp_path / "r")
    first = json.loads(tacit_alone(*words, "--out", folder).stdout)
    names = {
        "plan",
        "metrics",
        "claims",
        "bytes_up_per_device",
        "bytes_down_per_device",
        "rounds",
        "devices",
        "seconds",
    }
    assert names < set(first)
    assert first["devices"] == 60
    assert first["claims"][0][0]["epsilon"] == "inf"
    assert 0 < first["metrics"]["HR@10"] <= 1
    again = json.loads(tacit_alone(*words, "--resume", folder).stdout)
    assert again["metrics"] == first["metrics"]
    assert again["rounds"] == first["rounds"] == 1


@pytest.mark.slow
def test_run_a_file_with_a_setting(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(tacit_alone("plan", "fcf-sparse").stdout)
    words = [
        "run",
        str(path),
        "--devices",
        "40",
        "--set",
        "hyper.dim=4",
        "--set",
        "rounds=2",
        "--json",
    ]
    result = json.loads(tacit_alone(*words).stdout)
    assert result["plan"]["stage"][0]["hyper"]["dim"] == 4
    assert result["rounds"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "fcff"], "did you mean 'fcf'?"),
        (["run", "no.toml"], "Plan file 'no.toml' does not exist"),
        (["run", "fcf", "--set", "hyper.dmi=3"], "did you mean 'dim'?"),
        (["run", "fcf", "--set", "hyper.dim"], "--set takes name=value"),
        (["run", "fcf", "--set", "hyper.dim=big"], "must be of type int, got 'big'"),
        (["run", "fcf", "--resume", "a", "--out", "b"], "leave --out b away"),
        (["run", "fcf", "--resume", "nowhere"], "is not a run folder"),
        (["run", "fcf", "--sed", "3"], "--sed"),
        (["rnu"], "rnu"),
        (["run", "fcf", "--devices", "0"], "devices"),
        (["run", "fcf", "--data", "movis"], "did you mean 'movies'?"),
        (["run", "fcf", "--data", "no.csv"], "no.csv"),
        (["run", "fcf", "--protocol", "ful"], "did you mean 'full'?"),
    ],
)
def test_a_mistake_gets_one_sentence_and_exit_code_2(words, sentence):
    _is_one_sentence(tacit(*words, check=False), sentence)


def test_a_mistake_in_a_process_of_its_own():
    _is_one_sentence(tacit_alone("run", "fcff", check=False), "did you mean 'fcf'?")


def _is_one_sentence(result, sentence):
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_run_a_file_of_ones_own_by_another_protocol(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"u{u},i{(u * 7 + k * k) % 150},2024-0{1 + k % 3}-{1 + k:02d}" for u in range(30) for k in range(20)]
    path.write_text("user_id,item_id,datetime\n" + "\n".join(rows) + "\n")
    result = json.loads(tacit_alone("run", "popularity", "--data", str(path), "--protocol", "dplcf", "--json").stdout)
    assert result["candidates"] == "1 + 99 sampled items"
    assert result["devices"] == 30
    low, high = result["intervals"]["HR@10"]
    assert low <= result["metrics"]["HR@10"] <= high


COLUMNS = ("--user", "who", "--item", "what", "--time", "when", "--weight", "stars", "--delimiter", ";")


def semicolons(folder):
    """A log with names and a delimiter of its own."""
    rows = [f"{user};{(user * 3 + step) % 11};{step};5" for user in range(30) for step in range(6)]
    path = folder / "mine.csv"
    path.write_text("\n".join(["who;what;when;stars", *rows]))
    return str(path)


def test_columns_of_a_file_are_named_on_the_command_line(tmp_path):
    path = semicolons(tmp_path)
    run = json.loads(tacit("run", "popularity", "--data", path, *COLUMNS, "--json").stdout)
    assert run["devices"] == 30
    described = json.loads(tacit("data", "describe", path, *COLUMNS, "--json").stdout)
    assert (described["users"], described["items"]) == (30, 11)
    wrong = tacit("run", "popularity", "--data", path, "--user", "whom", "--delimiter", ";", check=False)
    _is_one_sentence(wrong, "did you mean 'who'?")
    no_file = tacit("run", "popularity", "--data", "groups", "--user", "who", check=False)
    _is_one_sentence(no_file, "--user says how to read a file, but 'groups' is not one; leave it out.")
    missing = tacit("run", "popularity", "--data", "no-such.csv", check=False)
    _is_one_sentence(missing, "There is no file 'no-such.csv'")


def test_protocols_are_listed():
    assert {"full", "fpl"} <= {line.split()[0] for line in tacit("protocols").stdout.splitlines()}


def test_doctor():
    found = json.loads(tacit_alone("doctor", "--json").stdout)
    assert found["versions"]["tacit"]
    assert "works" in found["devices"]["a product"]
    assert set(found["extras"]) == {"flower", "audit", "bench", "dev"}


@pytest.mark.slow
def test_a_table_that_a_paper_does_not_have():
    asked = tacit_alone("reproduce", "seqmf", "--table", "9", check=False)
    assert asked.returncode != 0
    assert "seqmf has no part 'table9'; did you mean 'table" in asked.stderr
    priced = tacit_alone("reproduce", "privrec", "--table", "4", "--json")
    assert [part["name"] for part in json.loads(priced.stdout)["parts"]] == ["table4"]


def test_a_table_whose_log_is_not_here(monkeypatch):
    monkeypatch.setattr("tacit_papers.reproduce", lambda name, options: iter(()))
    with pytest.raises(
        DataError, match=r"privrec: table3 cannot be made without a log that is missing; see tacit data"
    ):
        reproduce("privrec", table=[3], size="small")


def test_what_a_reproduction_has_made_is_kept_when_the_rest_fails(tmp_path, monkeypatch, capsys):
    def parts(name, options):
        del name, options
        yield Table("table1", "Table 1", "no data", ())
        raise RunError("the rest fails")

    monkeypatch.setattr("tacit_papers.reproduce", parts)
    with pytest.raises(RunError, match="the rest fails"):
        reproduce("privrec", part=["table1"], size="small", out=tmp_path / "made.json")
    assert [part["name"] for part in json.loads((tmp_path / "made.json").read_text())["parts"]] == ["table1"]
    assert "Table 1" in capsys.readouterr().out
