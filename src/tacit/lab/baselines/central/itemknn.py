"""ItemKNN on pooled data: cosine between items' columns of the pooled user-item matrix."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse

from tacit.lab.baselines.baseline import Baseline
from tacit.lab.data import Population


class PooledItemKnn(Baseline):
    """The table of nearest neighbours."""

    methods = ("itemknn",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """Each item's nearest neighbours by shrunk cosine: c_ij / (√(c_i c_j) + shrink)."""
        n = population.catalog.n_items
        k = min(method.neighbours, n)
        users = np.repeat(np.arange(len(population)), population.lengths)
        seen = sparse.csr_matrix((np.ones(users.size, np.float32), (users, population.items)), (len(population), n))
        seen.data[:] = 1.0  # a history that holds an item twice counts once
        together = (seen.T @ seen).tocsr()
        each = np.sqrt(together.diagonal())
        neighbours, similarity = np.full((n, k), n, np.int32), np.zeros((n, k), np.float32)
        for i in range(n):
            row = slice(together.indptr[i], together.indptr[i + 1])
            others = together.indices[row]
            close = together.data[row] / (each[i] * each[others] + method.shrink)
            close = np.where(others == i, -np.inf, close)
            best = np.argsort(-close, kind="stable")[:k]
            best = best[close[best] > 0]
            neighbours[i, : best.size], similarity[i, : best.size] = others[best], close[best]
        return {"neighbours": jnp.asarray(neighbours), "similarity": jnp.asarray(similarity)}
