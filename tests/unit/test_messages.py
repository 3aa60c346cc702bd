"""The contract on the wire: names and arguments that other programs rely on, held as they were first published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.celery_app import configured_app
from worker.messages import MOVE_TASK, PROVISION_TASK, TASK_OF, WRITE_TASK, Queue

if TYPE_CHECKING:
    from celery import Celery

DATASET = "0da3f1c2-0000-4000-8000-00000000000a"


@pytest.fixture(scope="module")
def app() -> Celery:
    return configured_app()


def test_the_names_are_the_published_ones() -> None:
    assert [queue.value for queue in Queue] == ["moves", "births", "provisioning"]
    assert (MOVE_TASK, WRITE_TASK, PROVISION_TASK) == ("reroot.move", "reroot.write", "reroot.provision")
    assert TASK_OF == {Queue.MOVES: MOVE_TASK, Queue.BIRTHS: WRITE_TASK, Queue.PROVISIONING: PROVISION_TASK}


def wire(app: Celery, queue: Queue) -> dict[str, Any]:
    """The message as it lies in the broker, published into memory."""
    with app.connection_for_write(url="memory://", transport_options={}) as connection:
        producer = app.amqp.Producer(connection)
        app.send_task(TASK_OF[queue], (DATASET,), queue=queue.value, producer=producer, retry=False, task_id="id")
        message = connection.SimpleQueue(app.amqp.queues[queue.value]).get(timeout=5)
        message.ack()
        return {
            "body": json.loads(message.body),
            "headers": message.headers,
            "content_type": message.content_type,
            "delivery": message.delivery_info,
        }


def test_a_move_on_the_wire(app: Celery) -> None:
    message = wire(app, Queue.MOVES)
    args, kwargs, embedded = message["body"]
    assert args == [DATASET]
    assert kwargs == {}
    assert embedded == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert message["content_type"] == "application/json"
    headers = message["headers"]
    assert headers["task"] == "reroot.move"
    assert headers["argsrepr"] == f"('{DATASET}',)"
    assert headers["lang"] == "py"
    assert [headers[name] for name in ("eta", "expires", "retries")] == [None, None, 0]


@pytest.mark.parametrize("queue", list(Queue))
def test_a_message_goes_to_its_own_queue_and_no_other(app: Celery, queue: Queue) -> None:
    assert app.amqp.router.route({}, TASK_OF[queue])["queue"].name == queue.value
    declared = app.amqp.queues[queue.value]
    assert (declared.exchange.name, declared.exchange.type, declared.routing_key) == (
        queue.value,
        "direct",
        queue.value,
    )


def test_queues_and_routes_cannot_drift_apart(app: Celery) -> None:
    assert set(app.amqp.queues) == set(Queue)
    assert {task: route["queue"] for task, route in app.conf.task_routes.items()} == {
        task: queue.value for queue, task in TASK_OF.items()
    }
