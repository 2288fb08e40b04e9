"""Metrics of recommendation quality, by the names used in papers: `NDCG@10`, `Recall@20`, `AUC`.

Two families: from the rank of a single target, and from top-n lists with the set of relevant items.
Ties are never broken by index order: `rank` breaks them by a seeded draw, so a constant scorer has the metrics of a
random one.
"""

from tacit.metrics.averages import Average as Average
from tacit.metrics.averages import average as average
from tacit.metrics.averages import levels as levels
from tacit.metrics.definitions import DEFINITIONS as DEFINITIONS
from tacit.metrics.definitions import NAMES as NAMES
from tacit.metrics.definitions import Metric as Metric
from tacit.metrics.definitions import MetricDefinition as MetricDefinition
from tacit.metrics.definitions import area as area
from tacit.metrics.definitions import discounted_gain as discounted_gain
from tacit.metrics.definitions import gini as gini
from tacit.metrics.definitions import hit_rate as hit_rate
from tacit.metrics.definitions import parse as parse
from tacit.metrics.definitions import reciprocal_rank as reciprocal_rank
from tacit.metrics.lists import Relevant as Relevant
from tacit.metrics.lists import hits as hits
from tacit.metrics.lists import item_counts as item_counts
from tacit.metrics.lists import list_summary as list_summary
from tacit.metrics.lists import over_catalogue as over_catalogue
from tacit.metrics.lists import per_list as per_list
from tacit.metrics.ranks import TIES as TIES
from tacit.metrics.ranks import per_case as per_case
from tacit.metrics.ranks import rank as rank
from tacit.metrics.ranks import rank_and_ties as rank_and_ties
from tacit.metrics.ranks import summary as summary
