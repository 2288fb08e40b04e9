"""Evaluation: every question is scored by the device's own `score`, in chunks: adapt, score, discard."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import KEYS, Home, adapt
from tacit.lab.run import Run
from tacit.lab.split import Cases
from tacit.metrics import rank, summary

_CHUNK = 512


def ranks(run: Run, cases: Cases, *, exclude_seen: bool = True, seed: int = 0) -> np.ndarray:
    """The target's rank among all items; items already in the history are no candidates if `exclude_seen`."""
    key = jax.random.key(seed, impl=KEYS)
    found = np.zeros(len(cases), np.int64)
    for bucket in run.buckets:
        mine = np.flatnonzero(np.isin(cases.device, bucket.ids))
        for start in range(0, mine.size, _CHUNK):
            some = mine[start : start + _CHUNK]
            asked = np.pad(some, (0, _CHUNK - some.size), mode="edge")
            place = np.searchsorted(bucket.ids, cases.device[asked])
            seen = run.population.histories(cases.device[asked], bucket.length).items
            seen = seen if exclude_seen else np.full_like(seen, -1)
            home, own = jax.tree.map(lambda leaf: leaf[place], (bucket.home, bucket.own))  # noqa: B023
            got = _ranks(
                run.method, run.stage, key, run.params, home, own, asked, cases.recent[asked], seen, cases.target[asked]
            )
            found[some] = np.asarray(got)[: some.size]
    return found


def leave_last_out_metrics(run: Run, cases: Cases, **options: Any) -> dict[str, float]:
    """HR@10, NDCG@10 and MRR@10 over all items."""
    return summary(ranks(run, cases, **options))


@partial(jax.jit, static_argnums=1)
def _ranks(method: Method, stage: int, key: Any, params: dict, homes: Home, owns: Any, case: Any, *asked: Any) -> Any:
    items = jnp.arange(method.catalog.n_items)

    def one(home: Home, own: Any, case: Any, recent: Any, seen: Any, target: Any) -> jax.Array:
        local = adapt(method, stage, params, home, own).local[str(stage)]
        scores = method.score(params, local, own, recent, items)
        mine = scores[target]
        scores = scores.at[jnp.where(seen < 0, items.size, seen)].set(-jnp.inf, mode="drop")
        return rank(jax.random.fold_in(key, case), scores.at[target].set(mine), target)

    return jax.vmap(one)(homes, owns, case, *asked)
