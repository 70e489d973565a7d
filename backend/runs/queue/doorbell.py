"""The doorbell: a Celery message without content that tells workers to check the database for runs.

A message may be lost, duplicated or late without harm: workers claim runs in the database, check it every few
seconds anyway, and the service sends another message for queued runs.
"""

import logging
import threading
from functools import cache
from hashlib import sha256
from typing import Any

from celery import Celery
from kombu import Connection, Queue
from kombu.exceptions import OperationalError
from kombu.transport import TRANSPORT_ALIASES
from sqlalchemy import make_url

from backend.base.settings import Settings
from backend.runs.queue.broker import choose_broker, queue_folder

logger = logging.getLogger(__name__)

TRANSPORT_ALIASES["filesystem"] = "backend.runs.queue.file_transport:Transport"

TASK_NAME = "grpolab.train"
QUEUE_NAME = "gpu"
MAX_RING_SECONDS = 0.5
"""Maximum number of seconds that a ring blocks its caller."""

RECONNECT_SECONDS = 2.0
"""Interval in seconds between attempts to reconnect to a broker that was unavailable."""

QUICK_OPTIONS: dict[str, Any] = {
    "socket_timeout": MAX_RING_SECONDS,
    "socket_connect_timeout": MAX_RING_SECONDS,
    "max_retries": 0,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}
"""Options for sending a doorbell, which fails instead of waiting, because the reconciler rings again."""

PATIENT_OPTIONS: dict[str, Any] = {
    "socket_timeout": 10,  # detects a half-open connection
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "visibility_timeout": 3600,
}
"""Options for the connection of a worker to Redis or Valkey."""


class SteadyConnection(Connection):
    """A connection that retries every two seconds, while kombu's delays grow to half a minute."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect like kombu's method, with a constant delay between attempts."""
        intervals = {f"interval_{name}": RECONNECT_SECONDS for name in ("start", "max")}
        return super().ensure_connection(*args, **{**intervals, **options})


@cache
def worker_queue(settings: Settings) -> Celery:
    """Return the Celery app with which workers consume messages."""
    return _make_app(settings, PATIENT_OPTIONS)


@cache
def _make_bell(settings: Settings) -> Celery:
    return _make_app(settings, QUICK_OPTIONS)


def _make_app(settings: Settings, options: dict[str, Any]) -> Celery:
    app = Celery("grpolab", broker=choose_broker(settings).url, set_as_current=False)
    app.amqp.Connection = SteadyConnection
    app.conf.update(
        task_acks_late=False,  # a lost message costs seconds, but a late acknowledgement runs long jobs twice
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,  # a busy worker leaves the message for an idle one
        task_ignore_result=True,  # the database holds the state
        result_backend=None,
        task_serializer="json",
        accept_content=["json"],
        result_accept_content=["json"],
        task_default_queue=QUEUE_NAME,
        task_queues=[Queue(QUEUE_NAME)],
        task_create_missing_queues=False,
        task_publish_retry=False,  # a failed ring is not an error
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # the worker polls the database meanwhile
        broker_transport_options=_transport_options(settings, options),
        worker_send_task_events=False,
        worker_enable_remote_control=False,  # stop and pause are requested in the database
        worker_hijack_root_logger=False,
        worker_max_tasks_per_child=None,
        task_soft_time_limit=None,
        task_time_limit=None,
        timezone="UTC",
    )
    return app


def _transport_options(settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    url = choose_broker(settings).url
    if url.startswith("filesystem://"):
        folder = str(queue_folder(settings))
        return {"data_folder_in": folder, "data_folder_out": folder}
    if url.startswith(("redis", "valkey")):
        # Two installations may share one Redis, and each notifies its own workers. The prefix leaves out the
        # host, because machines may use different names for it. Kombu loses messages if a prefix is not
        # ASCII.
        database = make_url(settings.effective_database_url).database or ""
        return {**options, "global_keyprefix": f"grpolab:{sha256(database.encode()).hexdigest()[:12]}:"}
    return options


class _Ringer:
    """Send doorbells in a thread, for which the caller waits only for a limited time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = threading.Lock()

    def ring(self) -> bool:
        if not self._free.acquire(timeout=MAX_RING_SECONDS):
            return False
        has_sent: list[bool] = []
        thread = threading.Thread(target=self._send, args=(has_sent,), name="ring", daemon=True)
        thread.start()
        thread.join(MAX_RING_SECONDS)
        return bool(has_sent)

    def _send(self, has_sent: list[bool]) -> None:
        try:
            _make_bell(self._settings).send_task(TASK_NAME, queue=QUEUE_NAME, retry=False)
            has_sent.append(True)
        except (OperationalError, OSError) as error:
            logger.warning("could not notify the workers: %s", error)
        finally:
            self._free.release()


_ringer = cache(_Ringer)


def ring(settings: Settings) -> bool:
    """Notify a worker, in at most half a second; return False if the message was not sent in time."""
    return _ringer(settings).ring()
