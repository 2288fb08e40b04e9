"""Comparison of plans on the same test cases: means, confidence intervals and paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from tacit.lab.analysis.noise_floor import noise_floor_of
from tacit.lab.evaluation.protocols import EvaluationResult, Part
from tacit.lab.evaluation.statistics import ConfidenceInterval, correct_p_values, interval, paired_test
from tacit.lab.evaluation.statistics import PairedTest as Difference
from tacit.lab.experiments.trial import Trial
from tacit.lab.experiments.variants import Variant

ALPHA = 0.05  # significance level of corrected p-values


@dataclass(frozen=True)
class Score:
    """One metric of one plan over all seeds, and how it differs from the reference's."""

    seeds: tuple[float, ...]  # the mean over units, seed by seed
    steps: tuple[float, ...]  # the same, less the reference's of the same seed
    interval: ConfidenceInterval | None  # over units; None where a unit has no value of its own
    difference: Difference | None  # from the reference, unit by unit; None for the reference itself

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.seeds))

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; 0 where there is one."""
        return float(np.std(self.seeds, ddof=1)) if len(self.seeds) > 1 else 0.0

    @property
    def by_seeds(self) -> float | None:
        """P-value of a paired t-test over the seeds; None where there is one seed."""
        if len(self.steps) == 1:
            return None
        steps = np.round(self.steps, 12)
        if np.ptp(steps) == 0:  # nothing in these plans depends on the seed
            return float(steps[0] == 0)
        return float(stats.ttest_1samp(steps, 0.0).pvalue)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def mark(self) -> str:
        """▲ or ▼ where the difference is significant by units and, where there are several, also by seeds."""
        if self.difference is None or max(self.difference.p, self.by_seeds or 0.0) >= ALPHA:
            return ""
        return "▲" if self.difference.difference.mean > 0 else "▼"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        known = None if self.interval is None else [self.interval.low, self.interval.high]
        found = {"mean": self.mean, "interval": known, "seeds": list(self.seeds), "deviation": self.deviation}
        return found if self.difference is None else {**found, "difference": self._difference(self.difference)}

    def _difference(self, test: Difference) -> dict[str, Any]:
        return {
            "mean": test.difference.mean,
            "interval": [test.difference.low, test.difference.high],
            "seeds": list(self.steps),
            "p": test.p,
            "correction": test.correction,
            "by_seeds": self.by_seeds,
            "t": test.t,
            "wilcoxon": test.wilcoxon,
            "mark": self.mark,
            "note": test.note,
        }


@dataclass(frozen=True)
class Comparison:
    """The trials of every plan, by name and in the order of the seeds; scores, intervals and tests follow from them."""

    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    trials: Mapping[str, tuple[Trial, ...]]
    reference: str  # the plan the others are compared with
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the plans, in order."""
        return tuple(variant.name for variant in self.variants)

    @property
    def common(self) -> EvaluationResult:
        """The evaluation of one plan, for what all share: protocol, candidates, units, the names of the metrics."""
        return self.trials[self.names[0]][0].evaluation

    @cached_property
    def scores(self) -> dict[str, dict[str, Score]]:
        """For each plan, each metric."""
        found = {metric: self._metric(metric) for metric in self.common.metrics}
        return {name: {metric: found[metric][name] for metric in found} for name in self.names}

    def pooled(self, name: str) -> Trial:
        """All seeds of a plan as one trial: the run of the first seed, with the mean of each unit over the seeds."""
        trials, first = self.trials[name], self.trials[name][0]
        metrics, values = (_means([getattr(one.evaluation, part) for one in trials]) for part in ("metrics", "values"))
        metrics = {name: float(mean) for name, mean in metrics.items()}
        parts = tuple(_pooled_part(some) for some in zip(*(one.evaluation.parts for one in trials)))
        evaluation = replace(first.evaluation, metrics=metrics, values=values, parts=parts)
        run = replace(first.run, evaluation=evaluation, metrics=metrics)
        return Trial(run, evaluation, float(np.mean([one.seconds for one in trials])))

    def _metric(self, metric: str) -> dict[str, Score]:
        """One metric of every plan, compared with the reference."""
        values = {name: self.pooled(name).evaluation.values.get(metric) for name in self.names}
        seeds = {name: tuple(one.evaluation.metrics[metric] for one in self.trials[name]) for name in self.names}
        tests = _tests({name: own for name, own in values.items() if own is not None}, self.reference)
        made = {}
        for name, own in values.items():
            steps = tuple(mine - theirs for mine, theirs in zip(seeds[name], seeds[self.reference]))
            made[name] = Score(seeds[name], steps, None if own is None else interval(own), tests.get(name))
        return made

    @property
    def covers(self) -> str:
        """What the intervals cover, and what they do not."""
        units, seeds = f"{self.common.by}s", f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        return (
            f"An interval is a 95 % bootstrap over the {self.common.units.size} {units} evaluated, each with the mean of "
            f"its values over {seeds}: it covers the sampling of {units}. The variation between runs comes on top; "
            f"{self._between_seeds()}."
        )

    def _between_seeds(self) -> str:
        if len(self.seeds) == 1:
            return "one seed cannot show it"
        found = [(one.deviation, metric, name) for name in self.names for metric, one in self.scores[name].items()]
        most, metric, name = max(found)
        return f"over the seeds, a mean has a standard deviation of {most:.2g} at most ({metric} of {name})"

    @cached_property
    def floors(self) -> dict[str, dict[str, Any]]:
        """For each plan that estimates counts, the number of users from which they exceed the noise."""
        found = {name: noise_floor_of(self.trials[name][0].run) for name in self.names}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def marks(self) -> str:
        """What the marks mean."""
        others = len(self.names) - 1
        seeds = (
            "one seed cannot tell a better plan from a luckier run"
            if len(self.seeds) == 1
            else f"and a paired t-test over the {len(self.seeds)} seeds, p < {ALPHA:g} uncorrected"
        )
        return (
            f"▲ above, ▼ below {self.reference}: paired t-test over the same {self.common.by}s, p < {ALPHA:g} after "
            f"Holm's correction for {others} comparison{'s' if others != 1 else ''} of each metric; {seeds}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "protocol": self.common.protocol,
            "candidates": self.common.candidates,
            "treatment": self.common.treatment,
            "by": self.common.by,
            "units": int(self.common.units.size),
            "seeds": list(self.seeds),
            "reference": self.reference,
            "covers": self.covers,
            "marks": self.marks,
            "notes": list(self.notes),
            "plans": [self._plan(variant) for variant in self.variants],
        }

    def _plan(self, variant: Variant) -> dict[str, Any]:
        trials, pooled = self.trials[variant.name], self.pooled(variant.name)
        return {
            "name": variant.name,
            "setting": variant.setting,
            "digest": variant.plan.digest,
            "privacy": pooled.run.price.whole.to_dict(),
            "floor": self.floors.get(variant.name),
            "metrics": {metric: score.to_dict() for metric, score in self.scores[variant.name].items()},
            "parts": [part._asdict() for part in pooled.evaluation.parts],
            "sent": pooled.sent,
            "bytes_up_per_device": _mean([trial.run.bytes_up_per_device for trial in trials]),
            "seconds": pooled.seconds,
            "trials": [{"seed": seed, **trial.to_dict()} for seed, trial in zip(self.seeds, trials)],
        }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where raw data was needed, of which no bytes are counted."""
    return None if None in values else float(np.mean(np.array(values, float)))


def _means(some: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Name by name, the mean over several."""
    return {name: np.mean([one[name] for one in some], axis=0) for name in some[0]}


def _pooled_part(some: Sequence[Part]) -> Part:
    """The same part of the test cases over several seeds."""
    means = {name: float(mean) for name, mean in _means([one.metrics for one in some]).items()}
    return some[0]._replace(metrics=means)


def _tests(values: Mapping[str, np.ndarray], reference: str) -> dict[str, Difference]:
    """Every plan less the reference on the same units; p-values are corrected for how many plans there are."""
    each = [paired_test(own, values[reference], name) for name, own in values.items() if name != reference]
    p = correct_p_values(np.array([one.t for one in each]), "holm")
    label = f"t, holm of {len(each)}"
    return {one.name: replace(one, p=float(mine), correction=label) for one, mine in zip(each, p)}
