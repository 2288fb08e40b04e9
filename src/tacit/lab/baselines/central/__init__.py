"""Central baselines: fitted from pooled raw data, for comparison only. Scored by the same device code as everything else."""

from collections.abc import Callable

from tacit.device.method import Method
from tacit.errors import PlanError
from tacit.lab.baselines.central import bpr, gmf, itemknn, ncf, next_item, popularity_prior, privrec, vae
from tacit.lab.data import Population

FITS: dict[str, Callable[[Method, Population], dict]] = {
    "bert4rec": next_item.fit,
    "bpr_mf": bpr.fit,
    "fedseqrec": next_item.fit,
    "gmf": gmf.fit,
    "gru4rec": next_item.fit,
    "itemknn": itemknn.fit,
    "ncf": ncf.fit,
    "privrec": privrec.fit,
    "seqmf_eb": popularity_prior.fit,
    "sr_gnn": next_item.fit,
    "vae": vae.fit,
}


def fit(name: str, method: Method, population: Population) -> dict:
    """The parameters of a method, from everybody's histories."""
    if name not in FITS:
        raise PlanError(
            f"cohort.sampler 'pooled' fits {', '.join(FITS)} in the lab, got method {name!r}; choose another sampler."
        )
    return FITS[name](method, population)
