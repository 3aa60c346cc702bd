"""The Celery app, and the doorbell that it rings.

Responsible for: the app object that ``celery -A worker.app`` finds, and publishing through it, many messages at a time.
Must not know: what a task does (``worker.tasks``), SQL. No business code is imported here: the producer and the sweeper
publish without it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from celery import Celery
from kombu.exceptions import KombuError

from worker import transport
from worker.doorbell import BrokerAwayError
from worker.messages import TASK_OF, Queue
from worker.settings_check import masked_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

transport.install()
app: Final = Celery("reroot")
app.config_from_object("celeryconfig")

BATCH: Final = 500
"""Messages that go to the broker in one round trip: one by one each costs a millisecond or two."""


class CeleryDoorbell:
    """Rings through the broker. It keeps one connection, which a failure discards; not for use by two threads."""

    def __init__(self, broker_url: str) -> None:
        self._url = broker_url
        self._connection: Any = None

    def ring(self, queue: Queue, ids: Sequence[str]) -> None:
        """Send one message per id, in this order. Raises BrokerAwayError with the ids not certainly sent."""
        for start in range(0, len(ids), BATCH):
            with self._connected(unsent=ids[start:]) as connection:
                self._send(connection, queue, ids[start : start + BATCH])

    def depth(self, queue: Queue) -> int:
        """Messages that wait in the queue. Raises BrokerAwayError."""
        with self._connected(unsent=()) as connection:
            # Asked of the list itself: a passive declare answers "not found" for an empty queue.
            length: int = connection.default_channel.client.llen(queue.value)
            return length

    def close(self) -> None:
        """Let the connection go; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, connection: Any, queue: Queue, ids: Sequence[str]) -> None:
        # Each message has an event beside it, which shows it in Flower before a worker has taken it.
        with app.amqp.Producer(connection) as producer, producer.batch(max_size=2 * BATCH):
            for name in ids:
                app.send_task(TASK_OF[queue], (name,), queue=queue.value, producer=producer, retry=False)

    @contextmanager
    def _connected(self, unsent: Sequence[str]) -> Iterator[Any]:
        if self._connection is None:
            self._connection = app.connection_for_write(url=self._url)
        connection = self._connection
        foreign = (KombuError, OSError, *connection.connection_errors, *connection.channel_errors)
        try:
            yield connection
        except foreign as error:
            self.close()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BrokerAwayError(masked_url(f"{self._url} does not answer: {reason}"), unsent) from error
