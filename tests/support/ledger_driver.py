"""Kills a device at its work, again and again, and looks at what its ledger shows each time. A script; loads no jax.

    python ledger_driver.py FOLDER DEVICE KILLS SEED

prints one JSON object: how many kills and messages there were, and what was found wrong.
"""

import contextlib
import json
import os
import random
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tacit.device.ledger.ledger import Ledger
from tacit.errors import DeviceError
from tacit.privacy.accounting.events import Pure
from tacit.privacy.budget import Budget

EPSILON = 0.1
AMPLE, LAST = 1_000_000, 40  # messages in the first budget; messages left in the last one
NUMBER = struct.Struct("<I")


def message(round: int) -> dict:
    amounts = {"event": Pure(EPSILON), "epsilon": EPSILON, "delta": 0.0, "bytes": NUMBER.size, "digest": f"{round:x}"}
    return {"plan": "p", "run": "r", "stage": 0, "round": round, "unit": "user", "relation": "replace_one", **amounts}


def send(network: int, round: int) -> None:
    os.write(network, NUMBER.pack(round))


class WriteAhead(Ledger):
    """As a device should: first the ledger, then the network."""

    def report(self, network: int, round: int, moment: Callable[[], None]) -> None:
        self.reserve(**message(round))
        moment()
        send(network, round)
        moment()


class SendsFirst(Ledger):
    """A mutant: what left is entered afterwards."""

    def report(self, network: int, round: int, moment: Callable[[], None]) -> None:
        send(network, round)
        moment()
        self.reserve(**message(round))
        moment()


class NeverResends(WriteAhead):
    """A mutant: whatever was reserved when the device died is taken for sent."""

    @property
    def entries(self):
        return (*super().entries, None)


DEVICES = {kind.__name__: kind for kind in (WriteAhead, SendsFirst, NeverResends)}


def live(kind: type, folder: Path, budget: Budget, ready: int, moments: int) -> None:
    """A device's life: the message that may not have left, then the next ones, until it is spent; then it waits."""
    left = moments

    def moment() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = kind.open(folder / "ledger", budget)
    network = os.open(folder / "network", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ready, b"!")
    round = max(len(ledger.entries) - 1, 0)
    with contextlib.suppress(DeviceError):
        while True:
            ledger.report(network, round, moment)
            round += 1
    while True:
        signal.pause()


def fork_and_kill(kind: type, folder: Path, budget: Budget, chance: random.Random, pace: float) -> bool:
    """One life and its end; whether it was a kill that ended it."""
    ready, tell = os.pipe()
    moments = chance.randint(1, 6) if chance.random() < 0.2 else 0  # some die between two steps, the rest anywhere
    child = os.fork()
    if child == 0:
        try:
            live(kind, folder, budget, tell, moments)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(tell)
    if moments or chance.random() < 0.85:
        os.read(ready, 1)  # the others may die while they open their ledger
    if moments:
        select.select([ready], [], [], 0.2)  # it kills itself, which ends the pipe, unless it is spent before
    else:
        time.sleep(chance.uniform(0, 12 * pace))
    os.kill(child, signal.SIGKILL)
    os.close(ready)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def sent_rounds(folder: Path) -> set[int]:
    network = folder / "network"
    data = network.read_bytes() if network.exists() else b""
    return {round for (round,) in NUMBER.iter_unpack(data)}


def cut_power(folder: Path, before: int, chance: random.Random) -> bool:
    """Tear the last line, as a power cut may, where that line is new and nothing was sent for it."""
    path = folder / "ledger"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    newest = len(lines) - 2  # less the head; rounds begin at 0
    if newest < before or newest in sent_rounds(folder) or chance.random() < 0.5:
        return False
    os.truncate(path, sum(map(len, lines[:-1])) + chance.randrange(len(lines[-1])))
    return True


def look(folder: Path, budget: Budget, before: int) -> tuple[int, list[str]]:
    """How many messages the ledger shows, and what is wrong with that."""
    with Ledger.open(folder / "ledger", budget) as ledger:
        shown, amount = [entry.round for entry in ledger.entries], ledger.spent()
    sent = sent_rounds(folder)
    wrong = {
        "sent, but not shown": sent - set(shown),
        "a gap": shown != list(range(len(shown))),
        "fewer than before": len(shown) < before,
        "charged, but never sent": len(shown) - len(sent) > 1,
        "over the budget": not budget.covers(amount),
        "an amount that is not the messages'": abs(amount - EPSILON * len(shown)) > 1e-9 * amount,
    }
    return len(shown), [what for what, found in wrong.items() if found]


def drive(kind: type, folder: Path, kills: int, seed: int) -> dict:
    chance, weather = random.Random(seed), random.Random(seed + 1)  # apart: how a device dies depends on the seed alone
    shown, torn, wrong, pace = 0, 0, [], seconds_a_message(folder)
    budget = Budget(EPSILON * AMPLE)
    for kill in range(kills):
        if kill == kills - kills // 8:  # the last ones run into the end of the budget
            budget = Budget(EPSILON * (shown + LAST))
        if not fork_and_kill(kind, folder, budget, chance, pace):
            wrong.append(f"kill {kill}: the device ended by itself")
        torn += cut_power(folder, shown, weather)
        shown, found = look(folder, budget, shown)
        wrong += [f"kill {kill}: {what}" for what in found]
    limit = round(budget.epsilon / EPSILON)
    with Ledger.open(folder / "ledger", budget) as ledger:  # whatever is left can be used, and not one message more
        left = ledger.allowance(Pure(EPSILON), most=limit)
        used = exhaust(ledger, limit)
    return {"kills": kills, "shown": shown, "torn": torn, "left": left, "used": used, "limit": limit, "wrong": wrong}


def seconds_a_message(folder: Path) -> float:
    """The pace of this disk; and the accountant is loaded once, before the first fork."""
    with Ledger.open(folder / "warm", Budget(EPSILON * AMPLE)) as ledger:
        ledger.reserve(**message(0))
        began = time.perf_counter()
        for round in range(1, 11):
            ledger.reserve(**message(round))
    return (time.perf_counter() - began) / 10


def exhaust(ledger: Ledger, limit: int) -> int:
    used = 0
    with contextlib.suppress(DeviceError):
        for round in range(len(ledger.entries), limit + 1):
            ledger.reserve(**message(round))
            used += 1
    return used


if __name__ == "__main__":
    kind, kills, seed = DEVICES[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4])
    result = drive(kind, Path(sys.argv[1]), kills, seed)
    print(json.dumps(result | {"jax": "jax" in sys.modules}))
