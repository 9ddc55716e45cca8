"""S6: whatever is sent to a route, no answer is a 5xx or outside of the OpenAPI document.

All routes at 1,000 examples take hours, nearly all of them to draw the examples. `python -m
tests.proofs.fuzz --part 1/4` or `--routes '^POST /v1/flows'` sends them to some of the routes. With
`--record FILE` each route that is done is a line of that file, and the next run goes on with the
others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import checks
from schemathesis.core.failures import Failure, FailureGroup

from flowfabric.server.routes import ROUTES
from flowfabric.server.table import Kind
from flowfabric.testing import TestServer
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure, Row, show
from tests.proofs.proof import Proof, Run

TOKEN: Final = "fuzz"
_CHECKS: Final = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
_STREAMS: Final = {(each.method, each.path) for each in ROUTES if each.kind is Kind.STREAM}
_AT_ONCE: Final = 0.01
"""Seconds that a call waits which asks to wait: what it is answered does not depend on them."""
_ANY_HEALTH: Final[Any] = list(HealthCheck)
Known = dict[str, list[Any]]


@contextlib.contextmanager
def server(dsn: str, log: Path, **more: str) -> Generator[str]:
    """The address of a server process without sweeps, with callbacks; it logs to this file."""
    command = ("-m", "flowfabric.cli", "server", "--listen", "127.0.0.1:0", "--no-sweeps")
    environment = {
        **os.environ,
        "FF_DATABASE_URL": dsn,
        "FF_API_TOKEN": TOKEN,
        "FF_CALLBACKS": "1",
        "FF_LIMITS": "rate=100000,burst=100000",
        **more,
    }
    with log.open("w") as told:
        process = subprocess.Popen([sys.executable, *command], env=environment, stderr=told)
    try:
        for _ in range(600):
            if found := re.search(r"serving at ([^\s\"]+)", log.read_text()):
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        yield found[1]
    finally:
        process.terminate()
        process.wait()


def known(session: requests.Session, url: str) -> Known:
    """Names of things that exist, so that examples also come past the first lookup."""

    def post(path: str, body: Any) -> Any:
        answer = session.post(url + path, json=body)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    made = [post("/v1/executions", {"execution_kind": "job"})["execution_id"] for _ in range(8)]
    ended = post("/v1/executions", {"execution_kind": "job", "idempotency_key": "k"})
    post(f"/v1/executions/{quote(ended['execution_id'])}/cancel", {})
    edges = [{"upstream": "a", "downstream": "b"}]
    members = [{"execution_kind": "job", "member_name": each} for each in ("a", "b")]
    flow = post("/v1/flows", {"flow_kind": "f", "members": members, "edges": edges})["flow_id"]
    edge = session.get(f"{url}/v1/flows/{flow}/edges").json()["items"][0]
    spec = {"spec_kind": "cron", "cron": "0 3 * * *"}
    post("/v1/schedules", {"name": "nightly", "execution_kind": "job", "spec": spec})
    post("/v1/quotas", {"name": "few", "limits": {"max_concurrent": 2}})
    budget = post("/v1/budgets", {"hard_limits": {"usd": 5}})["budget_id"]
    worker = {"worker_id": "w", "worker_instance_id": "w-1"}
    held = post("/v1/work/claim", {**worker, "limit": 6})["executions"]
    bulk = {"action": "cancel", "reason": "x", "execution_ids": made[:1]}
    executions = [*made, ended["execution_id"], edge["upstream"]]
    return {
        "execution_id": executions,
        "execution_ids": [executions],
        "flow_id": [flow],
        "flow_ids": [[flow]],
        "edge_id": [edge["edge_id"]],
        "upstream": [edge["upstream"]],
        "downstream": [edge["downstream"]],
        "name": ["nightly"],
        "limit_name": ["few"],
        "budget_id": [budget],
        "bulk_id": [post("/v1/bulk-actions", bulk)["bulk_id"]],
        "idempotency_key": ["k"],
        "execution_key": ["k"],
        "namespace": ["default"],
        "lane_id": ["default"],
        "worker_instance_id": ["w-1"],
        "handle": [each["handle"] for each in held],
        "leases": [[each["handle"] for each in held]],
    }


def with_known(value: Any, names: Known, chance: random.Random) -> Any:
    """The value, in which half of the members that name something name what exists."""
    if isinstance(value, dict):
        return {
            key: chance.choice(names[key])
            if names.get(key) and chance.random() < 0.5
            else _AT_ONCE
            if key == "wait" and isinstance(each, int | float) and each > _AT_ONCE
            else with_known(each, names, chance)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [with_known(each, names, chance) for each in value]
    return value


class RouteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent to one route, and how many answers were wrong."""

    route: str
    examples: int
    sent: int
    wrong: int
    seconds: float


class Record:
    """The routes that are done, in a file that outlives the process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def holds(self, route: str, examples: int) -> bool:
        """Is the route done, with at least so many examples and no wrong answer?"""
        if self._path is None or not self._path.exists():
            return False
        lines = self._path.read_bytes().splitlines()
        done = [msgspec.json.decode(line, type=RouteResult) for line in lines]
        return any(
            each.route == route and each.examples >= examples and not each.wrong for each in done
        )

    def add(self, result: RouteResult) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(result) + b"\n")


class Fuzz:
    """Sends examples to routes, and counts what is wrong with the answers, each fault once."""

    def __init__(self, url: str, arena: Arena, record: Record) -> None:
        self._url, self._arena, self._record = url, arena, record
        self._session = requests.Session()
        self._session.headers["authorization"] = f"Bearer {TOKEN}"
        self._names = known(self._session, url)
        self.faults = Counter[str]()
        self.sent = self.routes = 0

    def all_routes(self, number: int, chosen: Callable[[str, int], bool]) -> None:
        """Send so many examples to each chosen route, half of them valid by the document.

        After each route a line tells how far it is and what was found so far.
        """
        schema = schemathesis.openapi.from_url(self._url + "/openapi.json")
        every: Any = schema.get_all_operations()
        operations = [found.ok() for found in every]
        wanted = [
            each
            for place, each in enumerate(operations)
            if chosen(each.label, place) and not self._record.holds(each.label, number)
        ]
        for done, operation in enumerate(wanted, 1):
            begun, before, wrong = time.monotonic(), self.sent, self.faults.total()
            for mode in schemathesis.GenerationMode:
                self._route(operation, mode, max(1, number // 2))
            seconds, sent = time.monotonic() - begun, self.sent - before
            self.routes += 1
            self._record.add(
                RouteResult(
                    route=operation.label,
                    examples=number,
                    sent=sent,
                    wrong=self.faults.total() - wrong,
                    seconds=round(seconds, 1),
                )
            )
            self._arena.say(
                f"{done}/{len(wanted)} {operation.label}: {sent} requests in {seconds:.0f} s; "
                f"so far {self.sent:,} requests, {self.faults.total()} wrong answers"
            )

    def _route(self, operation: Any, mode: schemathesis.GenerationMode, number: int) -> None:
        @seed(self._arena.seed)
        @settings(
            max_examples=number,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=_ANY_HEALTH,
        )
        @given(
            case=operation.as_strategy(generation_mode=mode),
            chosen=st.randoms(use_true_random=False),
        )
        def send(case: Any, chosen: random.Random) -> None:
            for part in ("path_parameters", "query", "body"):
                if isinstance(example := getattr(case, part), dict | list):
                    setattr(case, part, with_known(example, self._names, chosen))
            self._send(case)

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong: there are no parameters
            send()

    def _send(self, case: Any) -> None:
        label, self.sent = case.operation.label, self.sent + 1
        try:
            if (case.method.upper(), case.operation.path) in _STREAMS:
                return _open(self._session, case, self._url)
            answer = case.call(session=self._session, timeout=30)
            case.validate_response(answer, checks=_CHECKS)
        except FailureGroup as failed:
            for each in failed.exceptions:
                fault = f"{label}: {type(each).__name__}: {each}"
                if not self.faults[fault]:
                    self._arena.say(f"{fault}\n{case.as_curl_command()}")
                self.faults[fault] += 1


def _open(session: requests.Session, case: Any, url: str) -> None:
    """The stream begins, or the request is refused; its events are not waited for."""
    request = case.as_transport_kwargs(base_url=url)
    with session.request(**request, timeout=20, stream=True) as answer:
        media = answer.headers["content-type"]
        told = answer.status_code, media.partition(";")[0]
        if told != (200, "text/event-stream") and not (
            400 <= told[0] < 500 and told[1] == "application/problem+json"
        ):
            failed = f"a stream answered {told}"
            raise FailureGroup(
                [Failure(operation=case.operation.label, title=failed, message=failed)]
            )


def _at(
    number: int,
    chosen: Callable[[str, int], bool] = lambda _label, _place: True,
    record: Path | None = None,
) -> Run:
    def run(arena: Arena) -> Sequence[Figure]:
        with tempfile.TemporaryDirectory() as directory, arena.database() as dsn:
            log = Path(directory, "server.log")
            with server(dsn, log) as url:
                fuzz = Fuzz(url, arena, Record(record))
                fuzz.all_routes(number, chosen)
            if fuzz.faults:
                arena.say(log.read_text()[-20_000:])
        told = "".join(f"; {fault} ({times} times)" for fault, times in fuzz.faults.items())
        return [
            Figure(
                "S6",
                f"answers of 5xx, or outside of the OpenAPI document, to {fuzz.sent:,} requests "
                f"({number} a route, {fuzz.routes} routes)",
                f"{fuzz.faults.total()}{told}",
                "0",
                held=not fuzz.faults,
            )
        ]

    return run


SAMPLE: Final = ("POST /v1/executions", "GET /v1/executions", "POST /v1/schedules")
"""The routes of `make test`: three whose forms have everything that a form can have."""
FUZZ: Final = Proof(
    "fuzz",
    quick=_at(6),
    full=_at(1000),
    sample=_at(6, lambda label, _: label in SAMPLE),
    claims=("S6",),
)


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    found = int(number), int(parts)
    if not 1 <= found[0] <= found[1]:
        raise ValueError
    return found


def main() -> int:
    """Send examples to a slice of the routes; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.fuzz", description=main.__doc__)
    parser.add_argument("--examples", type=int, default=1000, metavar="N", help="of each route")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="I/N", help="every Nth route")
    parser.add_argument("--routes", default="", metavar="REGEX", help="such as '^POST /v1/flows'")
    parser.add_argument("--record", type=Path, metavar="FILE", help="of the routes that are done")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    options = parser.parse_args()
    pattern, (number, parts) = re.compile(options.routes), options.part

    def chosen(label: str, place: int) -> bool:
        return place % parts == number - 1 and pattern.search(label) is not None

    found = TestServer.start()
    try:
        run = _at(options.examples, chosen, options.record)
        [figure] = run(Arena(found, options.seed))
    finally:
        asyncio.run(found.drop_template())
        found.stop()
    show([Row(FUZZ.name, figure, 0)])
    return 0 if figure.held else 1


if __name__ == "__main__":
    sys.exit(main())
