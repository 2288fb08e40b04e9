"""The server: runs the rounds of the plan folder `folder` and writes them to `out`, both from the run's configuration."""

from tacit.server.session.flower import app

__all__ = ["app"]
