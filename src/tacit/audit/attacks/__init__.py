"""Attacks: from what devices sent, round by round, to what they have. One file each; `load_attack` has them by name."""

from tacit.audit.attacks.base import Attack as Attack
from tacit.audit.attacks.base import Known as Known
from tacit.audit.attacks.base import Seen as Seen
from tacit.audit.attacks.complement import Complement
from tacit.audit.attacks.inversion import Inversion
from tacit.audit.attacks.sign import Sign
from tacit.errors import PlanError, unknown

ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in (Sign, Inversion, Complement)}


def load_attack(name: str) -> type[Attack]:
    """An attack by name.

    >>> load_attack("sign").about
    'an item whose bias moved up was had'
    """
    if name not in ATTACKS:
        raise PlanError(unknown("Tacit", name, ATTACKS, "attack"))
    return ATTACKS[name]
