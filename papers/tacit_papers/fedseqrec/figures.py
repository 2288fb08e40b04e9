"""Figures 5 to 10 of Li et al. 2022: what each part adds, how many organisations, noise, convergence, learning rates."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.plan import Plan
from tacit.core.settings import Settings
from tacit.device.round import KEYS
from tacit.lab.baselines.central.next_item import pool
from tacit.lab.data import Population
from tacit.lab.runs.run import Run
from tacit_papers.fedseqrec.logs import Log
from tacit_papers.fedseqrec.orders import falls, gains, rises, settled, together
from tacit_papers.fedseqrec.printed import COLUMNS, CONVERGED, GAINS
from tacit_papers.fedseqrec.study import learned, means, plan_of, rounds_of
from tacit_papers.tables import Cell, Figure, Table

COUNTED = ("MRR", "NDCG@5", "NDCG@10")  # the metrics of Figures 6 and 7
SAMPLES = 1024  # events at which the training loss is taken
WHOLE_PLAN = Settings()
NO_TENSOR = Settings({"2.hyper.long": "none"})
AVERAGING = Settings({"2.server.delta": 1.0})


class Figures:
    """All of them on some logs, with one seed; what two figures share is run once."""

    def __init__(self, logs: Iterable[Log], seed: int):
        self.logs, self.seed = {log.paper: log for log in logs}, seed
        self.of = cache(self._of)

    def _of(self, paper: str, settings: Settings = WHOLE_PLAN, organisations: tuple[int, ...] = ()) -> dict[str, float]:
        """The metrics of FedSeqRec with other settings, trained by some of the organisations; all by default."""
        log = self.logs[paper]
        plan = self._plan(log, settings)
        train = log.only(organisations) if organisations else None
        run = learned(log, plan, self.seed, train)
        return means(run, log.questions(plan, self.seed), self.seed)

    def _plan(self, log: Log, settings: Mapping[str, Any]) -> Plan:
        """Without what a network does not have, a stage cannot train it."""
        plan = plan_of("FedSeqRec", log, settings)
        if settings.get("2.hyper.long") != "none":
            return plan
        trains = [name for name in plan.stages[1].trains if not name.startswith("long_")]
        return plan.with_setting("2.trains", trains)

    # ---- what each part adds ----

    def ablations(self) -> Table:
        """Figure 5; the paper prints what each part adds to NDCG@5 in per cent, and no other number."""
        logs = "; ".join(f"{paper}: {log.label}" for paper, log in self.logs.items())
        columns = tuple(f"{metric}, {paper}" for paper in self.logs for metric in COLUMNS)
        table = Table(
            "figure5", "Figure 5: without re-averaging (δ = 1), without the tensor layer, in per cent", logs, columns, 2
        )
        ways = {"FedSeqRec": WHOLE_PLAN, "δ = 1, averaging": AVERAGING, "no tensor layer": NO_TENSOR}
        found = {paper: {row: self.of(paper, way) for row, way in ways.items()} for paper in self.logs}
        for row, way in ways.items():
            cells = {f"{m}, {paper}": Cell(found[paper][row][m]) for paper in self.logs for m in COLUMNS}
            table.add(row, cells, self._plan(next(iter(self.logs.values())), way).digest)
        moved = {paper: _gains([found[paper][row]["NDCG@5"] for row in ways]) for paper in self.logs}
        for place, row in enumerate(("gain of re-averaging, %", "gain of the tensor layer, %")):
            table.add(row, {f"NDCG@5, {p}": Cell(moved[p][place], paper=GAINS[p][place]) for p in self.logs})
        table.notes += gains(moved)
        return table

    # ---- who takes part ----

    def counts(self, paper: str = "MoocData") -> Iterator[Figure]:
        """Figure 6, a part for each of its metrics: k organisations train, and the people of all of them are evaluated."""
        log = self.logs[paper]
        orders = {
            "smallest first": log.by_size,
            "largest first": log.by_size[::-1],
            "at random": np.random.default_rng(self.seed).permutation(log.by_size),
        }
        awake = Settings({"2.cohort": {"sampler": "all"}, "2.rounds": log.size.rounds})
        for metric in COUNTED:
            title = f"Figure 6: {metric} by how many organisations train, in per cent"
            figure = Figure("figure6", title, log.label, "k", metric)
            for name, order in orders.items():
                ks = [k for k in log.size.counts if k <= order.size]
                points = ((k, self.of(paper, awake, tuple(sorted(order[:k].tolist())))[metric]) for k in ks)
                figure.draw(name, points, [self._plan(log, awake).digest])
            figure.notes += [rises("F6", name, points) for name, points in figure.series.items()]
            figure.notes.append("All k are awake in every round here, so that each takes part as often whatever k is.")
            yield figure

    def alone(self, paper: str = "MovieData") -> Table:
        """Figure 7: one organisation trains alone."""
        log = self.logs[paper]
        table = Table("figure7", "Figure 7: one organisation alone, in per cent", log.label, COUNTED, 2)
        names = [str(name) for name in log.organisations.users or range(len(log.organisations))]
        found = {name: self.of(paper, WHOLE_PLAN, (number,)) for number, name in enumerate(names)}
        found["together"] = self.of(paper)
        for row, metrics in found.items():
            table.add(row, {column: Cell(metrics[column]) for column in COUNTED}, self._plan(log, WHOLE_PLAN).digest)
        table.notes.append(together({row: metrics["NDCG@10"] for row, metrics in found.items()}, "together"))
        return table

    # ---- noise, convergence, rates ----

    def noises(self, paper: str) -> Figure:
        """Figure 8: Laplace noise of scale λ on every number of an update, which bounds nothing: ε = ∞ at every λ."""
        log = self.logs[paper]
        figure = Figure(
            "figure8", f"Figure 8: by the scale λ of the noise, {paper}, in per cent", log.label, "λ", "value"
        )
        noises = {
            scale: Settings({"2.privacy": {"mechanism": "laplace_open", "scale": scale}}) if scale else WHOLE_PLAN
            for scale in log.size.noises
        }
        found = {scale: self.of(paper, noise) for scale, noise in noises.items()}
        digests = [self._plan(log, noise).digest for noise in noises.values()]
        for metric in COLUMNS:
            figure.draw(metric, ((scale, one[metric]) for scale, one in found.items()), digests)
        figure.notes.append(falls("F7", "AUC falls with λ", figure.series["AUC"]))
        figure.notes.append("The update has no bound, so ε = ∞ per run at every λ, replace-one, whoever is trusted.")
        return figure

    def convergence(self, paper: str) -> Figure:
        """Figure 9: AUC by round, for several δ."""
        log = self.logs[paper]
        figure = Figure("figure9", f"Figure 9: AUC by round, {paper}, in per cent", log.label, "round", "AUC")
        for delta in log.size.deltas:
            plan = plan_of("FedSeqRec", log, {"2.server.delta": delta})
            figure.draw(f"δ = {delta:g}", self._by_round(log, plan, partial(self._auc, log, plan)), [plan.digest])
        figure.notes += [settled("Convergence", name, points) for name, points in figure.series.items()]
        figure.notes.append(f"The paper's curves settle in about {CONVERGED} rounds; these end after {rounds_of(log)}.")
        return figure

    def _auc(self, log: Log, plan: Plan, run: Run) -> float:
        return means(run, log.questions(plan, self.seed), self.seed)["AUC"]

    def rates(self, paper: str) -> Figure:
        """Figure 10: the training loss by round, for several learning rates."""
        log = self.logs[paper]
        figure = Figure("figure10", f"Figure 10: training loss by round, {paper}", log.label, "round", "loss")
        own = plan_of("FedSeqRec", log).stages[1].hyper["rate"]
        for factor in log.size.rates:
            plan = plan_of("FedSeqRec", log, {"2.hyper.rate": own * factor})
            points = self._by_round(log, plan, training_loss(log.organisations))
            figure.draw(f"rate {own * factor:g}", points, [plan.digest])
        figure.notes += [falls("Training", name, points) for name, points in figure.series.items()]
        return figure

    def _by_round(self, log: Log, plan: Plan, look: Callable[[Run], float]) -> list[tuple[float, float]]:
        """What is seen after some numbers of rounds of one run."""
        every, last, found = log.size.looks, plan.stages[1].rounds, []

        def note(run: Run) -> dict[str, float]:
            done = (len(found) + 1) * every
            if done <= last and run.stage == 1:
                found.append((float(done), look(run)))
            return {}

        learned(log, plan, self.seed, evaluate=note, every=every)
        return found


def _gains(values: list[float]) -> tuple[float, float]:
    """What the whole has over each of the two that lack something, in per cent."""
    whole, *without = values
    first, second = (100 * (whole / max(one, 1e-9) - 1) for one in without)
    return first, second


def training_loss(people: Population) -> Callable[[Run], float]:
    """The mean loss of a run's model at some events of everybody, always the same."""
    log = pool(people)
    own = {"items": jnp.asarray(log.items), "place": jnp.asarray(log.place)}
    asked = np.flatnonzero(log.place >= 1)
    at = jnp.asarray(np.random.default_rng(0).permutation(asked)[:SAMPLES])
    key = jax.random.key(0, impl=KEYS)
    lost: Any = jax.jit(lambda method, params: method.loss(params, own, at, key))
    return lambda run: float(lost(run.method, run.params))
