"""Logs: one structured line per thing that happened, with what it was about, and never a secret.

Responsible for: the format (JSON or console), the names bound to every line of an attempt, keeping secrets out of
whatever is logged by whomever: our lines, foreign libraries' lines, exceptions.
Must not know: what the lines say. Only the program's own start calls ``configure``; a library never does.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TextIO
from urllib.parse import unquote, urlsplit

import structlog
from pydantic import SecretStr

from worker.settings_check import MASK, masked_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from structlog.typing import EventDict, Processor, WrappedLogger

    from worker.settings import Settings

log: Final[structlog.stdlib.BoundLogger] = structlog.stdlib.get_logger("reroot")

bind = structlog.contextvars.bind_contextvars
"""Names that stand on every line from now on, ours and foreign: ``bind(dataset_id=…)``, until ``unbind_all()``."""

unbind_all = structlog.contextvars.clear_contextvars

SHORTEST_SECRET: Final = 4
"""A shorter value cannot be told from ordinary text, and hides nothing."""

_KEPT_SECRETS: Final = 512
"""Secrets of warehouses that a process looks for in its lines, beside those of its start."""

_HARMLESS: Final = re.compile(
    r"(region|endpoint|addressing|style-access|timeout|scheme|py-io-impl|signer|warehouse|enabled|verify)$",
)
"""Catalog properties that are no secret. Every other one is taken for one."""

_CHATTY: Final = ("celery.worker.strategy", "celery.app.trace", "pyiceberg", "urllib3", "kombu", "amqp", "botocore")
"""Loggers whose INFO only repeats, per message or request, what our own line says."""


def configure(settings: Settings, stream: TextIO | None = None) -> None:
    """Make every logger of the process write through one handler to ``stream`` (standard error by default)."""
    shared = _shared_processors()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(settings)],
        ),
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def hide(settings: Settings) -> None:
    """Keep the secrets of these settings out of every line from now on as well: they were read later."""
    _scrubber.hide(sensitive(settings))


def sensitive(settings: Settings) -> frozenset[str]:
    """Every text that must not stand in a line: the secrets, and of a URL its password in each way to write it.

    What differs for one warehouse is hidden once that warehouse is used (``hide``): there may be thousands.
    """
    found: set[str] = set()
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            found.update(_passwords(value.get_secret_value()))
        elif name == "catalog_properties":
            found.update(inner.get_secret_value() for key, inner in value.items() if not _HARMLESS.search(key))
    return frozenset(text for text in found if len(text) >= SHORTEST_SECRET)


def scrubber(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that replaces the secrets, and the passwords of URLs, in a text."""
    # The longest first: one may hold another.
    forms = sorted({form for text in secrets for form in _spellings(text)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, forms)) or r"(?!)")
    return lambda text: masked_url(pattern.sub(MASK, text))


class _Scrubber:
    """What is hidden in this process: the secrets of its start, and those that were read since."""

    def __init__(self) -> None:
        self._first: frozenset[str] = frozenset()
        self._since: OrderedDict[str, None] = OrderedDict()
        self._scrub = scrubber(())

    def start(self, secrets: Iterable[str]) -> None:
        """Begin with these."""
        self._first = frozenset(secrets)
        self._since.clear()
        self._scrub = scrubber(self._first)

    def hide(self, secrets: Iterable[str]) -> None:
        """And these. The longest unused ones are given up when there are too many to look for in each line."""
        new = False
        for text in secrets:
            if text not in self._first:
                new = new or text not in self._since
                self._since[text] = None
                self._since.move_to_end(text)
        while len(self._since) > _KEPT_SECRETS:
            self._since.popitem(last=False)
        if new:
            self._scrub = scrubber({*self._first, *self._since})

    def __call__(self, text: str) -> str:
        return self._scrub(text)


_scrubber: Final = _Scrubber()


def _spellings(text: str) -> set[str]:
    """A text as it stands, as Python's repr and as JSON write it: quotes and letters beyond ASCII look different."""
    plain = {text, repr(text)[1:-1], ascii(text)[1:-1]}
    return plain | {json.dumps(form, ensure_ascii=strict)[1:-1] for form in plain for strict in (True, False)}


def _passwords(secret: str) -> set[str]:
    if "://" not in secret:
        return {secret}
    try:
        password = urlsplit(secret).password
    except ValueError:
        return {secret}
    return {password, unquote(password)} if password else set()


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering(settings: Settings) -> list[Processor]:
    """The last steps. What is scrubbed is the finished line: nothing can be added to it afterwards."""
    _scrubber.start(sensitive(settings))
    render: list[Processor]
    if settings.log_format == "json":
        render = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        render = [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]

    def scrubbed(_logger: WrappedLogger, _method: str, line: EventDict | str | bytes | Any) -> str:
        return _scrubber(str(line))

    return [*render, scrubbed]
