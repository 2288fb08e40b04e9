"""Schedule: when a device may take part. Conditions of the machine are read where the platform tells; a hook adds others.

On Linux, power comes from /sys/class/power_supply and the metered flag from NetworkManager (`nmcli`). Where a platform says
nothing, a condition that was asked for does not hold: the device waits rather than guess.
"""

import shutil
import subprocess
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit.errors import DeviceError

POWER = Path("/sys/class/power_supply")
_HOOK_SECONDS = 10.0


@dataclass(frozen=True)
class Schedule:
    """When a device may take part; every part that is set must hold.

    >>> Schedule(hours=(22, 6)).in_hours(23), Schedule(hours=(22, 6)).in_hours(12), Schedule().in_hours(12)
    (True, False, True)
    """

    charging: bool = False  # only with external power
    unmetered: bool = False  # only where the network is not metered
    hours: tuple[int, int] | None = None  # local hours, from the first to before the second
    gap: float = 0.0  # at least so many hours between two messages
    hook: str = ""  # a program; its exit status 0 lets the device take part

    def __post_init__(self):
        if self.hours is not None and not all(type(hour) is int and 0 <= hour < 24 for hour in self.hours):
            raise DeviceError(f"Hours go from 0 to 23, such as 22-6, got {self.hours}.")
        if not 0 <= self.gap < 24 * 3660:
            raise DeviceError(f"A gap is a number of hours, at least 0, got {self.gap!r}.")

    def in_hours(self, hour: int) -> bool:
        """Whether an hour of the day is within the hours."""
        if self.hours is None:
            return True
        first, last = self.hours
        return first <= hour < last if first <= last else hour >= first or hour < last

    def waits_for(self, last: float | None, now: float) -> str:
        """What does not hold now, in one word; empty where the device may take part. `last`: when it last sent something."""
        if last is not None and 0 <= now - last < 3600 * self.gap:
            return "gap"
        if not self.in_hours(time.localtime(now).tm_hour):
            return "hours"
        if self.charging and not has_power():
            return "charging"
        if self.unmetered and not is_unmetered():
            return "unmetered"
        return "hook" if self.hook and not _allows(self.hook) else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def schedule_of(values: dict[str, Any]) -> Schedule:
    """A schedule from plain values."""
    hours = values.get("hours")
    return Schedule(**{**values, "hours": None if hours is None else tuple(hours)})


def has_power(supplies: Path = POWER) -> bool:
    """Whether the machine has external power; a machine without a battery has."""
    try:
        found = {path: (path / "type").read_text().strip() for path in supplies.iterdir()}
    except OSError:
        return False
    mains = [path for path, kind in found.items() if kind in ("Mains", "USB")]
    if any(_read(path / "online") == "1" for path in mains):
        return True
    return "Battery" not in found.values() and supplies.is_dir() and not mains


def is_unmetered() -> bool:
    """Whether NetworkManager says that the network in use is not metered."""
    tool = shutil.which("nmcli")
    if tool is None:
        return False
    words = [tool, "-t", "-f", "GENERAL.STATE,GENERAL.METERED", "device", "show"]
    shown = _run(words)
    if shown is None or shown.returncode:
        return False
    states = [line.partition(":")[2] for line in shown.stdout.splitlines() if line.startswith("GENERAL.METERED")]
    return any(one.startswith("no") for one in states) and not any(one.startswith("yes") for one in states)


def _allows(hook: str) -> bool:
    shown = _run([hook])
    return shown is not None and shown.returncode == 0


def _run(words: list[str]) -> subprocess.CompletedProcess | None:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_HOOK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
