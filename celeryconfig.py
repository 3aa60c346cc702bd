"""Celery's settings and nothing else: delivery, queues, limits.

The ledger in Postgres is the truth and the broker a doorbell, so every choice here is between "a job runs again" and
"a job runs later"; neither loses anything. What an installation sets (addresses, limits) is in ``worker.settings``.
"""

import sys

from kombu.entity import Exchange, Queue

from worker.messages import TASK_OF
from worker.messages import Queue as Name
from worker.settings import SettingsError, load_settings

try:
    _settings = load_settings()
    broker_url = _settings.broker()
except SettingsError as error:
    # Celery would show a traceback; whoever starts a worker needs the line.
    sys.exit(str(error))

imports = ("worker.tasks",)

# --- delivery
# Acknowledged after the job: a message that is acknowledged first is gone when its process is killed.
task_acks_late = True
# A killed child's message goes back. This has no cap; the ledger's count of attempts is the cap.
task_reject_on_worker_lost = True
# An end is an end: what comes next stands in the ledger. Without these a failure is dropped or requeued for ever.
task_acks_on_failure = True
task_acks_on_timeout = True
# One message in reserve per process halves the idle gap between two moves (10.5 to 5.4 ms). A reserved message whose
# worker dies is sent again by the sweeper long before the broker restores it.
worker_prefetch_multiplier = 2
worker_disable_prefetch = False
# Killing running jobs when the broker's connection breaks loses them where results are stored, and gains nothing here.
worker_cancel_long_running_tasks_on_connection_loss = False

# --- broker
broker_transport_options = {
    "visibility_timeout": _settings.visibility_timeout_seconds,
    # Looked at every 15 s; by default a message that is due to be restored waits for up to 100 s more.
    "unacked_restore_interval": 15,
    "unacked_restore_throttle": 1,
    # One list per queue, so that its length is the queue's length for everybody who asks.
    "priority_steps": [0],
    # Without a timeout a frozen broker holds a publisher for ever.
    "socket_timeout": 15,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "max_connections": 64,
    "client_name": "reroot",
}
broker_connection_retry_on_startup = True
broker_connection_retry = True
# None is "for ever"; by default a worker gives up after 100 tries and sits there deaf.
broker_connection_max_retries = None
broker_pool_limit = 10
broker_pool_acquire_timeout = 10

# --- queues: each with an exchange and a key of its own, else it is bound to the default queue's and gets copies.
task_queues = [Queue(name.value, Exchange(name.value, type="direct"), routing_key=name.value) for name in Name]
task_routes = {task: {"queue": name.value} for name, task in TASK_OF.items()}
task_default_queue = Name.MOVES.value
task_default_exchange = Name.MOVES.value
task_default_routing_key = Name.MOVES.value
# A misspelt queue is an error at the publisher, not a new queue that nobody reads.
task_create_missing_queues = False

# --- limits
worker_concurrency = 8
# The soft limit lets a job end in order; the hard one kills its process, and the sweeper finds the dead attempt.
task_soft_time_limit = _settings.soft_time_limit_seconds
task_time_limit = _settings.time_limit_seconds
# A new process now and then, so that a leak stays small; KiB.
worker_max_tasks_per_child = 2000
worker_max_memory_per_child = 600_000
# A child opens its connections before it reports that it is up, and the default of 4 s is one slow connection.
worker_proc_alive_timeout = 30.0
# On SIGQUIT (or SIGTERM with REMAP_SIGTERM=SIGQUIT): a flat pause, so it is as long as nearly every move, not as the
# longest. What is cut off runs again.
worker_soft_shutdown_timeout = 10.0

# --- what people see: events feed Flower, results are not kept, the ledger has them.
worker_send_task_events = True
# Celery's own sends each event by itself; ours, a quarter of a second's at once.
worker_consumer = "worker.consumer:Consumer"
task_send_sent_event = True
task_track_started = False
task_ignore_result = True
task_store_errors_even_if_ignored = False
# Lines are Reroot's own, structured; Celery must not take the root logger.
worker_hijack_root_logger = False
worker_redirect_stdouts = False

# --- safety: JSON and nothing else, in every direction.
task_serializer = "json"
result_serializer = "json"
event_serializer = "json"
accept_content = ["json"]
result_accept_content = ["json"]
enable_utc = True
timezone = "UTC"
