"""Checkpoints: what a server must not forget, saved whole or not at all."""

from typing import Any

from tacit.record import Folder


def save(folder: Folder, rounds_done: int, params: dict, state: Any, **more: Any) -> None:
    """Parameters, the rule's state, and whatever the caller keeps beside them, after so many rounds."""
    folder.checkpoint(rounds_done, {"params": params, "rule": {"state": state}, **more})


def load(folder: Folder, params: dict, state: Any) -> tuple[dict, Any]:
    """Parameters and rule state of the newest checkpoint, in the shape of these."""
    return folder.restore("params", params), folder.restore("rule", {"state": state})["state"]
