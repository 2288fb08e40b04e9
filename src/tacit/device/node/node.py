"""Node: one machine that takes part, with the one or the many people it holds. Letters in, letters out; no network here.

A round is answered once: the report and the homes after it are on disk, and the ledger has its line, before the report
leaves; asked again, the node sends the same bytes again. What it refuses, it refuses in a sentence that tells nothing of
anybody's history.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report, pack, pack_tree
from tacit.deploy.bundle import Kit
from tacit.deploy.messages import VERSION, Answer, Ask, ids_of
from tacit.deploy.signing import signed
from tacit.device.histories import check_people
from tacit.device.ledger.journal import BusyError
from tacit.device.ledger.node_ledger import Purse
from tacit.device.method import build, keeps_unit
from tacit.device.node import batch
from tacit.device.node.history_file import Residents, read_log
from tacit.device.node.sharing import as_chosen
from tacit.device.node.store import RunStore, Sent, Store
from tacit.device.round import Home
from tacit.errors import DeviceError, WireError
from tacit.privacy.budget import Entry
from tacit.privacy.mechanism import empty_total
from tacit.privacy.price import ledger_entry_of

Say = Callable[[str], None]
PATIENCE = 10.0  # seconds to wait for a ledger that somebody reads


class RefusalError(DeviceError):
    """A reason to stay silent that the server may read."""


class Node:
    """The people of a home folder, answering letters."""

    def __init__(self, home: str | Path, say: Say = lambda words: None):
        self.store, self._say = Store(home), say
        self._kits: dict[str, Kit] = {}

    def answer(self, ask: Ask) -> Answer:
        """What the node says to a letter. It never raises: a problem of its own is its own business, and told at home."""
        letter = Answer(self.store.name, run=ask.run, stage=ask.stage, round=ask.round)
        try:
            kit = self._admit(ask)
            if ask.kind == "hello":
                return self._introduced(kit, letter)
            if ask.kind == "end":
                self._begun(kit, ask, self.people(kit))[0].keep_broadcast(kit.unpack_params(ask.params))
                return letter
            form, report = self._round(kit, ask)
            return replace(letter, form=form, report=report)
        except RefusalError as problem:
            self._say(str(problem))
            return replace(letter, refused=str(problem))
        except Exception as problem:  # whatever it is, it may quote a history: the server learns that it happened
            self._say(f"{type(problem).__name__}: {problem}")
            return replace(letter, refused="This device cannot answer; its own log says why.")

    def people(self, kit: Kit) -> Residents:
        """The histories as they are now, for they grow between rounds; and what their owners let be seen of them."""
        history = self.store.settings.get("history")
        if history is None:
            raise DeviceError(f"{self.store.path} knows of no history; name its file with --history.")
        people = read_log(history, kit)
        for stage in kit.plan.stages:
            check_people(stage, people)
        return as_chosen(people, self.store.choices, kit)

    def _introduced(self, kit: Kit, letter: Answer) -> Answer:
        """How many people live here, and, where the plan asks volunteers, who of them volunteers."""
        people = self.people(kit)
        agreed = self.store.volunteers(people.users) if kit.most_volunteers else np.zeros(0, np.int32)
        return replace(letter, people=len(people), volunteers=agreed.astype("<i4").tobytes())

    def _check_volunteers(self, kit: Kit, ask: Ask, people: Residents) -> None:
        """A stage that asks volunteers is answered by volunteers alone, whomever the server takes for one."""
        if (
            kit.volunteers(ask.stage)
            and not np.isin(_asked(ask, len(people)), self.store.volunteers(people.users)).all()
        ):
            raise RefusalError(
                f"Stage {ask.stage + 1} asks volunteers alone, and somebody who is asked here does not volunteer."
            )

    def _admit(self, ask: Ask) -> Kit:
        """The plan folder a letter is about, if the node obeys it and the letter is meant for it."""
        if ask.version != VERSION:
            raise RefusalError(
                f"This device reads letters of version {VERSION}, got {ask.version}; update the older side."
            )
        if not self.store.takes_part:
            raise RefusalError("This device does not take part; nobody has agreed to it, or it is paused.")
        if ask.digest not in self.store.digests():
            known = ", ".join(self.store.digests()) or "none"
            raise RefusalError(
                f"This device holds no plan folder {ask.digest}; it obeys {known}. Install the same folder on both sides."
            )
        if ask.kind != "hello" and ask.to != self.store.name:
            raise RefusalError("This letter is meant for another device.")
        if ask.digest not in self._kits:
            self._kits[ask.digest] = self.store.kit(ask.digest)
        kit = self._kits[ask.digest]
        if kit.server and not signed(kit.server, ask):
            raise RefusalError("This letter is not signed by the server that the plan folder names.")
        return kit

    def _round(self, kit: Kit, ask: Ask) -> tuple[Literal["report", "total"], bytes]:
        """The report for a round: the one that was made before, or a new one; entered in the ledger either way."""
        if not 0 <= ask.stage < len(kit.plan.stages) or not 0 <= ask.round < kit.plan.stages[ask.stage].rounds:
            raise RefusalError(f"The plan has no round {ask.round} in stage {ask.stage + 1}.")
        people = self.people(kit)
        self._check_volunteers(kit, ask, people)
        kept, limited = self._begun(kit, ask, people)
        purse = self._purse(people)
        try:
            sent = self._again(kit, ask, kept) or self._new(kit, ask, kept, people, purse, limited)
            page = _page(kit, ask, len(sent.report))
            purse.reserve(page, sent.who, hashlib.sha256(sent.report).hexdigest()[:32])
        finally:
            purse.close()
        return "report" if len(people) == 1 else "total", sent.report

    def _purse(self, people: Residents) -> Purse:
        """The ledger; while its owner looks into it (`tacit device status`), wait a moment."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.store.purse(people.users)
            except BusyError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _begun(self, kit: Kit, ask: Ask, people: Residents) -> tuple[RunStore, bool]:
        """What is kept of the run, and whether its people had a budget when it began."""
        kept = self.store.run(ask.run)
        began = kept.begin(kit.digest, people.users, self.store.budget is not None)
        if began["digest"] != kit.digest or began["users"] != [str(user) for user in people.users]:
            raise RefusalError(
                "This device began the run with another plan folder or other people; wait for the next run."
            )
        return kept, began["limited"]

    def _again(self, kit: Kit, ask: Ask, kept: RunStore) -> Sent | None:
        """The same bytes, if this round was answered before."""
        sent, now = kept.outbox(), kit.first_round(ask.stage) + ask.round + 1
        if sent is None or kept.done < now:
            return None
        if kept.done > now:
            raise RefusalError(
                f"This device is past round {ask.round} of stage {ask.stage + 1}; it answers a round once."
            )
        if not np.array_equal(sent.asked, np.frombuffer(ask.people, "<i4")):
            raise RefusalError(
                "This device has answered this round for other people of its own; it answers a round once."
            )
        return sent

    def _new(self, kit: Kit, ask: Ask, kept: RunStore, people: Residents, purse: Purse, limited: bool) -> Sent:
        """Take the step, and put homes and report on disk before anything leaves."""
        ids = _asked(ask, len(people))
        params, dials = kit.unpack_params(ask.params), _dials(kit, ask)
        kept.keep_broadcast(params)
        method, mechanism = build(kit.plan.stages[ask.stage], kit.catalog), kit.mechanism(ask.stage)
        if not keeps_unit(method, mechanism.unit):
            raise RefusalError(
                f"Stage {ask.stage + 1} promises for one interaction, and one may change more than one position of what "
                f"{kit.plan.stages[ask.stage].method} sends."
            )
        homes = homes_of(kit, kept, people, ask.stage, _allowances(kit, ask, purse) if limited else None)
        broadcast = Broadcast(jnp.asarray(ask.round, jnp.int32), *jax.tree.map(jnp.asarray, (params, dials)))
        homes, stacks, who = batch.step_some(method, mechanism, ask.stage, broadcast, people, homes, ids)
        sent = Sent(ask.stage, ask.round, ids, who, _packed(kit, ask.stage, stacks, alone=len(people) == 1))
        kept.keep(kit.first_round(ask.stage) + ask.round + 1, homes, sent)
        return sent


def homes_of(
    kit: Kit, kept: RunStore, people: Residents, stage: int, allowances: Callable[[int], np.ndarray] | None
) -> Home:
    """Everybody's homes with this stage entered: the newest on disk, or new ones."""
    methods = [build(one, kit.catalog) for one in kit.plan.stages]
    entered = 0
    homes = batch.furnish(kept.secrets(len(people)))
    sent = kept.outbox()
    if sent is not None:
        entered = sent.stage + 1
        homes = kept.homes(batch.shapes(methods, people, entered, allowances is not None))
    for number in range(entered, stage + 1):
        allowed = None if allowances is None else allowances(number)
        homes = batch.enter_all(methods[number], number, people, homes, allowed)
    return homes


def _allowances(kit: Kit, ask: Ask, purse: Purse) -> Callable[[int], np.ndarray]:
    """How many messages of a stage each person's budget covers."""

    def allowed(stage: int) -> np.ndarray:
        priced = kit.price.stages[stage]
        if priced.event is None:
            return purse.allowances(_page(kit, ask, 0), 0)
        return purse.allowances(_page(kit, replace(ask, stage=stage), 0), priced.messages)

    return allowed


def _page(kit: Kit, ask: Ask, size: int) -> Entry:
    """The ledger's line for this round."""
    page = ledger_entry_of(kit.price.stages[ask.stage], kit.plan.digest, ask.run, ask.stage, time.time(), size)
    return replace(page, round=ask.round)


def _asked(ask: Ask, people: int) -> np.ndarray:
    """Who of the node's people is asked: ascending, each once."""
    ids = ids_of(ask.people, people)
    if ids is None or not ids.size:
        raise RefusalError(
            f"A letter must name people of this device, from 0 to {people - 1}, ascending, each once, in four bytes each."
        )
    return ids


def _dials(kit: Kit, ask: Ask) -> dict[str, Any]:
    """The round's public numbers; the gate would not open for one that is no positive finite number."""
    try:
        dials = kit.unpack_dials(ask.stage, ask.dials)
    except WireError as problem:
        raise RefusalError(f"This device cannot read the dials of the letter: {problem}") from None
    for name, dial in dials.items():
        if not dial > 0:
            raise RefusalError(f"A dial must be a positive finite number, got {name} = {dial:g}; ask with another.")
    return dials


def _packed(kit: Kit, stage: int, stacks: list[Report], alone: bool) -> bytes:
    """One person's report as it is; of a shard, the total of its people's reports."""
    if alone:
        return pack(kit.report(stage), jax.tree.map(lambda leaf: leaf[0], stacks[0]))
    mechanism, form = kit.mechanism(stage), kit.form(stage)
    total: Any = empty_total(mechanism, form.like, form.weights)
    return pack_tree(kit.total(stage), batch.total_of(mechanism, total, stacks))
