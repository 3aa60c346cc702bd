"""The broker's connection is lost with messages in hand: callers are told just that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from kombu.connection import Connection

from worker import transport
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker(valkey: str) -> Iterator[Any]:
    transport.install()
    connection = Connection(valkey)
    yield connection
    connection.collect()


def received(broker: Any) -> Any:
    """A message that is not yet acknowledged."""
    queue = broker.SimpleQueue(Queue.MOVES.value)
    queue.put({"one": 1})
    return queue.get(timeout=10)


def lose(broker: Any) -> None:
    """As Celery leaves a connection whose broker went away under it."""
    channel = broker.default_channel
    channel._disconnect_pools()
    broker.transport.client = None


def test_a_message_of_a_lost_connection_is_acknowledged_in_vain(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    message = received(broker)
    errors = broker.connection_errors
    lose(broker)
    message.ack_log_error(logging.getLogger("here"), errors)
    assert "Couldn't ack" in caplog.text


def test_a_lost_connection_with_messages_in_hand_can_be_closed(broker: Any) -> None:
    received(broker)
    lose(broker)
    broker.close()


def test_acknowledging_makes_no_client_of_its_own(broker: Any) -> None:
    channel = broker.default_channel
    with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
        assert first is second
    channel._disconnect_pools()
    with channel.conn_or_acquire() as other:
        assert other is not first
        assert other.ping()
