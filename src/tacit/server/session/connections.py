"""Connections: how many there may be, and for how long one may send nothing whole.

Whoever opens connections and sends little on them holds places that nodes need. So the proxy counts connections from the
moment they are accepted, before TLS, and closes one whose client is slow to send the headers of a request.
"""

import asyncio
import socket
import threading
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 4096  # connections of all addresses together


class LimitedSocket(socket.socket):
    """A listening socket that accepts so many connections, and so many from one address; it closes any other at once."""

    def limit(self, per_address: int) -> None:
        """Accept at most so many connections from one address."""
        self._per_address, self._most = per_address, min(MOST, _open_files() // 2)
        self._held: Counter[str] = Counter()
        self._mutex = threading.Lock()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; asyncio goes on to the one after, where this raises."""
        found, address = super().accept()
        with self._mutex:
            if self._held[address[0]] >= self._per_address or self._held.total() >= self._most:
                found.close()
                raise ConnectionAbortedError("too many connections")
            self._held[address[0]] += 1
        held = _Held(found.family, found.type, found.proto, fileno=found.detach())
        held.listener, held.address = self, address[0]
        return held, address

    def give_back(self, address: str) -> None:
        """Free the place of a connection that was closed."""
        with self._mutex:
            self._held[address] -= 1
            if self._held[address] <= 0:
                del self._held[address]


class _Held(socket.socket):
    """An accepted connection, which gives its place back when it is closed."""

    listener: LimitedSocket | None = None
    address = ""

    def close(self) -> None:
        """Close it; a second time changes nothing."""
        super().close()
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.give_back(self.address)


def protocol(seconds: float) -> type[H11Protocol]:
    """HTTP as uvicorn speaks it, with so many seconds for the headers of a request.

    The time begins with the connection, or with the first byte after the last answer; nothing but a whole request ends it.
    """

    class Hurried(H11Protocol):
        _clock: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start()

        def data_received(self, data: bytes) -> None:
            self._start()
            super().data_received(data)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _start(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if self._clock is None and not answering:
                self._clock = self.loop.call_later(seconds, self.transport.abort)

        def _stop(self) -> None:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None

    return Hurried


def _open_files() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return 2 * MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST if soft == resource.RLIM_INFINITY else soft
