"""Metrics: how well recommendations answer, by the names people write: `NDCG@10`, `Recall@20`, `AUC`.

Two families: from the rank of one target, and from top-n lists with the set of items that would have been right.
Ties never fall to index order: `rank` breaks them by a seeded draw, so a scorer that always says the same scores
like Random.
"""

from tacit.metrics.averages import Average as Average
from tacit.metrics.averages import average as average
from tacit.metrics.averages import levels as levels
from tacit.metrics.lists import Relevant as Relevant
from tacit.metrics.lists import gini as gini
from tacit.metrics.lists import hits as hits
from tacit.metrics.lists import item_counts as item_counts
from tacit.metrics.lists import list_summary as list_summary
from tacit.metrics.lists import over_catalogue as over_catalogue
from tacit.metrics.lists import per_list as per_list
from tacit.metrics.names import NAMES as NAMES
from tacit.metrics.names import Metric as Metric
from tacit.metrics.names import parse as parse
from tacit.metrics.ranks import TIES as TIES
from tacit.metrics.ranks import area as area
from tacit.metrics.ranks import discounted_gain as discounted_gain
from tacit.metrics.ranks import hit_rate as hit_rate
from tacit.metrics.ranks import per_case as per_case
from tacit.metrics.ranks import placed as placed
from tacit.metrics.ranks import rank as rank
from tacit.metrics.ranks import reciprocal_rank as reciprocal_rank
from tacit.metrics.ranks import summary as summary
