"""Reconstruction of histories from pairwise learning (FPL): what each attack finds in the messages of a run.

Rounds are replayed for some devices of the run with its final parameters; the attacks see the messages, and their guesses
are compared with the histories, which only the lab knows, and with blind guesses.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.audit.attacks import (
    ATTACKS,
    Attack,
    ObservedRound,
    PublicFacts,
    Reconstruction,
    by_chance,
    by_popularity,
    load_attack,
    score_reconstruction,
)
from tacit.core.messages import Broadcast, Report
from tacit.core.sparse_rows import dense, is_rows
from tacit.errors import PlanError
from tacit.lab.data import Population
from tacit.lab.evaluation.scoring import seen_mask
from tacit.lab.runs.run import Run
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.replay import Replay
from tacit.server.round import zero_total


class Leak(NamedTuple):
    """How well one attack did after so many rounds."""

    attack: str
    rounds: int
    success: Reconstruction

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the card."""
        return {"attack": self.attack, "rounds": self.rounds, **self.success._asdict()}


def leakage(
    run: Run,
    rounds: Sequence[int] = (1, 20, 60, 200),
    attacks: Sequence[str] = tuple(ATTACKS),
    *,
    devices: int = 100,
    truth: Population | None = None,
    sized: bool | None = None,
    seed: int = 0,
) -> list[Leak]:
    """Precision, recall and F1 of guessed histories after each number of rounds; kept with the run, for its card.

    Args:
        run: a run of the method `fpl`.
        rounds: after how many messages of a device to score the attacks.
        attacks: their names; `sign`, `inversion` and `complement` by default.
        devices: how many people to attack, drawn by the seed.
        truth: what they really have, where they learned from something else.
        sized: whether the attacker knows how many items a person has and names as many; by default where there is noise.
        seed: who is drawn.
    """
    if not run.method.pairwise or "bias" not in run.params:
        raise PlanError(f"Attacks are known for messages of the method 'fpl', got a run of {run.plan.name!r}.")
    people = truth or run.population
    ids = np.sort(np.random.default_rng(seed).permutation(len(people))[:devices])
    tap = Tap(run, ids)
    had = seen_mask(people, ids, np.arange(people.catalog.n_items))
    sizes = had.sum(1) if (not tap.exact if sized is None else sized) else None
    made = _play(tap, [load_attack(name)(public_facts(run), ids.size) for name in attacks], sorted(rounds), had, sizes)
    counts = np.bincount(people.items, minlength=people.catalog.n_items)
    blind = {"chance": by_chance(had), "popularity": by_popularity(had, counts)}
    run.leakage = [*made, *(Leak(name, 0, one) for name, one in blind.items())]
    return run.leakage


def _play(tap: "Tap", attacks: list[Attack], looks: list[int], had: np.ndarray, sizes: Any) -> list[Leak]:
    made = []
    for number in range(1, looks[-1] + 1):
        seen = tap.next()
        for attack in attacks:
            attack.read(seen)
        if number in looks:
            made += [Leak(attack.name, number, score_reconstruction(attack.guess(sizes), had)) for attack in attacks]
    return made


def public_facts(run: Run) -> PublicFacts:
    """What the plan makes public about the local step."""
    method: Any = run.method
    person, _, rival, bias = method.penalties
    return PublicFacts(
        run.population.catalog.n_items, method.rate, person, rival, bias, person_first=method.order == "person_first"
    )


class Tap:
    """Some devices of a run, replayed round after round; what they send is recorded as a reader of the wire has it."""

    def __init__(self, run: Run, ids: np.ndarray):
        self.replay = Replay(run, run.stage)
        self.params, self.round = run.params, self.replay.stage.rounds
        self.exact = self.replay.job.mechanism.as_sent
        self.homes, self.own = self.replay.devices(ids)

    def next(self) -> ObservedRound:
        """One more round: the homes move on, the parameters stay."""
        self.round += 1
        self.homes, reports = self.replay.send(self.round, self.homes, self.own)
        items, bias = (np.asarray(self.params[name]) for name in ("items", "bias"))
        if self.exact and is_rows(reports.payload["items"]):
            rows = {name: reports.payload[name] for name in ("items", "bias")}
            return ObservedRound(
                items, bias, *map(np.asarray, (rows["items"].index, rows["items"].value, rows["bias"].value))
            )
        readable = _hear(self.replay.job, self.replay.broadcast(self.round), jax.random.key(self.round), reports)
        every = np.broadcast_to(np.arange(bias.size), readable["bias"].shape)
        return ObservedRound(items, bias, every, readable["items"], readable["bias"])


def _hear(job: Job, broadcast: Broadcast, key: jax.Array, reports: Report) -> dict[str, np.ndarray]:
    """What can be made of each message by itself; where only a noisy sum leaves the server, that sum, for everybody."""
    empty = zero_total(job.mechanism, broadcast.params, job.trains, job.weights)[0]
    if job.mechanism.always_releases:
        total = job.mechanism.add(empty, reports.payload, reports.weight, reports.sent)
        sums = job.mechanism.estimate(key, total, reports.sent.sum(), broadcast.dials)[0]
        devices = reports.sent.shape[0]
        return {name: np.broadcast_to(np.asarray(leaf[0]), (devices, *leaf.shape[1:])) for name, leaf in sums.items()}

    def alone(report: Report) -> dict:
        one = jax.tree.map(lambda leaf: leaf[None], report)
        total = job.mechanism.add(empty, one.payload, one.weight, one.sent)
        sums = job.mechanism.estimate(key, total, jnp.int32(1), broadcast.dials)[0]
        return {name: dense(leaf[0]) for name, leaf in sums.items()}

    made = jax.lax.map(alone, reports)
    return {name: np.asarray(leaf) for name, leaf in made.items()}
