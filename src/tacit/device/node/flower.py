"""A node on Flower: takes a SuperNode's messages and replies with the code that is installed here.

`serve_messages` is the way to run it: one process that stays, so that programs are compiled once. `app` is the same node as
a plain ClientApp, for a SuperNode that starts a process for each message; its folder is in the node's configuration.
"""

import time
from collections.abc import Callable

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from tacit.deploy.flower_transport import (
    FlowerRuntime,
    WithdrawnError,
    from_record,
    pull,
    push,
    to_record,
)  # first: it turns telemetry off  # isort: skip
from tacit.deploy.messages import Reply, Request
from tacit.device.node.node import Node
from tacit.errors import WireError

POLL = 0.2  # seconds between two polls for a task
app = ClientApp()


@app.train()
@app.query()
def handle(message: Message, context: Context) -> Message:
    """The reply to a message of the node whose folder is in the configuration."""
    return reply_message(Node(str(context.node_config["home"])), message)


def reply_message(node: Node, message: Message) -> Message:
    """A node's reply to a message; one without a valid request is refused."""
    try:
        reply = node.reply_to(from_record(Request, message.content))
    except WireError as problem:
        reply = Reply("", refused=str(problem))
    return Message(to_record(reply), reply_to=message)


def serve_messages(node: Node, runtime: FlowerRuntime, going: Callable[[], bool], log: Callable[[str], None]) -> None:
    """Reply to a SuperNode's messages, one after another, while `going` returns True."""
    waiting = False
    while going():
        try:  # the runtime's secret lies in the node's folder, which may be erased meanwhile
            if serve_one_message(node, runtime, log):
                continue
            waiting = False
        except FileNotFoundError:
            if going():
                raise
        except httpx.HTTPError as problem:  # the SuperNode is starting, or restarting
            if not waiting:
                log(f"waiting for the SuperNode ({type(problem).__name__})")
            waiting = True
            time.sleep(5 * POLL)
        time.sleep(POLL)


def serve_one_message(node: Node, runtime: FlowerRuntime, log: Callable[[str], None]) -> bool:
    """Reply to a waiting message; False where there is none."""
    token = runtime.acquire("flwr-clientapp")
    if token is None:
        return False
    try:
        with runtime.task(token) as client:
            message, context = pull(client)
            began = time.perf_counter()
            made = reply_message(node, message)
            push(client, made, context)
    except WithdrawnError as problem:
        log(f"a message was withdrawn before it was read ({problem})")
        return True
    log(f"answered {message.metadata.group_id or 'hello'} in {time.perf_counter() - began:.2f} s")
    return True
