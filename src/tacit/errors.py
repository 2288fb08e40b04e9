"""What goes wrong, in one sentence each: name, rule, value, way out.

TacitError
├── PlanError      a plan, or a setting in it, breaks a rule
├── DataError      a log, or a row in it, breaks a rule
├── WireError      bytes that are not the declared message
├── RunError       a run folder that cannot be used as requested
└── DeviceError    a method failed on one device; names the device
"""

import difflib
from collections.abc import Iterable


class TacitError(ValueError):
    """A mistake a person can mend. The face prints the sentence, never a traceback."""


class PlanError(TacitError):
    """A plan, or a setting in it, breaks a rule."""


class DataError(TacitError):
    """A log, or a row in it, breaks a rule."""


class WireError(TacitError):
    """Bytes that are not the declared message."""


class RunError(TacitError):
    """A run folder that cannot be used as requested."""


class DeviceError(TacitError):
    """A method failed on one device; the sentence names the device."""


def unknown(where: str, name: object, known: Iterable[str], what: str = "setting") -> str:
    """The sentence for a name that does not exist, with the nearest one that does.

    >>> unknown("Plan stage 1: hyper", "dmi", ["dim", "penalty"])
    "Plan stage 1: hyper has no setting 'dmi'; did you mean 'dim'? Known: dim, penalty."
    """
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listed = f" Known: {', '.join(known)}." if known else " It takes none."
    return f"{where} has no {what} {name!r}{hint}{listed}"
