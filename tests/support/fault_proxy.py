"""A proxy before any Iceberg REST catalog that misbehaves when it is told to, as networks, gateways and servers do.

In this process: ``with FaultProxy(server_uri) as proxy: proxy.add(Rule(Kind.REGISTER, hang_up(after=True)))``. As a
process of its own: ``python -m tests.support.fault_proxy SERVER_URI``, which prints its address; ``RemoteFaults`` adds
and removes its rules from outside. It knows requests by their kind, not by what they mean to a move.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError

from tests.support.rest_double.refusals import Refused
from tests.support.rest_double.routes import Kind, route_of
from tests.support.rest_double.wire import Answer, HangUp, Listener, Request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

CONTROL: Final = "/faults"
"""Where a proxy in another process is told what to do."""
_OWN_HEADERS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "content-type"})
_REMEMBERED: Final = 10_000
"""Answers that can be given again, stale."""


class Act(StrEnum):
    """What is done to a request."""

    ANSWER = "answer"
    HANG_UP = "hang_up"
    DELAY = "delay"
    TWICE = "twice"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Fault:
    """One misbehaviour. ``after``: once the server has done the work."""

    act: Act
    after: bool = False
    status: int = 0
    retry_after: str | None = None
    error_type: str = ""
    """Of the error object; without it the body is a gateway's, in HTML."""
    seconds: float = 0.0

    def __str__(self) -> str:
        """The name under which it is counted."""
        what = f"{self.status}" if self.act is Act.ANSWER else self.act.value
        return " ".join(part for part in (what, self.error_type, "after" if self.after else "") if part)


def refuse(status: int, *, after: bool = False, retry_after: str | None = None, error_type: str = "") -> Fault:
    """Answer with a status, in the server's place or in spite of it."""
    return Fault(Act.ANSWER, after=after, status=status, retry_after=retry_after, error_type=error_type)


def hang_up(*, after: bool = False) -> Fault:
    """Break the connection without an answer."""
    return Fault(Act.HANG_UP, after=after)


def delay(seconds: float, *, after: bool = False) -> Fault:
    """Let the request, or its answer, wait."""
    return Fault(Act.DELAY, after=after, seconds=seconds)


def twice() -> Fault:
    """Send the request twice; the second answer is the one that arrives."""
    return Fault(Act.TWICE)


def stale() -> Fault:
    """Answer a GET as the same GET was answered before; one that was never sent goes through."""
    return Fault(Act.STALE)


def lie(status: int, error_type: str = "", *, after: bool = False) -> Fault:
    """Say that it is not there (404), or there already (409), whatever is true."""
    types = {404: "NoSuchTableException", 409: "AlreadyExistsException"}
    return refuse(status, after=after, error_type=error_type or types[status])


@dataclass(frozen=True, slots=True)
class Rule:
    """When a fault happens: at requests ``first`` to ``first + times - 1`` of the kind, from 1, since it was added.

    ``kind`` None fits every request, ``about`` those with this text in their target or body. ``times`` None has no end.
    ``rate`` below 1 lets only a part of them be hit, by the proxy's seed.
    """

    kind: Kind | None
    fault: Fault
    first: int = 1
    times: int | None = 1
    about: str = ""
    rate: float = 1.0

    def fits(self, kind: Kind, request: Request) -> bool:
        """Whether a request is one of those that the rule counts."""
        return self.kind in {None, kind} and (
            not self.about or self.about in request.target or self.about.encode() in request.body
        )

    def hits(self, number: int) -> bool:
        """Whether the request of this number is one that it is about."""
        return self.first <= number and (self.times is None or number < self.first + self.times)


@dataclass(slots=True)
class _Active:
    rule: Rule
    seen: int = 0


@dataclass
class FaultProxy:
    """``with FaultProxy(uri) as proxy``; ``proxy.uri`` is its own address."""

    upstream: str
    seed: int = 0
    port: int = 0
    requests: Counter[Kind] = field(default_factory=Counter)
    """How many requests of each kind arrived."""
    done: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    """How often each fault was done to each kind."""
    answers: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    """How often the server behind answered each kind with each status."""

    def __post_init__(self) -> None:
        self._rules: dict[int, _Active] = {}
        self._numbers = itertools.count(1)
        self._mutex = threading.Lock()
        self._random = random.Random(self.seed)  # noqa: S311 - chance that a seed repeats
        self._answers: OrderedDict[tuple[str, str], Answer] = OrderedDict()
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=64, timeout=urllib3.Timeout(60), retries=False)
        self._listener = Listener(self._answer, port=self.port)

    @property
    def uri(self) -> str:
        """Its address."""
        return self._listener.uri

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.stop()
        self._pool.clear()

    def add(self, rule: Rule) -> int:
        """Begin to misbehave; the number by which the rule is removed."""
        with self._mutex:
            number = next(self._numbers)
            self._rules[number] = _Active(rule)
            return number

    def remove(self, number: int) -> None:
        """Forget one rule; one that is forgotten already is fine."""
        with self._mutex:
            self._rules.pop(number, None)

    def clear(self) -> None:
        """Behave."""
        with self._mutex:
            self._rules.clear()

    def counts(self) -> dict[str, int]:
        """What was done so far: "kind: fault" and how often."""
        with self._mutex:
            return {f"{kind}: {fault}": number for (kind, fault), number in sorted(self.done.items())}

    # Inside.

    def _answer(self, request: Request) -> Answer:
        if request.target.startswith(CONTROL):
            return self._obey(request)
        kind = route_of(request.method, request.target).kind
        fault = self._fault_for(kind, request)
        if fault is None:
            return self._pass_on(request)
        if fault.act is Act.STALE:
            return self._old_answer(kind, request, fault)
        self._count(kind, fault)
        if not fault.after:
            return self._before(request, fault)
        answer = self._pass_on(request)
        return self._instead(fault, answer)

    def _fault_for(self, kind: Kind, request: Request) -> Fault | None:
        """The fault of the first rule that hits; every rule that fits counts the request."""
        with self._mutex:
            self.requests[kind] += 1
            chosen = None
            for active in self._rules.values():
                if not active.rule.fits(kind, request):
                    continue
                active.seen += 1
                if chosen is None and active.rule.hits(active.seen) and self._random.random() < active.rule.rate:
                    chosen = active.rule.fault
            return chosen

    def _before(self, request: Request, fault: Fault) -> Answer:
        if fault.act is Act.TWICE:
            self._pass_on(request)
        if fault.act in {Act.TWICE, Act.DELAY}:
            time.sleep(fault.seconds)
            return self._pass_on(request)
        return self._instead(fault, Answer(200))

    def _instead(self, fault: Fault, answer: Answer) -> Answer:
        """What arrives in place of an answer."""
        if fault.act is Act.HANG_UP:
            raise HangUp
        if fault.act is Act.DELAY:
            time.sleep(fault.seconds)
            return answer
        headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
        if fault.error_type:
            return Refused(fault.status, fault.error_type, "a fault, made on purpose", headers=headers).answer()
        body = f"<html><body>{fault.status}, made on purpose</body></html>"
        return Answer(fault.status, body.encode(), "text/html", headers)

    def _old_answer(self, kind: Kind, request: Request, fault: Fault) -> Answer:
        with self._mutex:
            answer = self._answers.get((request.method, request.target))
        if answer is None:
            return self._pass_on(request)
        self._count(kind, fault)
        return answer

    def _count(self, kind: Kind, fault: Fault) -> None:
        with self._mutex:
            self.done[kind, str(fault)] += 1

    def _pass_on(self, request: Request) -> Answer:
        """The server's own answer."""
        # The host that the client named goes along: some servers hand out their own address by it.
        headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
        if request.body:
            headers["content-type"] = request.headers.get("content-type", "application/json")
        try:
            response = self._pool.urlopen(
                request.method,
                self.upstream + request.target,
                body=request.body or None,
                headers=headers,
                redirect=False,
                decode_content=False,
            )
        except NewConnectionError:
            return Answer(502, b"<html><body>no upstream</body></html>", "text/html")
        except HTTPError as error:
            raise HangUp from error
        kept = {name: value for name, value in response.headers.items() if name.lower() not in _OWN_HEADERS}
        answer = Answer(response.status, response.data, response.headers.get("Content-Type", ""), kept)
        with self._mutex:
            self.answers[route_of(request.method, request.target).kind, answer.status] += 1
        if request.method == "GET":
            self._remember(request, answer)
        return answer

    def _remember(self, request: Request, answer: Answer) -> None:
        key = request.method, request.target
        with self._mutex:
            self._answers[key] = answer
            self._answers.move_to_end(key)
            if len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)

    def _obey(self, request: Request) -> Answer:
        """What ``RemoteFaults`` asks."""
        number = request.target.removeprefix(CONTROL).strip("/")
        if request.method == "POST":
            return _json({"number": self.add(rule_from(json.loads(request.body)))})
        if request.method == "DELETE" and number:
            self.remove(int(number))
        elif request.method == "DELETE":
            self.clear()
        return _json({"counts": self.counts(), "requests": dict(self.requests)})


class RemoteFaults:
    """The rules of a proxy in another process."""

    def __init__(self, uri: str) -> None:
        self._where = uri + CONTROL

    def add(self, rule: Rule) -> int:
        """Begin to misbehave; the number by which the rule is removed."""
        return int(self._ask("POST", body=json.dumps(asdict(rule)).encode())["number"])

    def remove(self, number: int) -> None:
        """Forget one rule."""
        self._ask("DELETE", f"/{number}")

    def clear(self) -> None:
        """Behave."""
        self._ask("DELETE")

    def counts(self) -> dict[str, int]:
        """What was done so far."""
        return dict(self._ask("GET")["counts"])

    def requests(self) -> dict[str, int]:
        """How many requests of each kind arrived."""
        return dict(self._ask("GET")["requests"])

    def _ask(self, method: str, where: str = "", *, body: bytes | None = None) -> dict[str, Any]:
        response = urllib3.request(method, self._where + where, body=body, timeout=30.0, retries=False)
        answer: dict[str, Any] = response.json()
        return answer


def rule_from(told: Mapping[str, Any]) -> Rule:
    """A rule as it came over the wire."""
    fault = dict(told["fault"])
    kind = told["kind"]
    return Rule(
        **{
            **told,
            "kind": None if kind is None else Kind(kind),
            "fault": Fault(**{**fault, "act": Act(fault["act"])}),
        }
    )


def _json(content: object) -> Answer:
    return Answer(200, json.dumps(content).encode())


def main(arguments: list[str]) -> None:
    """Stand before a server until this process is told to end."""
    parser = argparse.ArgumentParser(description="A proxy that misbehaves when it is told to.")
    parser.add_argument("upstream", help="the address of the catalog's server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    # Not to be missed by whoever ends it right after its first line.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with FaultProxy(asked.upstream.rstrip("/"), seed=asked.seed, port=asked.port) as proxy:
        sys.stdout.write(f"{proxy.uri}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(sys.argv[1:])
