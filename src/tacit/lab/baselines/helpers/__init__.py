"""Third parties: systems that need a helper beside the devices and the server. The lab plays all of them.

Whatever a helper sees is said by the system's file; no plan that needs one is private towards it.
"""

from collections.abc import Callable

from tacit.device.method import Method
from tacit.errors import PlanError
from tacit.lab.baselines.helpers import fedgnn, fedrec_plus
from tacit.lab.data import Population

FITS: dict[str, Callable[[Method, Population], dict]] = {"fedgnn": fedgnn.fit, "fedrec_plus": fedrec_plus.fit}


def fit(name: str, method: Method, population: Population) -> dict:
    """The parameters of a method, after devices, server and helper have played their parts."""
    if name not in FITS:
        raise PlanError(
            f"cohort.sampler 'helped' knows the helper of {', '.join(FITS)}, got method {name!r}; choose another sampler."
        )
    return FITS[name](method, population)
