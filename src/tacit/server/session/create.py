"""The first files of a run of a deployment."""

import os
from typing import Any

import numpy as np

from tacit.core.run_folder import Folder, private, write_arrays, write_json
from tacit.deploy.bundle import Kit


def start(folder: Folder, kit: Kit, run: str, draws: int, noise: Any = None) -> None:
    """Write a run's name, the seed of its cohorts and the root of its noise, which the operating system draws unless it
    is given. Killed half-way, nothing has begun: the same again starts anew."""
    folder.refuse_another()
    folder.path.mkdir(parents=True, exist_ok=True)
    key = np.frombuffer(os.urandom(8), np.uint32) if noise is None else np.asarray(noise, np.uint32)
    write_arrays(private(folder.path / "noise.npz"), {"noise": key})
    write_json(folder.path / "run.json", {"run": run, "digest": kit.digest, "draws": str(draws)})
    facts = {"run": run, "digest": kit.digest, "plan_digest": kit.plan.digest, "people": kit.people}
    claims = [claim.to_dict() for stage in kit.price.claims for claim in stage]
    folder.begin(kit.plan.to_toml(), facts, claims)  # last: from here on a run lives here
