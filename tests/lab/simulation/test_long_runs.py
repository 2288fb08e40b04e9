"""Slow tests: large populations, long runs, and runs killed repeatedly."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_engine import fcf, run

from support.toys import same
from tacit.core.plan import Plan
from tacit.core.run_folder import Folder
from tacit.lab.data.synthetic.small import random_histories
from tacit.lab.simulation.federation import Federation

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]


def test_two_hundred_thousand_devices_fit_and_cost_the_same_each():
    def measure(devices):
        command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--one", str(devices)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])

    small, large = measure(20_000), measure(200_000)
    assert large["peak_GiB"] < 2.0
    assert large["us_per_device"] < 3 * small["us_per_device"]


def test_threads_do_not_deadlock_in_a_thousand_rounds():
    """A deadlock shows as a time-out."""
    plan = fcf(rounds=1000).with_setting("hyper.dim", 32)
    federation = Federation(plan, random_histories(2000, 300, 40))
    rounds = federation.begin(0)
    for number in range(1000):
        federation.play(rounds, number, number + 1)
    rounds.end()
    assert np.isfinite(federation.params["items"]).all()


def test_a_run_killed_repeatedly_ends_like_an_uninterrupted_one(tmp_path):
    code = (
        "import sys; sys.path[:0] = [sys.argv[2], sys.argv[2] + '/../..']\n"
        "from test_engine import Performance, fcf, run\n"
        "run(fcf(rounds=3000), out=sys.argv[1], performance=Performance(save_seconds=0.01), resume=sys.argv[3] == 'resume')"
    )
    folder, luck = Folder(tmp_path / "killed"), random.Random(7)
    for attempt in range(12):
        word = "resume" if folder.exists else "begin"
        command = [sys.executable, "-c", code, str(folder.path), os.path.dirname(__file__), word]
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline, before = time.monotonic() + 60, folder.latest() or 0
        while (folder.latest() or 0) <= before and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(luck.random() * 0.3)
        child.kill()
        child.wait()
        assert folder.latest() is not None, attempt
        if folder.latest() == 3000:
            break
    resumed = run(fcf(rounds=3000), out=folder.path, resume=True)
    same(run(fcf(rounds=3000)).params, resumed.params)
    assert [row["round"] for row in folder.rows()] == list(range(3000))
    assert Plan.from_toml(folder.read("plan.toml")) == resumed.plan
