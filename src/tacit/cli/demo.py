"""`tacit demo`: the main job on built-in data, in a minute or two, with a report at the end."""

from pathlib import Path
from typing import Annotated, Any

import typer

# name, plan, settings; what noise buys and costs, from nothing sent to everything sent
STORIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("random", "random", {}),
    ("popularity", "popularity", {}),
    ("popularity, noise at home", "popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 1.0}}),
    ("itemknn, raw data pooled", "itemknn", {}),
    ("fcf, no noise", "fcf", {}),
    ("fcf, noise at the server", "fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 8.0}}),
    ("fcf, more noise at the server", "fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 1.0}}),
    ("fcf, noise at home", "fcf", {"privacy": {"mechanism": "gaussian", "place": "local", "epsilon": 8.0}}),
)
NEXT = """
Next:
  tacit price fcf --set privacy.mechanism=gaussian --set privacy.epsilon=4 --users 10000   what it costs, before it runs
  tacit run fcf --data your-log.csv                                  your own data: user_id, item_id[, datetime]
  tacit compare popularity fcf --sweep rounds=5,30                   plans side by side, with intervals
  tacit price --papers                                               five papers, as claimed and as accounted
  tacit plan                                                         what is on the shelf"""


def demo(
    devices: Annotated[int, typer.Option(min=20, help="How many people.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same demo.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("tacit-demo.html"),
) -> None:
    """Learn from a thousand people who tell nobody anything: baselines, no noise, noise at the server, noise at home."""
    import warnings

    from tacit.cli.common import print_trials
    from tacit.lab.analysis.feasibility import FeasibilityWarning
    from tacit.lab.analysis.report_data import report_data
    from tacit.lab.data.datasets import open_log
    from tacit.report import write_report

    warnings.simplefilter("ignore", FeasibilityWarning)  # the table and the report show what it would say
    log = open_log("tastes", devices, seed)
    print(f"A synthetic log of {devices:,} people and 200 items; each person's last item is the question.\n")
    trials = {name: _trial(name, plan, settings, log, seed) for name, plan, settings in STORIES}
    print_trials(list(trials.values()))
    page = write_report([report_data(trial, name, {"data": "tastes"}) for name, trial in trials.items()], out)
    print(f"\nThe report is in {page}: open it in a browser.{NEXT}")


def _trial(name: str, plan: str, settings: dict[str, Any], log: Any, seed: int) -> Any:
    from dataclasses import replace

    from tacit.lab.experiments.trial import trial
    from tacit.lab.plans.loader import choose

    return trial(replace(choose(plan, settings), name=name), log, seed=seed, every=5)
