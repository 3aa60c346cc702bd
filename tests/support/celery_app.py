"""The Celery app with its real configuration, for a test that needs no broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from unittest import mock

if TYPE_CHECKING:
    from celery import Celery

NOWHERE: Final = {"REROOT_BROKER_URL": "redis://127.0.0.1:1/0"}
"""The least that the configuration needs; nothing listens there."""


def configured_app() -> Celery:
    """The app, configured as a worker's is, whatever the environment of the test run says."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("REROOT_")}  # noqa: TID251 - a test sets what the settings read
    with mock.patch.dict(os.environ, kept | NOWHERE, clear=True):  # noqa: TID251 - as above
        from worker.app import app  # noqa: PLC0415 - configured by the environment, which is set only now

        assert app.conf.broker_url
    return app
