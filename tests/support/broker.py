"""What lies in the broker, and what people see of it.

Responsible for: sending any task, counting messages that wait or are out, the events that Flower lives on.
Must not know: what the tasks do.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import redis

from demo.processes import wait_until
from tests.support.celery_app import configured_app

if TYPE_CHECKING:
    from celery import Celery


class Broker:
    """One broker, seen from outside. As a context it listens to events from then on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app: Celery = configured_app()
        self._client = redis.Redis.from_url(url)
        self.events: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def send(self, task: str, *args: Any, queue: str = "moves") -> str:
        """Publish one message; returns the task's id."""
        with self.app.connection_for_write(url=self.url) as connection:
            result: Any = self.app.send_task(task, args, queue=queue, connection=connection)
            return str(result.id)

    def waiting(self, queue: str = "moves") -> int:
        """Messages that wait in the queue."""
        return int(self._client.llen(queue))

    def out(self) -> int:
        """Messages that a worker has taken and not yet acknowledged."""
        return int(self._client.hlen("unacked"))

    def empty(self) -> bool:
        """Whether there is no message in it at all."""
        return self.waiting() == 0 and self.out() == 0

    def lose_all(self, queue: str = "moves") -> int:
        """Take every waiting message away; how many there were."""
        count = self.waiting(queue)
        self._client.delete(queue)
        return count

    def of(self, task_id: str) -> list[str]:
        """The kinds of events seen of one task so far, in order of arrival."""
        return [event["type"] for event in list(self.events) if event.get("uuid") == task_id]

    def event(self, task_id: str, kind: str) -> dict[str, Any]:
        """Wait for an event of one task and return it."""

        def found() -> list[dict[str, Any]]:
            return [event for event in list(self.events) if event.get("uuid") == task_id and event["type"] == kind]

        wait_until(lambda: bool(found()), seconds=60, what=f"{kind} of {task_id} (seen: {self.of(task_id)})")
        return found()[0]

    def _listen(self) -> None:
        with self.app.connection_for_read(url=self.url) as connection:
            receiver = self.app.events.Receiver(connection, handlers={"*": self.events.append})
            for _ in receiver.itercapture(limit=None, timeout=None, wakeup=False):
                if self._over.is_set():
                    return

    def __enter__(self) -> Self:
        self._listener.start()
        # Events are not kept for anybody: an event of a worker proves that this listener hears them.
        wait_until(lambda: bool(self.events), seconds=60, what="the first event of a worker")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()  # the next heartbeat wakes the listener
        self._listener.join(30)
        self._client.close()
