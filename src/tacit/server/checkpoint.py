"""Checkpoints: the parameters and the server's memory after a round, saved completely or not at all.

What the server keeps of its noise is not saved: a stage that goes on from a checkpoint begins with none.
"""

from typing import Any

from tacit.core.run_folder import Folder
from tacit.server.round import Memory


def save_checkpoint(folder: Folder, rounds_done: int, params: dict, memory: Memory, keep: int = 1, **more: Any) -> None:
    """Save the parameters, the server's memory and further arrays of the caller after so many rounds."""
    kept = {"params": params, "rule": {"state": memory.rule}, "dials": memory.public_state}
    folder.checkpoint(rounds_done, {**kept, **more}, keep)


def load_checkpoint(folder: Folder, params: dict, memory: Memory) -> tuple[dict, Memory]:
    """Parameters and memory of the newest checkpoint, in the shapes of those given, with their noise."""
    state = folder.restore("rule", {"state": memory.rule})["state"]
    public_state = folder.restore("dials", memory.public_state) if memory.public_state else {}
    return folder.restore("params", params), memory._replace(rule=state, public_state=public_state)
