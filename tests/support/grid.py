"""A grid of nodes in one process with Flower's messages, which loses, delays and repeats messages and renumbers nodes."""

from collections.abc import Callable

from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

from support.deployment import Deployment
from tacit.deploy.flower_transport import from_record, to_record
from tacit.deploy.messages import Reply, Request
from tacit.device.node.flower import reply_message
from tacit.server.session import flower

OLD = 1  # a version of messages that is no longer supported


def hurry(monkeypatch) -> None:
    """Poll without a pause, and register a task with Flower."""
    for name, value in (("POLL", 0.0), ("RETRY", 0.01), ("GREET", 0.05)):
        monkeypatch.setattr(flower, name, value)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


class Grid:
    """Nodes by number. `fate` returns the outcome of a message: a reply, a slow or an old one, an error, or nothing."""

    def __init__(self, deployment: Deployment, fate: Callable[[int, Request], str] = lambda number, request: "reply"):
        self.nodes = dict(enumerate(deployment.nodes.values(), 1))
        self.waiting: dict[str, Message] = {}
        self.slow: dict[str, Message] = {}  # replies held back until `let_go`
        self.asked: list[tuple[int, str]] = []
        self.fate = fate

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._push(message, f"m{len(self.asked)}") for message in messages]

    def _push(self, message: Message, name: str) -> str:
        message.metadata.__dict__["_message_id"] = name
        number, request = message.metadata.dst_node_id, from_record(Request, message.content)
        self.asked.append((number, request.kind))
        fate = self.fate(number, request) if number in self.nodes else "error"
        if fate in ("reply", "slow"):
            (self.waiting if fate == "reply" else self.slow)[name] = self.reply(number, message)
        elif fate == "old":
            self.waiting[name] = Message(to_record(Reply("old", people=1, version=OLD)), reply_to=message)
        elif fate == "error":
            self.waiting[name] = Message(Error(5, "gone"), reply_to=message)
        return name

    def reply(self, number: int, message: Message) -> Message:
        return reply_message(self.nodes[number], message)

    def let_go(self) -> None:
        """Deliver the slow replies."""
        self.waiting |= self.slow
        self.slow = {}

    def pull_messages(self, names):
        return [self.waiting.pop(name) for name in list(names) if name in self.waiting]
