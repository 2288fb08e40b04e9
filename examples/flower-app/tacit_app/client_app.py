"""A node: answers for the device's folder `home`, from the SuperNode's configuration."""

from tacit.device.node.flower import app

__all__ = ["app"]
