"""kombu's Redis transport, with two of its habits mended.

Responsible for: saying that a lost connection is lost, and keeping the client that acknowledges.
Must not know: Celery, what a message says.
"""

from __future__ import annotations

from typing import Any, Final

from kombu.transport import TRANSPORT_ALIASES, redis

HERE: Final = "worker.transport:Transport"


class Channel(redis.Channel):
    """A channel of a connection that may be gone."""

    _kept: Any = None

    def _connparams(self, asynchronous: bool = False) -> Any:
        """Where to connect. Raises ConnectionError where kombu 5.7 raises AttributeError.

        Messages that are not yet acknowledged when the broker goes away are acknowledged, or put back, on a channel
        whose transport is gone. Callers are ready for a lost connection; that other error ends the whole worker.
        """
        if getattr(self.connection, "client", None) is None:
            raise ConnectionError("the connection of this channel was lost")
        return super()._connparams(asynchronous)

    def _create_client(self, asynchronous: bool = False) -> Any:
        """The client for single commands, made once per pool: kombu makes one for each acknowledgement."""
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()
        return self._kept


class Transport(redis.Transport):
    """What ``redis://`` and ``rediss://`` stand for."""

    Channel = Channel


def install() -> None:
    """Let every broker's address of this process lead here."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = HERE
