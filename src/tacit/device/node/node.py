"""Node: one machine that takes part, with the histories of one or of many people. Requests in, replies out; no network.

A node reports once in each round: the report and the homes after it are on disk, and the ledger has its entry, before the
report leaves; where the request is repeated, the node sends the same bytes again. So the key of a report's noise is
drawn from the operating system, used once and never written down. The sentence with which it refuses a request contains
nothing about a history.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import catalog_to_dict
from tacit.core.chacha import fresh_keys, keys_of
from tacit.core.messages import Broadcast, Report, pack, pack_tree
from tacit.core.run_folder import plain
from tacit.deploy.bundle import Bundle
from tacit.deploy.messages import VERSION, Reply, Request, ids_of
from tacit.deploy.signing import has_valid_signature
from tacit.device.histories import check_people
from tacit.device.ledger.journal import BusyError
from tacit.device.ledger.node_ledger import NodeLedger
from tacit.device.method import breaks_form, build, keeps_unit
from tacit.device.node import batch
from tacit.device.node.history_file import NodeHistories, read_history_file
from tacit.device.node.sharing import SharingChoice, apply_choices
from tacit.device.node.store import RunStore, Sent, Store
from tacit.device.round import Home
from tacit.errors import DeviceError, PlanError, WireError
from tacit.privacy.budget import Entry
from tacit.privacy.mechanism import empty_total
from tacit.privacy.price import ledger_entry_of

Logger = Callable[[str], None]
SeededKeys = Callable[[Request, Home], jax.Array]
PATIENCE = 10.0  # seconds to wait for a ledger that another process has open


class RefusalError(DeviceError):
    """A reason to refuse a request that the server may read."""


class UnsignedError(DeviceError):
    """The request is not signed by a server of this device, which is told nothing."""


class Node:
    """The people of a node's folder, replying to requests.

    `seeded` makes the noise keys of a request's homes where a test must know them; a real device leaves it out.
    """

    def __init__(self, home: str | Path, log: Logger = lambda line: None, seeded: SeededKeys | None = None):
        self.store, self._log, self._seeded = Store(home), log, seeded
        self._bundles: dict[str, Bundle] = {}
        self._files: dict[str, tuple[object, NodeHistories]] = {}  # digest -> state of the history file, its histories
        self._people: dict[str, tuple[NodeHistories, Mapping[str, SharingChoice], NodeHistories]] = {}
        self._prepared: dict[tuple[str, int], batch.PreparedHistories] = {}  # digest, stage

    def reply_to(self, request: Request) -> Reply:
        """The signed reply to a request. It never raises: a problem on this machine goes into its own log, not to the server.

        Whoever did not sign the request is told nothing, not even the node's name.
        """
        reply = Reply("", run=request.run, stage=request.stage, round=request.round, nonce=request.nonce)
        try:
            self._check_signature(request)
            sign = self.store.key
        except Exception as problem:
            self._log(f"{type(problem).__name__}: {problem}")
            return Reply("", refused="This device answers its own server alone.")
        try:
            return sign(self._reply(request, reply, sign.name))
        except RefusalError as problem:
            self._log(str(problem))
            return sign(replace(reply, refused=str(problem)))
        except Exception as problem:  # its text may quote a history: the server learns only that it happened
            self._log(f"{type(problem).__name__}: {problem}")
            return sign(replace(reply, refused="This device failed to make a report; the reason is in its own log."))

    def _reply(self, request: Request, reply: Reply, name: str) -> Reply:
        """The reply to a request of this device's own server."""
        bundle = self._admit(request, name)
        if request.kind == "hello":
            return self._introduce(bundle, reply)
        if request.kind == "end":
            kept = self.store.run(request.run)
            if not kept.exists or kept.digest != bundle.digest:
                raise RefusalError("This device took no part in this run; it keeps nothing of it.")
            kept.keep_broadcast(bundle.unpack_params(request.params))
            return reply
        form, report, counter = self._round(bundle, request)
        return replace(reply, form=form, report=report, counter=counter)

    def people(self, bundle: Bundle) -> NodeHistories:
        """The histories as their owners' choices let methods see them; the same object until a file or a choice changes."""
        histories, choices = self._histories(bundle), self.store.choices
        known = self._people.get(bundle.digest)
        if known is not None and known[0] is histories and known[1] == choices:
            return known[2]
        shown = apply_choices(histories, choices, bundle)
        self._people[bundle.digest] = (histories, choices, shown)
        return shown

    def _histories(self, bundle: Bundle) -> NodeHistories:
        """The histories of the file, which is read again only where it has changed since."""
        path = self.store.settings.get("history")
        if path is None:
            raise DeviceError(f"{self.store.path} has no history file; name one with --history.")
        state = _file_state(Path(path))
        known = self._files.get(bundle.digest)
        if known is not None and state is not None and known[0] == state:
            return known[1]
        histories = read_history_file(path, bundle)
        for stage in bundle.plan.stages:
            check_people(stage, histories)
        self._files[bundle.digest] = (state, histories)
        return histories

    def prepared(self, bundle: Bundle, stage: int, people: NodeHistories) -> batch.PreparedHistories:
        """The stage's method with the histories as it prepares them: once, until the histories change."""
        known = self._prepared.get((bundle.digest, stage))
        if known is None or known.people is not people:
            known = batch.PreparedHistories(build(bundle.plan.stages[stage], bundle.catalog), people)
            for number in range(len(bundle.plan.stages)):  # what belongs to histories that have changed
                old = self._prepared.get((bundle.digest, number))
                if old is not None and old.people is not people:
                    del self._prepared[bundle.digest, number]
            self._prepared[bundle.digest, stage] = known
        return known

    def homes_in_stage(
        self,
        bundle: Bundle,
        kept: RunStore,
        people: NodeHistories,
        stage: int,
        allowances: Callable[[int], np.ndarray] | None = None,
    ) -> Home:
        """The homes of all people with this stage entered: the newest on disk, or new ones."""
        entered = 0
        homes = batch.homes_for(kept.secrets(len(people)))
        sent = kept.outbox()
        if sent is not None:
            entered = sent.stage + 1
            methods = [build(one, bundle.catalog) for one in bundle.plan.stages]
            homes = kept.homes(batch.home_shapes(methods, people, entered, allowances is not None))
        for number in range(entered, stage + 1):
            allowed = None if allowances is None else allowances(number)
            homes = batch.enter_all(number, self.prepared(bundle, number, people), homes, allowed)
        return homes

    def _introduce(self, bundle: Bundle, reply: Reply) -> Reply:
        """How many people the node has and, where the plan needs volunteers, which of them volunteer."""
        people = self.people(bundle)
        agreed = self.store.volunteers(people.users) if bundle.most_volunteers else np.zeros(0, np.int32)
        return replace(reply, people=len(people), volunteers=agreed.astype("<i4").tobytes())

    def _check_volunteers(self, bundle: Bundle, request: Request, people: NodeHistories) -> None:
        """In a stage for volunteers, only volunteers report, whatever the server requests."""
        if not bundle.volunteers(request.stage):
            return
        if not np.isin(_cohort(request, len(people)), self.store.volunteers(people.users)).all():
            raise RefusalError(
                f"Stage {request.stage + 1} is for volunteers only, and the request names a person who does not volunteer."
            )

    def _check_signature(self, request: Request) -> None:
        """Refuse a request that is not signed for its plan folder or, where that is not installed, for any that is."""
        installed = self.store.digests()
        asked = [request.digest] if request.digest in installed else installed
        keys = [self._bundle(digest).server for digest in asked]
        if not any(not key or has_valid_signature(key, request) for key in keys):
            raise UnsignedError("This request is not signed by the server whose key is in the plan folder.")

    def _bundle(self, digest: str) -> Bundle:
        """An installed plan folder, read once."""
        if digest not in self._bundles:
            self._bundles[digest] = self.store.bundle(digest)
        return self._bundles[digest]

    def _admit(self, request: Request, name: str) -> Bundle:
        """The plan folder of a request, if it is installed and the request is meant for this node."""
        if request.version != VERSION:
            raise RefusalError(
                f"This device reads messages of version {VERSION}, got {request.version}; update the older side."
            )
        if not self.store.takes_part:
            raise RefusalError("This device does not take part: its owner has not agreed, or has paused it.")
        if request.digest not in self.store.digests():
            known = ", ".join(self.store.digests()) or "none"
            raise RefusalError(
                f"This device has no plan folder {request.digest}; it has {known}. Install the same folder on both sides."
            )
        if not self.store.agreed_to(request.digest):
            raise RefusalError(
                f"This device does not take part in plan folder {request.digest}: its owner has not agreed."
            )
        if request.kind not in ("hello", "round", "end"):
            raise RefusalError("A request must be a hello, a round or an end; update the older side.")
        if request.kind != "hello" and request.to != name:
            raise RefusalError("This request is meant for another device.")
        return _priced(self._bundle(request.digest))

    def _round(self, bundle: Bundle, request: Request) -> tuple[Literal["report", "total"], bytes, int]:
        """The report for a round, made before or now, and its counter; it is entered in the ledger either way."""
        stages = bundle.plan.stages
        if not 0 <= request.stage < len(stages) or not 0 <= request.round < stages[request.stage].rounds:
            raise RefusalError(f"The plan has no round {request.round} in stage {request.stage + 1}.")
        people = self.people(bundle)
        self._check_volunteers(bundle, request, people)
        ledger = self._open_ledger(people)
        try:
            self._check_copies(bundle, request, ledger)
            self._check_begin(bundle, request, people, ledger)
            self._check_schedule(bundle, request, ledger)
            kept, limited = self._begun(bundle, request, people)
            sent = self._again(bundle, request, kept)
            if sent is None:
                ledger.check(_page(bundle, request, 0), _cohort(request, len(people)))  # before homes count a report
                sent = self._new(bundle, request, kept, people, ledger, limited)
            page = _page(bundle, request, len(sent.report))
            ledger.reserve(page, sent.who, hashlib.sha256(sent.report).hexdigest()[:32])
            self._note_silence(ledger, page, np.setdiff1d(sent.asked, sent.who))
            counter = ledger.messages
        finally:
            ledger.close()
        return "report" if len(people) == 1 else "total", sent.report, counter

    def _check_copies(self, bundle: Bundle, request: Request, ledger: NodeLedger) -> None:
        """Leave a run in which a copy of this folder has taken part: the server has seen messages that the ledger lacks.

        They are entered now, so that the ledger never shows less than was sent about these people.
        """
        kept, lost = self.store.run(request.run), request.counter - ledger.messages
        if lost > 0:
            kept.leave()
            before = bundle.first_round(request.stage) + request.round
            rounds = (_at(bundle, request, place) for place in range(before, -1, -1))
            sending = [one for one in rounds if bundle.price.stages[one.stage].event is not None]
            ledger.enter_lost([_page(bundle, one, 0) for one in sending], lost)
        if kept.left:
            raise RefusalError(
                "This device's folder was copied, or restored from a backup: the server has received messages under its name "
                "that its ledger lacked. They are entered now, and it takes part again in the next run."
            )

    def _check_schedule(self, bundle: Bundle, request: Request, ledger: NodeLedger) -> None:
        """Send nothing new where the owner's schedule does not allow it now; the server does not learn which part."""
        kept, now = self.store.run(request.run), bundle.first_round(request.stage) + request.round + 1
        if kept.exists and kept.done >= now:
            return  # the same bytes again
        waits_for = self.store.schedule.waits_for(ledger.newest, time.time())
        if waits_for:
            self._log(f"this device's schedule does not allow a message now ({waits_for})")
            raise RefusalError("This device's schedule does not allow it to take part now.")

    def _check_begin(self, bundle: Bundle, request: Request, people: NodeHistories, ledger: NodeLedger) -> None:
        """Begin no run, and write nothing, for a request that cannot be read or that the budget covers for nobody."""
        if self.store.run(request.run).exists:
            return
        bundle.unpack_params(request.params)
        _public_state(bundle, request)
        asked = _cohort(request, len(people))
        if self.store.budget is not None and not ledger.allowances(_page(bundle, request, 0), 1)[asked].any():
            raise RefusalError("The privacy budget of this device covers no message of this run; nothing is sent.")

    def _note_silence(self, ledger: NodeLedger, page: Entry, silent: np.ndarray) -> None:
        """Record whose messages are used up: by a budget, or because they were asked more often than fair draws would."""
        if silent.size:
            ledger.note_silence(page, silent)
            self._log(
                f"Stage {page.stage + 1}, round {page.round}: nothing was sent for {silent.size} of its people, who have "
                "sent all that their budget, or a fair draw of cohorts, allows."
            )

    def _open_ledger(self, people: NodeHistories) -> NodeLedger:
        """The ledger; while another process reads it (`tacit device status`), wait for a moment."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.store.ledger(people.users)
            except BusyError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _begun(self, bundle: Bundle, request: Request, people: NodeHistories) -> tuple[RunStore, bool]:
        """The files of the run, and whether its people had a budget when it began."""
        kept = self.store.run(request.run)
        if not kept.exists:
            self.store.prune(kept)
        began = kept.begin(bundle.digest, people.users, self.store.budget is not None)
        if began["digest"] != bundle.digest or began["users"] != [str(user) for user in people.users]:
            raise RefusalError(
                "This device began the run with another plan folder or other people; wait for the next run."
            )
        return kept, began["limited"]

    def _again(self, bundle: Bundle, request: Request, kept: RunStore) -> Sent | None:
        """The same bytes, if the node has reported in this round before."""
        sent, now = kept.outbox(), bundle.first_round(request.stage) + request.round + 1
        if sent is None or kept.done < now:
            return None
        if kept.done > now:
            raise RefusalError(
                f"This device is past round {request.round} of stage {request.stage + 1}; it reports once in a round."
            )
        if not np.array_equal(sent.asked, np.frombuffer(request.people, "<i4")):
            raise RefusalError(
                "This device has reported in this round for other people of its own; it reports once in a round."
            )
        return sent

    def _new(
        self, bundle: Bundle, request: Request, kept: RunStore, people: NodeHistories, ledger: NodeLedger, limited: bool
    ) -> Sent:
        """Compute the report; homes and report are on disk before anything leaves."""
        stage, ids = request.stage, _cohort(request, len(people))
        params, public_state = bundle.unpack_params(request.params), _public_state(bundle, request)
        kept.keep_broadcast(params)
        prepared, mechanism = self.prepared(bundle, stage, people), bundle.mechanism(stage)
        if not keeps_unit(prepared.method, mechanism.unit):
            raise RefusalError(
                f"Stage {stage + 1} promises for one interaction, and one may change more than one position of what "
                f"{bundle.plan.stages[stage].method} sends."
            )
        if reason := breaks_form(prepared.method, mechanism.update_form):
            raise RefusalError(
                f"Stage {stage + 1} of {bundle.plan.stages[stage].method} has privacy.update_form = {mechanism.update_form!r}, "
                f"but {reason}."
            )
        allowances = _allowances(bundle, request, ledger) if limited else None
        homes = self.homes_in_stage(bundle, kept, people, stage, allowances)
        broadcast = Broadcast(jnp.asarray(request.round, jnp.int32), *jax.tree.map(jnp.asarray, (params, public_state)))
        noise_keys = self._noise_keys(bundle, request, people)
        homes, stacks, who = batch.step_some(mechanism, stage, broadcast, prepared, homes, ids, noise_keys)
        sent = Sent(stage, request.round, ids, who, _packed(bundle, stage, stacks, alone=len(people) == 1))
        kept.keep(bundle.first_round(stage) + request.round + 1, homes, sent)
        return sent

    def _noise_keys(self, bundle: Bundle, request: Request, people: NodeHistories) -> batch.NoiseKeys:
        """The keys of the reports' noise: new ones, or, for answers that are drawn once for life, always the same.

        A new key mixes fresh entropy with a digest of the request, so that two copies of a home share no noise even where
        their systems drew alike.
        """
        seeded = self._seeded
        if seeded is not None:
            return lambda ids, homes: seeded(request, homes)
        if bundle.mechanism(request.stage).memoised:
            secret, question = self.store.lifetime_secret, question_of(bundle, request)
            return lambda ids, homes: keys_of(secret, [(str(people.users[at]).encode(), question) for at in ids])
        digest = hashlib.sha256(request.signed_bytes()).digest()
        return lambda ids, homes: fresh_keys(ids.size, digest)


def question_of(bundle: Bundle, request: Request) -> bytes:
    """A digest of all that an answer depends on beside the history: where it is the same, so is an answer for life."""
    stage, catalog = bundle.plan.stages[request.stage], bundle.catalog
    names = None if bundle.names is None else [str(name) for name in bundle.names]
    asked = {
        "method": [stage.method, stage.hyper],
        "mechanism": [stage.privacy, bundle.mechanism(request.stage).describe()],
        "items": [catalog.n_items, names, catalog_to_dict(catalog)],
    }
    digest = hashlib.sha256(json.dumps(plain(asked), sort_keys=True).encode())
    arrays = [np.asarray(values).tobytes() for _, values in sorted(catalog.attributes.items())]
    for part in (*arrays, request.params, request.public_state):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _priced(bundle: Bundle) -> Bundle:
    """The plan folder, if its plan has a price: one with settings that no noise is for has none."""
    try:
        _ = bundle.price
    except PlanError as problem:  # its text quotes the plan, which the server knows
        raise RefusalError(f"This device cannot take part in plan {bundle.plan.name!r}: {problem}") from None
    return bundle


def _file_state(path: Path) -> object:
    """What changes when a file is written: its identity, size and time of modification; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return path, found.st_ino, found.st_size, found.st_mtime_ns


def _allowances(bundle: Bundle, request: Request, ledger: NodeLedger) -> Callable[[int], np.ndarray]:
    """A function: how many messages of a stage each person's budget covers."""

    def allowed(stage: int) -> np.ndarray:
        priced = bundle.price.stages[stage]
        if priced.event is None:
            return ledger.allowances(_page(bundle, request, 0), 0)
        return ledger.allowances(_page(bundle, replace(request, stage=stage), 0), priced.messages)

    return allowed


def _page(bundle: Bundle, request: Request, size: int) -> Entry:
    """The ledger's entry for this round."""
    page = ledger_entry_of(
        bundle.price.stages[request.stage], bundle.plan.digest, request.run, request.stage, time.time(), size
    )
    return replace(page, round=request.round)


def _at(bundle: Bundle, request: Request, place: int) -> Request:
    """The request, in a round that is counted over all stages."""
    stage = max(number for number in range(request.stage + 1) if bundle.first_round(number) <= place)
    return replace(request, stage=stage, round=place - bundle.first_round(stage))


def _cohort(request: Request, people: int) -> np.ndarray:
    """The people of the node who take part: ascending, each once."""
    ids = ids_of(request.people, people)
    if ids is None or not ids.size:
        raise RefusalError(
            f"A request must name people of this device, from 0 to {people - 1}, ascending, each once, in four bytes each."
        )
    return ids


def _public_state(bundle: Bundle, request: Request) -> dict[str, Any]:
    """The round's public numbers; the gate sends nothing where one is not a positive finite number."""
    try:
        public_state = bundle.unpack_public_state(request.stage, request.public_state)
    except WireError as problem:
        raise RefusalError(f"This device cannot read the public_state of the request: {problem}") from None
    for name, number in public_state.items():
        if not number > 0:
            raise RefusalError(f"A number must be a positive finite number, got {name} = {number:g}; send another.")
    return public_state


def _packed(bundle: Bundle, stage: int, stacks: list[Report], alone: bool) -> bytes:
    """One person's report as it is; of several people, the total of their reports."""
    if alone:
        return pack(bundle.report(stage), jax.tree.map(lambda leaf: leaf[0], stacks[0]))
    mechanism, spec = bundle.mechanism(stage), bundle.update_spec(stage)
    total: Any = empty_total(mechanism, spec.like, spec.weights)
    return pack_tree(bundle.total(stage), batch.total_of(mechanism, total, stacks))
