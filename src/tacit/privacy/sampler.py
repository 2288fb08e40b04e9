"""Samplers: which devices take part in a round. A sampler also states how exposed a device is, so that what is drawn
and what is accounted for cannot disagree.

Ids are drawn on the host; the same (seed, stage, round) draws the same ids.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import numpy as np

from tacit.core.plan import Stage
from tacit.core.settings import fill, setting
from tacit.errors import PlanError, unknown
from tacit.privacy.accounting.events import (
    CorrelatedGaussian,
    Event,
    FixedGaussian,
    FixedPure,
    Gaussian,
    PoissonGaussian,
    Pure,
    SplitGaussian,
)

Fitted = Literal["rounds", "pooled", "helped"]


DRAWN = "the server draws the cohorts at random, and it stays secret which devices were drawn"
_SILENCED = 1e-6  # the share of δ that is the chance of any device being silenced by fair draws
_FAIR = 7.0  # up to this ε; then e^ε of that share is still a thousandth of δ


class Exposure(NamedTuple):
    """How a run exposes one device, as accounting needs it."""

    sampler: str
    rounds: int
    messages: int  # the most reports one device may send in the run
    devices: int
    cohort: float  # devices in a round, on average
    relation: Literal["replace_one", "add_remove"]  # the neighbours for which this sampler is analysed
    drawn: Literal["fixed", "poisson"] | None = None  # how a cohort is drawn at random; None: no amplification
    others: int = 0  # devices that never take part, and so are not exposed at all
    separation: int = 1  # the rounds from one report of a device to its next, at least

    def at_most(self, messages: int | None) -> "Exposure":
        """The same run for a device that stops after so many messages."""
        return self if messages is None else self._replace(messages=min(self.messages, messages))

    def answers(self, delta: float, epsilon: float = 0.0) -> int:
        """After how many reports a device falls silent, so that a server cannot ask it more often than it draws it.

        Fair draws ask any of the devices more often with a chance of a millionth of δ at most, so an honest run hardly
        ever notices; of less where the run costs a large ε, because the chance counts e^ε times. Without δ no chance can be
        given up, and a device answers whenever it is asked.
        """
        if self.drawn is None or delta == 0:
            return self.messages
        chance = _SILENCED * delta * math.exp(min(0.0, _FAIR - epsilon))
        counts = np.arange(self.rounds + 1)
        return min(self.messages, max(1, int(np.argmax((self._more(counts) <= chance) | (counts == self.rounds)))))

    def _more(self, counts: Any) -> Any:
        """The chance, at most, that fair draws ask any of the devices for more reports than this."""
        from scipy.special import bdtrc  # here: a slow import, only needed where cohorts are drawn

        return np.minimum(1.0, self.devices * bdtrc(counts, self.rounds, min(1.0, self.cohort / self.devices)))

    def gaussian(self, noise: float, delta: float, gap: float = 0.0) -> tuple[Event, int]:
        """The event of a sum with Gaussian noise, and how often it happens to one device; decided only here.

        A device that stops after fewer messages than draws at random may ask for is no longer drawn at random alone, so it
        gets no amplification by sampling.
        """
        if (silence := self._silence(delta)) is None:
            return Gaussian(noise, gap), self.messages
        if self.drawn == "poisson":
            return PoissonGaussian(noise, self.cohort / self.devices, gap, silence), self.rounds
        return FixedGaussian(noise, round(self.cohort), self.devices, gap, silence), self.rounds

    def correlated(self, noise: float, gap: float = 0.0) -> tuple[Event, int]:
        """The event of sums whose Gaussian noise is correlated between rounds; `noise` covers all of them together.

        There is no amplification by sampling: what counts is how often and how far apart a device may report.
        """
        return CorrelatedGaussian(noise, self.rounds, self.messages, self.separation, gap), self.rounds

    def split(self, noise: float, gap: float = 0.0, apart: float = 2.0) -> tuple[Event, int]:
        """The event of sums that share one bound, as was decided from the sums before; `noise` covers all of them together."""
        return SplitGaussian(noise, self.rounds, gap, apart), self.rounds

    def pure(self, epsilon: float, delta: float, gap: float = 0.0) -> tuple[Event, int]:
        """The same for sums whose noise is pure ε for their members, under replace-one."""
        silence = self._silence(delta)
        if self.drawn == "fixed" and silence is not None:
            return FixedPure(epsilon, round(self.cohort), self.devices, gap, silence), self.rounds
        return Pure(epsilon, gap=gap), self.messages

    def _silence(self, delta: float) -> float | None:
        """The chance, for each round, that any device keeps silent although it was drawn fairly; None: not drawn fairly."""
        if self.drawn is None:
            return None
        chance = 0.0 if self.messages >= self.rounds else float(self._more(self.messages))
        return chance / self.rounds if chance <= _SILENCED * delta else None


class Sampler(eqx.Module):
    """Which devices take part in a round."""

    name: ClassVar[str]
    # How the parameters of a stage are found: by `rounds` of reports; from histories `pooled` on one machine; or by
    # devices, a server and a third party that are simulated in the lab (`helped`). The latter two need raw data.
    fitted: ClassVar[Fitted] = "rounds"

    @property
    def sees(self) -> tuple[str, ...]:
        """What is seen of the raw data, and by whom; nothing, where a stage is fitted by rounds."""
        return ()

    @abstractmethod
    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """Ids of the devices of this round, ascending, each once."""

    @abstractmethod
    def size(self, devices: int) -> float:
        """How many devices a round has, on average."""

    @abstractmethod
    def exposure(self, rounds: int, devices: int) -> Exposure:
        """How `rounds` rounds of this sampler expose one device."""

    @property
    def fewest(self) -> int:
        """The fewest devices that it can draw from."""
        return 1

    def reach(self, devices: int) -> np.ndarray:
        """Which devices may ever take part, bool[devices]; all, by default."""
        return np.ones(devices, bool)


def _generator(seed: int, stage: int, round: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, stage, round, 0x5A])))


class All(Sampler):
    """All devices, every round.

    With `relation = "add_remove"` neighbours differ by one device's presence, as in `poisson` with a rate of 1: what is
    released must then not tell how many took part.
    """

    name: ClassVar[str] = "all"
    relation: Literal["add_remove"] | None = setting(None)

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """All ids."""
        del seed, stage, round
        return np.arange(devices)

    def size(self, devices: int) -> float:
        """All devices."""
        return devices

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """Each device takes part in each round."""
        return Exposure(self.name, rounds, rounds, devices, devices, self.relation or "replace_one")


class Pass(Sampler):
    """Every device once per pass: the devices are shuffled and cut into cohorts of `count`.

    With `shuffle = "each_pass"` a device may be in the last cohort of a pass and the first of the next. With "once" all
    passes have the same cohorts in the same order, so that a whole pass lies between two reports of a device, which is what
    correlated noise needs.
    """

    name: ClassVar[str] = "pass"
    count: int = setting(at_least=1)
    shuffle: Literal["each_pass", "once"] = setting("each_pass")

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """The next slice of this pass's shuffle."""
        rounds_per_pass = math.ceil(devices / self.count)
        turn, slot = divmod(round, rounds_per_pass)
        order = _generator(seed, stage, turn if self.shuffle == "each_pass" else 0).permutation(devices)
        return np.sort(order[slot * self.count : (slot + 1) * self.count])

    def size(self, devices: int) -> float:
        """Devices per round, on average over a pass."""
        return devices / math.ceil(devices / self.count)

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """One message a pass."""
        rounds_per_pass = math.ceil(devices / self.count)
        passes, apart = math.ceil(rounds / rounds_per_pass), 1 if self.shuffle == "each_pass" else rounds_per_pass
        return Exposure(self.name, rounds, passes, devices, self.size(devices), "replace_one", separation=apart)


class Fixed(Sampler):
    """A fixed number of devices, without replacement within the round, independent between rounds."""

    name: ClassVar[str] = "fixed"
    count: int = setting(at_least=1)

    @property
    def fewest(self) -> int:
        """A cohort."""
        return self.count

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """`count` distinct ids, uniformly."""
        _enough(self.count, devices)
        return np.sort(_generator(seed, stage, round).choice(devices, self.count, replace=False, shuffle=False))

    def size(self, devices: int) -> float:
        """Always `count`."""
        return min(self.count, devices)

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """A device may be drawn every round."""
        _enough(self.count, devices)
        return Exposure(self.name, rounds, rounds, devices, self.count, "replace_one", "fixed")


class Volunteers(Sampler):
    """Only devices whose users agreed, or whose histories are public anyway; `count` of them a round, as in `fixed`.

    The other devices never take part, so a plan's claim can be about them. In the lab each device is a volunteer with
    probability `share`, the same ones in every run; on real devices the users decide, and the cohort is as large. That a
    user agrees may itself reveal something about them.
    """

    name: ClassVar[str] = "volunteers"
    count: int = setting(at_least=1)
    share: float = setting(0.1, above=0.0, at_most=1.0)
    because: Literal["consent", "public"] = setting("consent")

    def reach(self, devices: int) -> np.ndarray:
        """The volunteers; devices that join later change nothing for the others."""
        return _generator(0, 0, 0).random(devices) < self.share

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """`count` of the volunteers."""
        return self.draw_among(seed, stage, round, np.flatnonzero(self.reach(devices)))

    def draw_among(self, seed: int, stage: int, round: int, agreed: np.ndarray) -> np.ndarray:
        """`count` distinct ids of devices that agreed, uniformly."""
        self._enough(agreed.size)
        return np.sort(_generator(seed, stage, round).choice(agreed, self.count, replace=False, shuffle=False))

    def size(self, devices: int) -> float:
        """Always `count`."""
        return min(self.count, int(self.reach(devices).sum()))

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """A volunteer may be drawn every round."""
        agreed = int(self.reach(devices).sum())
        self._enough(agreed)
        return Exposure(self.name, rounds, rounds, agreed, self.count, "replace_one", "fixed", others=devices - agreed)

    def _enough(self, agreed: int) -> None:
        if self.count > agreed:
            raise PlanError(
                f"cohort.count must be at most the {agreed} devices that agreed, got {self.count}; select fewer, or raise "
                "cohort.share."
            )


class Poisson(Sampler):
    """Poisson sampling: each device takes part with probability `rate`, independently."""

    name: ClassVar[str] = "poisson"
    rate: float = setting(above=0.0, at_most=1.0)

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """The ids that were drawn."""
        return np.flatnonzero(_generator(seed, stage, round).random(devices) < self.rate)

    def size(self, devices: int) -> float:
        """The expected number."""
        return devices * self.rate

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """A device may be drawn every round; neighbours differ by one device's presence."""
        return Exposure(self.name, rounds, rounds, devices, self.size(devices), "add_remove", "poisson")


class One(Sampler):
    """One device a round, uniformly, with replacement between rounds."""

    name: ClassVar[str] = "one"

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """One id."""
        return _generator(seed, stage, round).integers(devices, size=1)

    def size(self, devices: int) -> float:
        """One."""
        del devices
        return 1

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """A device may be drawn every round."""
        return Exposure(self.name, rounds, rounds, devices, 1, "replace_one", "fixed")


class Pooled(Sampler):
    """No rounds: raw histories are pooled in the lab. Central baselines only; never private."""

    name: ClassVar[str] = "pooled"
    fitted: ClassVar[Fitted] = "pooled"

    @property
    def sees(self) -> tuple[str, ...]:
        """Everything."""
        return ("raw data: whole histories are pooled on one machine",)

    def draw(self, seed: int, stage: int, round: int, devices: int) -> np.ndarray:
        """No ids: there are no rounds."""
        del seed, stage, round, devices
        return np.zeros(0, int)

    def size(self, devices: int) -> float:
        """None."""
        del devices
        return 0

    def exposure(self, rounds: int, devices: int) -> Exposure:
        """Everything is seen once."""
        del rounds
        return Exposure(self.name, 0, 1, devices, devices, "replace_one")


HELPERS: dict[str, tuple[str, ...]] = {
    "matcher": (
        "a helper beside the server sees which people share encrypted items, and how many",
        "positions are visible: a message names the rows a person touched, among invented ones",
    ),
    "denoiser": (
        "a denoising client sees which items other clients invented, and their gradients",
        "the server sees the rows a person touched among invented ones, and those of a denoising client exactly",
        "a denoising client and the server together see which rows a person touched, and the gradient of each",
    ),
}


class Helped(Pooled):
    """Devices, a server and a third party that helps them, all simulated in the lab. Never private."""

    name: ClassVar[str] = "helped"
    fitted: ClassVar[Fitted] = "helped"
    helper: Literal["matcher", "denoiser"] = setting("matcher")

    @property
    def sees(self) -> tuple[str, ...]:
        """What the helper and the server see."""
        return HELPERS[self.helper]


SAMPLERS: dict[str, type[Sampler]] = {s.name: s for s in (All, Pass, Fixed, Volunteers, Poisson, One, Pooled, Helped)}


def build_sampler(cohort: Mapping[str, Any], where: str = "cohort") -> Sampler:
    """The sampler a stage names.

    >>> build_sampler({"sampler": "fixed", "count": 2}).draw(0, 0, 0, 3).size
    2
    """
    settings = dict(cohort)
    name = settings.pop("sampler")
    if name not in SAMPLERS:
        raise PlanError(unknown(where, name, SAMPLERS, "sampler"))
    return fill(SAMPLERS[name], settings, where)


def sampler_of(stage: Stage, where: str = "cohort") -> Sampler:
    """A stage's sampler. Refuse a stage that trains something in no rounds, or adds noise where the lab fits."""
    sampler = build_sampler(stage.cohort, where)
    if sampler.fitted != "rounds" and stage.privacy["mechanism"] != "none":
        raise PlanError(
            f"Stage.privacy.mechanism = {stage.privacy['mechanism']!r} is an empty promise: under cohort.sampler = "
            f"{stage.cohort['sampler']!r} the lab fits the model without a mechanism. Leave privacy out."
        )
    if stage.trains and not stage.rounds and sampler.fitted == "rounds":
        raise PlanError(
            f"Stage.trains promises to train {', '.join(stage.trains)} in 0 rounds; set rounds, or leave trains empty."
        )
    return sampler


def _enough(count: int, devices: int) -> None:
    if count > devices:
        raise PlanError(
            f"cohort.count must be at most the number of devices, {devices}, got {count}; select fewer, or use 'all'."
        )
