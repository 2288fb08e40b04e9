"""Checkpoints of the server's state: parameters and memory, saved completely or not at all."""

from typing import Any

from tacit.core.run_folder import Folder
from tacit.server.round import Memory


def save(folder: Folder, rounds_done: int, params: dict, memory: Memory, **more: Any) -> None:
    """Parameters, the server's memory, and whatever the caller adds, after so many rounds."""
    kept = {"params": params, "rule": {"state": memory.rule}, "dials": memory.dials}
    folder.checkpoint(rounds_done, {**kept, **more})


def load(folder: Folder, params: dict, memory: Memory) -> tuple[dict, Memory]:
    """Parameters and memory of the newest checkpoint, in the shape of these."""
    state = folder.restore("rule", {"state": memory.rule})["state"]
    dials = folder.restore("dials", memory.dials) if memory.dials else {}
    return folder.restore("params", params), Memory(state, dials)
