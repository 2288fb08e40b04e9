"""`tacit` with the simulator's noise in place of the operating system's, to compare a real deployment with a simulation."""

import jax

from support.deployment import seeded_keys
from tacit.cli import main
from tacit.device.node.node import Node
from tacit.lab.simulation.setup import run_keys
from tacit.server.round import noise_key
from tacit.server.session.session import Session

SEED = 0  # of the deployments in these tests


def _session_key(session: Session) -> jax.Array:
    return noise_key(run_keys(SEED)[1], session.stage, session.round)


def _node_keys(node: Node, bundle, request, people):
    return lambda ids, homes: seeded_keys(request, homes)


if __name__ == "__main__":
    Session._noise_key, Node._noise_keys = _session_key, _node_keys
    main()
