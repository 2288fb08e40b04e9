"""A node on Flower: takes a SuperNode's messages and replies with the code that is installed here.

`serve_messages` is the way to run it: one process that stays, so that programs are compiled once. `app` is the same node as
a plain ClientApp, for a SuperNode that starts a process for each message; its folder is in the node's configuration.
"""

import time
from collections.abc import Callable

from tacit.deploy.flower_transport import FlowerRuntime, from_record, to_record  # first: it turns telemetry off  # isort: skip

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

from tacit.deploy.messages import Reply, Request
from tacit.device.node.node import Node
from tacit.errors import WireError

POLL = 0.2  # seconds between two polls for a task
PATIENCE = 20.0  # seconds to wait for the rest of a message; where its run has ended, the rest never comes
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
            message, context = _pull(client)
            began = time.perf_counter()
            made = reply_message(node, message)
            push_message(client, made, context)
    except (ObjectPullError, EmptyError) as problem:
        log(f"a message was withdrawn before it was read ({type(problem).__name__})")
        return True
    log(f"answered {message.metadata.group_id or 'hello'} in {time.perf_counter() - began:.2f} s")
    return True


class EmptyError(Exception):
    """A task without a message: the run ended while the message was on its way."""


def _pull(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """The message of a task, and the context that Flower expects back with the reply. The app that comes with it is ignored."""
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
