"""`tacit demo`: baselines and private methods on built-in data in a minute or two, with a report."""

from pathlib import Path
from typing import Annotated, Any

import typer

ORDER = 5  # in `tacit --help`

# name, plan, settings: from nothing sent to all data pooled, with and without noise
STORIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("random", "random", {}),
    ("popularity", "popularity", {}),
    ("popularity, local noise", "popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 1.0}}),
    ("itemknn, raw data pooled", "itemknn", {}),
    ("fcf, no noise", "fcf", {}),
    ("fcf, central noise", "fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 8.0}}),
    ("fcf, more central noise", "fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 1.0}}),
    ("fcf, local noise", "fcf", {"privacy": {"mechanism": "gaussian", "place": "local", "epsilon": 8.0}}),
)
NEXT = """
Next:
  tacit price fcf --set privacy.mechanism=gaussian --set privacy.epsilon=4 --users 10000   what it costs, before it runs
  tacit run fcf --data your-log.csv                                  your own data: user_id, item_id[, datetime]
  tacit compare popularity fcf --sweep rounds=5,30                   plans side by side, with intervals
  tacit price --papers                                               five papers, as claimed and as accounted
  tacit plan                                                         the built-in plans"""


def command(
    devices: Annotated[int, typer.Option(min=20, help="The number of users.")] = 1000,
    seed: Annotated[int, typer.Option(help="The random seed.")] = 0,
    out: Annotated[Path, typer.Option(help="The file for the report.")] = Path("tacit-demo.html"),
) -> None:
    """Compare baselines and private methods on synthetic data: no noise, central noise, local noise."""
    import warnings

    from tacit.cli.common import print_trials
    from tacit.lab.analysis.feasibility import FeasibilityWarning
    from tacit.lab.analysis.report_data import report_data
    from tacit.lab.data.datasets import open_log
    from tacit.report import write_report

    warnings.simplefilter("ignore", FeasibilityWarning)  # the table and the report show what it would say
    log = open_log("groups", devices, seed)
    print(f"A synthetic log of {devices:,} people and 200 items; each user's last item is held out for the test.\n")
    trials = {name: _trial(name, plan, settings, log, seed) for name, plan, settings in STORIES}
    print_trials(list(trials.values()))
    page = write_report([report_data(trial, name, {"data": "groups"}) for name, trial in trials.items()], out)
    print(f"\nThe report is in {page}: open it in a browser.{NEXT}")


def _trial(name: str, plan: str, settings: dict[str, Any], log: Any, seed: int) -> Any:
    from dataclasses import replace

    from tacit.lab.experiments.trial import trial
    from tacit.lab.plans.loader import choose

    return trial(replace(choose(plan, settings), name=name), log, seed=seed, every=5)
