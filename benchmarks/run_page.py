"""The blocks whose command is run again each time the pages are made; `python benchmarks/pages.py` fills them.

Seeds are fixed, so the numbers are those of the code as it is.
"""

import shlex
import warnings
from dataclasses import fields
from functools import cache
from typing import Any

from pages import Block, Picture, span, table
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli.demo import STORIES, _trial
from tacit.lab.analysis.feasibility import FeasibilityWarning, assess_feasibility
from tacit.lab.analysis.report_data import report_data
from tacit.lab.audits.intersection_attack import observe_reports, score_intersection
from tacit.lab.data.datasets import dataset, open_log
from tacit.lab.data.synthetic.apps import SETTINGS, AppsSettings
from tacit.lab.experiments.compare import compare
from tacit.lab.experiments.tune import tune
from tacit.lab.plans.loader import choose, load_plan, numbers_trained
from tacit.report import write_picture
from tacit_papers import prices

TRUSTED = {"nobody": "nobody", "server": "the server", "organisation": "the organisation"}
NETWORKS = {
    "gru4rec": (
        "a gated recurrent unit over the session; every step asks for the next",
        "Hidasi et al. 2016, Hidasi and Karatzoglou 2018",
    ),
    "bert4rec": ("a transformer that fills gaps; the last gap is the next item", "Sun et al. 2019"),
    "sr-gnn": ("the session as a graph, one gated step, attention", "Wu et al. 2019"),
    "fedseqrec-central": ("FedSeqRec's, of words about items", "Li et al. 2022"),
    "fednewsrec-central": ("FedNewsRec's, as small", "Qi et al. 2020"),
}


def printed(command: str) -> str:
    """What a command prints."""
    return CliRunner().invoke(app, shlex.split(command.removeprefix("tacit ")), catch_exceptions=False).stdout


# ---- the demo ----


@cache
def stories() -> dict[str, Any]:
    """The trials of the demo, by name."""
    log = open_log("groups", 1000, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        return {name: _trial(name, plan, settings, log, 0) for name, plan, settings in STORIES}


def demo() -> str:
    """What each plan reaches, sends and promises."""
    lines = []
    for name, trial in stories().items():
        whole, found = trial.run.price.whole, trial.evaluation.metrics
        promised = ["", ""] if trial.epsilon == "∞" else [f"{_an(whole.unit)} {whole.unit}", TRUSTED[whole.trust]]
        metrics = [f"{found[metric]:.3f}" for metric in ("HR@10", "NDCG@10")]
        lines.append([name, *metrics, trial.sent, trial.epsilon, *promised])
    head = ["plan", "HR@10", "NDCG@10", "sent by a device", "ε per run", "the ε protects", "trusted"]
    return table(head, lines)


def _an(word: str) -> str:
    return "an" if word[0] in "aeio" else "a"


def draw_demo(path: Any) -> None:
    write_picture([report_data(trial, name, {"data": "groups"}) for name, trial in stories().items()], path)


# ---- choose ε ----

SWEEP = "tacit compare popularity fcf --set privacy.mechanism=gaussian --sweep privacy.epsilon=1,4,8 --seeds 2"
TUNE = "tacit tune fcf --set privacy.mechanism=gaussian --set privacy.epsilon=8 --search hyper.dim=4,8,16"


def sweep() -> str:
    """What is left of fcf's quality at each ε, and of popularity's."""
    log = open_log("groups", 1000, 0)
    swept, noise = {"privacy.epsilon": [1, 4, 8]}, {"privacy.mechanism": "gaussian"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        found = compare(["popularity", "fcf"], log, "full", range(2), swept, settings=noise, quiet=True)
    lines, counted = [], []
    for one in found.variants:
        scores = found.scores[one.name]
        if one.plan.name == "popularity":
            counted.append(scores["HR@10"].mean)
            continue
        (view,) = assess_feasibility(one.plan, log.catalog, len(log))
        at = view.verdict if view.verdict == "workable" else f"{view.verdict}, {view.signal_to_noise:.1f}"
        lines.append([f"{one.setting['privacy.epsilon']}", at, *(_score(scores[m]) for m in ("HR@10", "NDCG@10"))])
    made = table(["ε per run", "outlook at 1,000 devices", "HR@10", "NDCG@10"], lines)
    return f"{made}\n\nPopularity under the same promises reaches an HR@10 of {min(counted):.3f} to {max(counted):.3f}."


def _score(score: Any) -> str:
    return span([score.mean, score.interval.low, score.interval.high])


def tuned() -> str:
    """What three trials would cost on real devices."""
    noise = {"privacy.mechanism": "gaussian", "privacy.epsilon": 8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        found = tune(choose("fcf", noise), open_log("groups", 1000, 0), {"hyper.dim": [4, 8, 16]}, quiet=True)
    return f"> {found.privacy.partition(' Reporting')[0]}"


# ---- what the code says ----


def constants() -> str:
    """The constants of every launch log."""
    lines = [
        [f"`{field.name}`", *(f"{getattr(one, field.name):g}" for one in SETTINGS.values())]
        for field in fields(AppsSettings)
    ]
    return table(["field", *SETTINGS], lines)


def parameters() -> str:
    """How many numbers the sequential baselines train, by how many items there are."""
    lines = []
    for name, (network, after) in NETWORKS.items():
        one, two = (sum(numbers_trained(load_plan(name), items)) for items in (1, 2))
        grows = f"{two - one:,} n + " if two > one else ""
        lines.append([f"`{name}`", network, f"{grows}{2 * one - two:,}", after])
    return table(["plan", "network", "parameters for n items", "after"], lines)


def heard() -> str:
    """What an attacker who hears reports again and again knows of people's items."""
    log = dataset("movies", users=500, items=600)
    fresh = {"privacy.epsilon": None, "privacy.epsilon_per_message": 1.0}
    ways = [
        score_intersection(observe_reports("dplcf-ap", log, times=10, settings=one), log)
        for one in (fresh, {"privacy.memoised": True})
    ]
    lines = [
        [f"{one.reports}", *_named(one), *_named(other)] for one, other in zip(*ways) if one.reports in (1, 2, 3, 5, 10)
    ]
    ways_of = [f"{way}: items named" for way in ("fresh", "memoised")]
    return table(["reports", ways_of[0], "true among them", ways_of[1], "true among them"], lines)


def _named(found: Any) -> tuple[str, str]:
    return f"{found.named:.0f}", f"{100 * found.precision:.0f} %"


HERE = "make pages"  # made of what the code says; no other command prints it
BLOCKS = [
    Block("docs/getting-started.md", "demo", "tacit demo", demo, "minutes", 3),
    Block("docs/choose-epsilon.md", "sweep", SWEEP, sweep, "minutes", 3),
    Block("docs/choose-epsilon.md", "tune", TUNE, tuned, "minutes", 1),
    Block("docs/privacy.md", "what ε means", HERE, prices.guesses_to_markdown, "seconds", 1),
    Block("docs/privacy.md", "papers", "tacit price --papers", prices.to_markdown, "seconds", 1),
    Block(
        "docs/mechanisms.md", "takes", "tacit plan --mechanisms", lambda: printed("tacit plan --mechanisms"), "seconds"
    ),
    Block("docs/synthetic-data.md", "constants", HERE, constants, "seconds"),
    Block("docs/sequential.md", "parameters", HERE, parameters, "seconds"),
    Block("docs/dplcf.md", "heard", HERE, heard, "minutes", 1),
]
PICTURES = [Picture("demo.svg", "tacit demo", draw_demo, "minutes")]
