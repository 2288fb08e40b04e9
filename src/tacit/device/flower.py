"""A node on Flower: letters from a SuperNode's tasks, answered by what is installed here.

`attend` is the way to run it: one process that stays, so that programs are compiled once. `app` is the same node as a plain
ClientApp, for a SuperNode that starts a process for each message; its home is in the node's configuration.
"""

import time
from collections.abc import Callable

from tacit.courier import Desk, from_record, to_record  # first: it turns telemetry off  # isort: skip

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from tacit.device.node import Node
from tacit.errors import WireError
from tacit.letters import Answer, Ask

POLL = 0.2  # seconds between two looks for a task
app = ClientApp()


@app.train()
@app.query()
def answer(message: Message, context: Context) -> Message:
    """What the node whose home the configuration names says to a message."""
    return reply(Node(str(context.node_config["home"])), message)


def reply(node: Node, message: Message) -> Message:
    """What a node says to a message; one that is no letter is refused."""
    try:
        said = node.answer(from_record(Ask, message.content))
    except WireError as problem:
        said = Answer(node.store.name, refused=str(problem))
    return Message(to_record(said), reply_to=message)


def attend(node: Node, desk: Desk, going: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Answer a SuperNode's messages, one after another, for as long as `going` says so."""
    waiting = False
    while going():
        try:
            if attend_once(node, desk, say):
                continue
            waiting = False
        except httpx.HTTPError as problem:  # the SuperNode is starting, or gone for a while
            if not waiting:
                say(f"waiting for the SuperNode ({type(problem).__name__})")
            waiting = True
            time.sleep(5 * POLL)
        time.sleep(POLL)


def attend_once(node: Node, desk: Desk, say: Callable[[str], None]) -> bool:
    """Answer a message that waits; False where there is none."""
    token = desk.acquire("flwr-clientapp")
    if token is None:
        return False
    with desk.task(token) as client:
        message, context, _, _ = pull_task_input(client)
        began = time.perf_counter()
        made = reply(node, message)
        push_message(client, made, context)
    say(f"answered {message.metadata.group_id or 'hello'} in {time.perf_counter() - began:.2f} s")
    return True
