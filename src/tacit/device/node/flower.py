"""A node on Flower: letters from a SuperNode's tasks, answered by what is installed here.

`attend` is the way to run it: one process that stays, so that programs are compiled once. `app` is the same node as a plain
ClientApp, for a SuperNode that starts a process for each message; its home is in the node's configuration.
"""

import time
from collections.abc import Callable

from tacit.deploy.flower_transport import Desk, from_record, to_record  # first: it turns telemetry off  # isort: skip

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node as Number
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_and_inflate_object_from_tree
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message

from tacit.deploy.messages import Answer, Ask
from tacit.device.node.node import Node
from tacit.errors import WireError

POLL = 0.2  # seconds between two looks for a task
PATIENCE = 20.0  # seconds to wait for the rest of a message; of one whose run has ended, it never comes
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
        try:  # a home that is erased meanwhile takes the desk's secret with it
            if attend_once(node, desk, say):
                continue
            waiting = False
        except FileNotFoundError:
            if going():
                raise
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
    try:
        with desk.task(token) as client:
            message, context = _pull(client)
            began = time.perf_counter()
            made = reply(node, message)
            push_message(client, made, context)
    except (ObjectPullError, EmptyError) as problem:
        say(f"a message went away before it was read ({type(problem).__name__})")
        return True
    say(f"answered {message.metadata.group_id or 'hello'} in {time.perf_counter() - began:.2f} s")
    return True


class EmptyError(Exception):
    """A task without a message: its run ended while it was on its way."""


def _pull(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """The message of a task, with what Flower wants to see again in the reply. The app that comes along is left alone."""
    task = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
    TaskIdentity.node_id = task.context.node_id
    context = context_from_proto(task.context)
    found = client.PullMessages(PullAppMessagesRequest())
    if not found.messages_list:
        raise EmptyError
    number, tree = Number(node_id=context.node_id), found.message_object_trees[0]
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, number, context.run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, number, context.run_id),
        return_type=Message,
        max_time=PATIENCE,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # it does not travel inside the message
    return message, context
