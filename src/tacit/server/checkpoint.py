"""Checkpoints: the parameters and the server's memory after a round, saved completely or not at all."""

from typing import Any

from tacit.core.run_folder import Folder
from tacit.server.round import Memory


def save_checkpoint(folder: Folder, rounds_done: int, params: dict, memory: Memory, **more: Any) -> None:
    """Save the parameters, the server's memory and further arrays of the caller after so many rounds."""
    kept = {"params": params, "rule": {"state": memory.rule}, "dials": memory.dials}
    folder.checkpoint(rounds_done, {**kept, **more})


def load_checkpoint(folder: Folder, params: dict, memory: Memory) -> tuple[dict, Memory]:
    """Parameters and memory of the newest checkpoint, in the shapes of those given."""
    state = folder.restore("rule", {"state": memory.rule})["state"]
    dials = folder.restore("dials", memory.dials) if memory.dials else {}
    return folder.restore("params", params), Memory(state, dials)
