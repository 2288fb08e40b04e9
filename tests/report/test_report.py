"""The report: one file, complete, nothing fetched, nothing unescaped, every plan's claims and message in it."""

import base64
import copy
import hashlib
import json
import re
import shutil
import subprocess
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import vl_convert
from typer.testing import CliRunner

import tacit
from tacit.cli.report import command as report
from tacit.cli.report import read_dossier
from tacit.errors import RunError
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.analysis.report_data import report_data
from tacit.lab.data import from_events
from tacit.report import write_picture, write_report
from tacit.report.chart_parts import CONFIG, place_labels, spread_apart
from tacit.report.formatting import (
    bytes_text,
    comparable_groups,
    number_text,
    primary_metric,
    seconds_text,
    with_distinct_names,
)
from tacit.report.html import tag
from tacit.report.page import COLOURS

EVIL = "<script>alert('it')</script>"
PLANS = {
    "random": ("random", {}),
    "popularity": ("popularity", {"rounds": 3}),
    "itemknn": ("itemknn", {}),
    "sr": ("sr", {}),
    "at home": ("popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 1.0}}),
    "more at home": ("popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 3.0}}),
    "at the server": (
        "popularity",
        {"privacy": {"mechanism": "gaussian", "epsilon": 8.0, "quantile": 0.5}, "rounds": 3},
    ),
    "signs": ("popularity", {"privacy": {"mechanism": "harmony", "epsilon": 8.0}}),
}
# Words inside the library that are never fetched: names of formats, and an address in an error's text.
NAMES_ONLY = ("http://www.w3.org/", "https://vega.github.io/", "https://github.com/vega/")


@pytest.fixture(scope="module")
def dossiers() -> list[dict]:
    """Eight plans on one small log, one of whose items has a hostile name."""
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(30), rng.integers(3, 9, 30))
    item = rng.integers(14, size=user.size)
    item[np.unique(user, return_index=True)[1]] = 0  # everybody has it
    world = from_events(user, item, n_items=14)
    world = replace(world, item_names=[EVIL, *(f"song {i} & co" for i in range(1, 14))])
    made = []
    for name, (plan, settings) in PLANS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeasibilityWarning)
            run = tacit.simulate(plan, world, settings=settings, protocol="full", every=1, quiet=True)
        made.append(report_data(run, name, {"data": "songs", "seed": 0}))
    return made


@pytest.fixture(scope="module")
def text(dossiers, tmp_path_factory) -> str:
    return write_report(dossiers, tmp_path_factory.mktemp("report") / "deep" / "report.html").read_text()


class Page(HTMLParser):
    """Every tag with its attributes, every script, and the words a person sees."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self.words, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag in self.blocks:
            self.blocks[tag].append("")

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside in self.blocks:
            self.blocks[self.inside][-1] += data
        else:
            self.words += data

    @property
    def specs(self) -> dict:
        return json.loads(self.blocks["script"][0])["specs"]

    @property
    def places(self) -> list[str]:
        named = [attrs.get(name) for _, attrs in self.tags for name in ("data-chart", "data-narrow")]
        return [name for name in named if name]


# ---- complete, and nothing fetched ----


def test_nothing_would_be_fetched(text):
    page = Page(text)
    fetching = {"src", "srcset", "action", "data", "poster", "xlink:href", "background", "formaction", "ping"}
    for name, attrs in page.tags:
        assert name not in {"link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "image"}
        assert not fetching & set(attrs), (name, attrs)
        assert attrs.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import", page.blocks["style"][0])
    outside = text.replace(page.blocks["script"][1], "")
    assert not re.search(r"https?://|//\w+\.\w+/", outside)
    found = re.findall(r"https?://[^\s\"'`)]*", page.blocks["script"][1])
    assert all(one.startswith(NAMES_ONLY) for one in found), found


def test_the_policy_forbids_fetching_and_every_other_script(text):
    page = Page(text)
    (policy,) = [attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    run = page.blocks["script"][1:]
    hashes = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in run]
    assert rules["script-src"].split() == [f"'sha256-{one}'" for one in hashes]
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)


def test_the_library_is_there_once_and_the_file_is_small(text):
    assert text.count("window.vegaEmbed=") == 1
    assert "Redistribution and use in source and binary forms" in text
    assert len(text.encode()) < 2_000_000


def test_every_chart_is_there_and_compiles(text):
    page = Page(text)
    assert sorted(page.places) == sorted(page.specs)
    for name in ("tradeoff-1", "compared-1", "rounds-1", "state-clip-1", "groups-1-0", "bytes-1", "sent-0-6-0"):
        assert name in page.specs
    for spec in page.specs.values():
        made = vl_convert.vegalite_to_vega({**spec, "config": CONFIG, "width": 500})
        assert made["marks"]


def test_light_dark_print_and_phone(text):
    (style,) = Page(text).blocks["style"]
    for part in ("prefers-color-scheme: dark", "@media print", "max-width: 760px"):
        assert part in style
    assert 'name="viewport"' in text


# ---- content ----


def test_every_plan_has_its_row_its_claims_and_its_message(dossiers, text):
    words = Page(text).words
    for one in dossiers:
        assert one["whole"]["says"] in words
        assert one["card"]["in_words"] in words
        assert f"digest {one['digest']}" in words
        assert one["toml"].splitlines()[-1] in words
    for said in (
        "Nothing leaves the device.",
        "The whole history, pooled on one machine",
        "exactly those of the history",
        "are made up",
        "What is released",
        "drawn at random",
    ):
        assert said in words


def test_conditions_and_exclusions_are_on_the_page(dossiers, text):
    words = Page(text).words
    kept = [one for one in dossiers if 0 < float(one["whole"]["epsilon"]) < float("inf")]
    assert len(kept) == 4
    for one in kept:
        stages = one["card"]["stages"]
        visible = [word for stage in stages for word in stage["visible"]]
        for word in (*one["whole"]["conditions"], *one["card"]["not_covered"], *visible):
            assert word in words


def test_infinity_is_printed_as_infinity(text):
    words = Page(text).words
    assert "ε = ∞" in words
    assert not re.search(r"\binf\b|\bnan\b|Infinity", words)


def test_names_are_escaped(text):
    assert EVIL not in text
    assert "&lt;script&gt;alert(" in text
    assert "song 1 & co" not in text.replace(Page(text).blocks["script"][0], "")


def test_a_name_cannot_end_the_data(dossiers, tmp_path):
    hostile = copy.deepcopy(dossiers[:2])
    hostile[0]["name"] = "</script><script>alert(1)</script>"
    text = write_report(hostile, tmp_path / "report.html").read_text()
    page = Page(text)
    assert len(page.blocks["script"]) == 3
    assert any(hostile[0]["name"] in json.dumps(spec) for spec in page.specs.values())


def test_the_same_device_is_shown_once(dossiers, text):
    words = Page(text).words
    assert len({json.dumps(one["specimen"]["history"]) for one in dossiers}) == 1
    assert words.count("Its history") == 1


# ---- any number of plans, with or without an evaluation ----


@pytest.mark.parametrize("which", range(len(PLANS)), ids=list(PLANS))
def test_one_plan_alone(dossiers, tmp_path, which):
    page = Page(write_report(dossiers[which : which + 1], tmp_path / "report.html").read_text())
    assert sorted(page.places) == sorted(page.specs)
    assert dossiers[which]["whole"]["says"] in page.words


def test_plans_with_other_evaluations_are_not_compared(dossiers, tmp_path):
    other = copy.deepcopy(dossiers[1])
    other["data"]["digest"], other["data"]["name"] = "another", "films"
    page = Page(write_report([dossiers[0], other], tmp_path / "report.html").read_text())
    assert "Results: songs, full" in page.words
    assert "Results: films, full" in page.words
    assert len(page.specs["tradeoff-1"]["data"]["values"]) == 1


def test_a_run_without_an_evaluation(dossiers, tmp_path):
    bare = copy.deepcopy(dossiers[4])
    bare |= {"protocol": None, "metrics": {}, "intervals": {}, "groups": {}, "rounds": []}
    page = Page(write_report([bare], tmp_path / "report.html").read_text())
    assert "tradeoff-1" not in page.specs
    assert bare["whole"]["says"] in page.words


def test_without_specimens_no_history_is_in_the_page(dossiers, tmp_path):
    shown = [{**one, "specimen": None} for one in dossiers]
    text = write_report(shown, tmp_path / "report.html").read_text()
    assert "song " not in text
    assert "What one device sent" not in text


def test_two_plans_of_one_name_are_told_apart(dossiers):
    made = with_distinct_names([dossiers[0], dossiers[1], dossiers[0]])
    assert [one["name"] for one in made] == ["random (1)", "popularity", "random (2)"]


def test_an_empty_report_and_an_unknown_dossier_are_refused(dossiers, tmp_path):
    with pytest.raises(RunError, match="A report needs at least one run, got none"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(RunError, match="A dossier must have format 1, got 7; run the plan again with this version"):
        write_report([{**dossiers[0], "format": 7}], tmp_path / "report.html")


# ---- the chart of privacy against quality ----


def test_zero_and_infinity_have_columns_of_their_own(text):
    spec = Page(text).specs["tradeoff-1"]
    where = {row["name"]: row["x"] for row in spec["data"]["values"]}
    axis = next(layer["encoding"]["x"] for layer in spec["layer"] if "axis" in layer["encoding"].get("x", {}))
    assert where["random"] < min(where["at home"], where["at the server"])
    assert min(where["popularity"], where["itemknn"], where["sr"]) > max(where["more at home"], where["signs"])
    assert where["more at home"] - where["at home"] == pytest.approx(np.log10(3), abs=1e-6)
    assert axis["axis"]["values"][0] == pytest.approx(where["random"])
    assert "'∞'" in axis["axis"]["labelExpr"]


def test_verdicts_change_at_the_epsilon_of_the_reach(dossiers, text):
    spec = Page(text).specs["tradeoff-1"]
    strips = [row for layer in spec["layer"] for row in layer.get("data", {}).get("values", []) if "strip" in row]
    reach = next(one["reach"] for one in dossiers if one["name"] == "at home")
    first = [row for row in strips if row["strip"] == 0]
    edges = {round(row["to"], 6) for row in first} | {round(row["from"], 6) for row in first}
    low, high = min(edges), max(edges)
    turns = [np.log10(reach[word]) for word in ("weak", "workable")]
    assert any(low < turn < high for turn in turns)
    assert all(round(turn, 6) in edges for turn in turns if low < turn < high)


def test_plans_that_differ_in_epsilon_alone_share_a_line(text):
    rows = {row["name"]: row for row in Page(text).specs["tradeoff-1"]["data"]["values"]}
    assert rows["at home"]["family"] == rows["more at home"]["family"]
    assert len({row["family"] for row in rows.values()}) == len(rows) - 1


# ---- the picture ----


def test_the_picture_is_an_svg_for_light_and_dark(dossiers, tmp_path):
    path = write_picture(dossiers, tmp_path / "pictures" / "demo.svg")
    svg = path.read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert len(svg.encode()) < 100_000
    assert "prefers-color-scheme:dark" in svg
    assert "var(" not in svg
    assert all(name in svg for name in ("random", "itemknn", "∞"))


def test_the_picture_has_the_colours_of_the_page(text):
    (style,) = Page(text).blocks["style"]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    for name, (by_day, by_night) in COLOURS.items():
        assert f"--{name}: {by_day};" in light
        assert f"--{name}: {by_night};" in dark


def test_a_picture_of_two_settings_is_refused(dossiers, tmp_path):
    other = copy.deepcopy(dossiers[1])
    other["data"]["digest"] = "another"
    with pytest.raises(RunError, match="with the same evaluation on the same users, got 2 settings"):
        write_picture([dossiers[0], other], tmp_path / "demo.svg")


# ---- the command ----


def command(*arguments: str):
    import typer

    app = typer.Typer()
    app.command()(report)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_reads_run_folders(dossiers, tmp_path):
    for name, one in (("a", dossiers[0]), ("b", dossiers[4])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dossier.json").write_text(json.dumps(one))
    out, picture = tmp_path / "page.html", tmp_path / "page.svg"
    folders = [str(tmp_path / name) for name in "ab"]
    result = command(*folders, "--out", str(out), "--picture", str(picture), "--no-specimen")
    assert result.exit_code == 0, result.output
    assert "at home" in out.read_text()
    assert "What one device sent" not in out.read_text()
    assert picture.exists()


def test_a_folder_without_a_dossier_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"has no dossier\.json: it is not the folder of a completed run"):
        read_dossier(tmp_path)
    (tmp_path / "dossier.json").write_text('{"format": 1')
    with pytest.raises(RunError, match="is not valid JSON; run the plan again with --out"):
        read_dossier(tmp_path)


# ---- small parts ----


def test_numbers_are_formatted_readably():
    assert [bytes_text(size) for size in (0, 999, 1000, 123_456, 9.9e6, 2e12)] == [
        *("nothing", "999 B", "1.0 kB", "123 kB", "9.9 MB", "2000 GB")
    ]
    assert [seconds_text(s) for s in (0.0012, 0.5, 61, 600, 7200)] == ["1.2 ms", "0.5 s", "61.0 s", "10.0 min", "2.0 h"]
    assert [number_text(value) for value in (None, True, 12345, 0.5, 2e7, "inf")] == [
        *("–", "yes", "12,345", "0.5", "20,000,000", "∞")
    ]


def test_the_drawn_metric_is_one_that_all_plans_have():
    assert primary_metric([{"metrics": {"HR@10": 1, "NDCG@10": 1}}, {"metrics": {"NDCG@10": 0}}]) == "NDCG@10"
    assert primary_metric([{"metrics": {"AUC": 1, "HR@5": 1}}, {"metrics": {"HR@5": 1, "AUC": 1}}]) == "HR@5"
    assert primary_metric([{"metrics": {"AUC": 1}}, {"metrics": {}}]) is None


def test_places_are_moved_apart_and_keep_their_order():
    moved = spread_apart([0.3, 0.1, 0.2, 9.0], 1.0)
    assert moved[3] == 9.0
    assert moved[1] < moved[2] < moved[0]
    assert np.diff(sorted(moved)).min() >= 1.0 - 1e-9


def test_labels_do_not_overlap():
    labels = place_labels([["one"], ["two"], ["three"]], [(50, 50), (50, 50), (50, 50)], [], (0, 0, 200, 200))
    assert len(set(labels)) == 3
    assert place_labels([["at the edge"]], [(198, 50)], [], (0, 0, 200, 200))[0].align == "right"


def test_text_is_escaped_and_tags_are_not():
    assert tag("p", "<b>", tag("b", "&"), None, title='"') == '<p title="&quot;">&lt;b&gt;<b>&amp;</b></p>'


def test_only_equal_evaluations_are_compared(dossiers):
    other = copy.deepcopy(dossiers[1])
    other["protocol"]["candidates"] = "99 sampled"
    assert [len(group) for group in comparable_groups([*dossiers, other])] == [len(dossiers), 1]


# ---- in a browser ----


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_draws_every_chart_without_an_error(text, tmp_path: Path, width: int):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on PATH")
    path = tmp_path / "report.html"
    path.write_text(text)
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=10000", "--enable-logging=stderr", f"--window-size={width},2000"]
    result = subprocess.run(
        [browser, *options, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert "CONSOLE" not in result.stderr, result.stderr
    page = Page(result.stdout)
    assert "could not be drawn" not in page.words
    assert sum(tag == "svg" for tag, _ in page.tags) == sum("data-chart" in attrs for _, attrs in page.tags) > 10
