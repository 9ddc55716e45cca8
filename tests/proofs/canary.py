"""S11: secrets and payloads are in nothing that a real run says.

A server, a worker with failing handlers, and a caller with wrong requests are run with markers as
DSN password, API token, signing secret, waitpoint token and payload. Then everything that they
wrote for people is searched: logs, problems, metrics, lists, events and pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import requests

from flowfabric import App, Client, Ctx, Retry
from flowfabric.config import DatabaseConfig
from flowfabric.server.settings import Settings
from flowfabric.tokens import WaitpointToken
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.fuzz import server
from tests.proofs.proof import Proof

PASSWORD: Final = "canary-password-5d1f"
TOKEN: Final = "canary-token-77ab"
SECRET: Final = "ca9a7100" * 8
PAYLOAD: Final = "canary-payload-3e08"
_LISTS: Final = [
    "/v1/executions",
    "/v1/failures",
    "/v1/events",
    "/v1/lanes",
    "/v1/workers",
    "/v1/workers/events",
    "/v1/keys",
    "/v1/tokens",
    "/v1/waitpoints",
    "/v1/reviews",
    "/v1/info",
    "/v1/doctor",
    "/v1/tables",
    "/v1/whoami",
    "/metrics",
    "/healthz",
    "/readyz",
    "/openapi.json",
]
_PAGES: Final = [
    "/",
    "/executions",
    "/flows",
    "/approvals",
    "/schedules",
    "/lanes",
    "/workers",
    "/budgets",
    "/events",
    "/keys",
    "/settings",
]
_WITHIN: Final = 60.0

app: Final = App()


@app.task("typed", retry=Retry(max_retries=0))
async def typed(ctx: Ctx, number: int) -> int:
    """Is given a text instead."""
    return number


@app.task("fails", retry=Retry(max_retries=1, initial=0))
async def fails(ctx: Ctx, text: str) -> None:
    """Has the payload in a variable when it fails."""
    kept = {"payload": text}
    raise RuntimeError(f"failed with {len(kept)} payloads")


@app.task("steps", retry=Retry(max_retries=0))
async def steps(ctx: Ctx, text: str) -> None:
    """Fails in a step that has the payload."""
    await ctx.step("first", lambda: text)
    await ctx.step("second", lambda: int(len(text) / 0))


@contextlib.contextmanager
def _worker(dsn: str, log: Path) -> Generator[None]:
    command = ("-m", "flowfabric.cli", "worker", "tests.proofs.canary:app", "--log-level", "debug")
    environment = {**os.environ, "FF_DATABASE_URL": dsn}
    with log.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, stderr=told, stdout=told
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


class Output:
    """What was said to people, by where."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def hits(self, markers: dict[str, str]) -> Counter[str]:
        found = Counter[str]()
        for where, text in self.said:
            for name, marker in markers.items():
                if marker in text:
                    found[f"{name} in {where}"] += text.count(marker)
        return found


class Caller:
    """Calls the server; the problems that it is told are output."""

    def __init__(self, url: str, output: Output) -> None:
        self._url, self._output = url, output
        self._session = requests.Session()
        self._session.headers["authorization"] = f"Bearer {TOKEN}"

    def post(self, path: str, body: Any) -> Any:
        """The answer to a request that is right; it is no output."""
        answer = self._session.post(self._url + path, json=body, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def said(self, method: str, path: str, **given: Any) -> requests.Response:
        """The answer, which is output: its headers and its body."""
        answer = self._session.request(method, self._url + path, timeout=30, **given)
        where = f"{method} {path.partition('?')[0]} ({answer.status_code})"
        self._output.said.append((where, f"{answer.headers} {answer.text}"))
        return answer

    def log_in(self, token: str) -> None:
        form = self._session.get(f"{self._url}/ui/login", timeout=30).text
        found = re.search(r'name="_csrf" value="([^"]+)"', form)
        assert found is not None, form[:500]
        data = {"_csrf": found[1], "token": token, "next": "/lanes"}
        here = {"origin": self._url, "sec-fetch-site": "same-origin"}
        answer = self._session.post(f"{self._url}/ui/login", data=data, headers=here, timeout=30)
        assert answer.ok, answer.text[:500]

    def ended(self, execution_id: str) -> None:
        path = f"/v1/executions/{quote(execution_id)}/outcome"
        until = time.monotonic() + _WITHIN
        while time.monotonic() < until:
            found = self._session.get(self._url + path, params={"wait": 5}, timeout=30)
            if found.status_code == 200:
                return
        raise TimeoutError(execution_id)


def _wrong_requests(caller: Caller, held: dict[str, Any], waitpoint: dict[str, Any]) -> None:
    """Requests that are refused, with each secret where somebody may put it by mistake."""
    body = {"execution_kind": "job", "input": PAYLOAD}
    caller.said("POST", "/v1/executions", json={**body, "priority": PAYLOAD})
    caller.said("POST", "/v1/executions", json={**body, "inputs": PAYLOAD})
    caller.said("POST", "/v1/executions", json={**body, "execution_kind": "a\nb"})
    caller.said(
        "POST",
        "/v1/executions",
        data=f'{{"input": "{PAYLOAD}", ',
        headers={"content-type": "application/json"},
    )
    caller.said("POST", "/v1/executions", data=PAYLOAD, headers={"content-type": "text/plain"})
    completion = {"handle": held["handle"], "result": PAYLOAD, "results": 1}
    caller.said("POST", "/v1/work/complete", json={"completions": [completion]})
    for path in (
        f"/v1/executions?token={TOKEN}",
        f"/v1/executions?access_token={TOKEN}",
        f"/v1/executions/{quote(held['execution_id'])}?token={TOKEN}",
    ):
        caller.said("GET", path)
    for header in (f"Basic {TOKEN}", f"Bearer x{TOKEN}", f"{TOKEN}", f"bearer {TOKEN} {TOKEN}"):
        caller.said("GET", "/v1/whoami", headers={"authorization": header})
    rotation = {"new_kid": "canary", "new_secret_hex": SECRET[:-2] + "00"}
    caller.said("POST", "/v1/keys/rotate", json=rotation)
    caller.said("POST", "/v1/keys/rotate", json={**rotation, "secret": SECRET})
    caller.said("POST", "/v1/keys/rotate", json={"new_kid": "b", "new_secret_hex": SECRET + "zz"})
    path = f"/v1/executions/{quote(held['execution_id'])}/waitpoints/{waitpoint['waitpoint_id']}"
    token = waitpoint["token"]
    signal = {"signal_name": "go", "waitpoint_token": token, "payload": PAYLOAD}
    caller.said("POST", f"{path}/signals", json={**signal, "signal_names": token})
    caller.said("POST", f"{path}/signals", json={**signal, "waitpoint_token": f"{token}0"})
    elsewhere = f"/v1/callbacks/{quote(held['execution_id'])}/{uuid4()}"
    caller.said("POST", f"{elsewhere}?token={token}", json={"text": PAYLOAD})
    caller.said("POST", f"{elsewhere}/question?token={token}")


async def _of_objects(dsn: str, url: str, token: str, output: Output) -> None:
    """What objects with secrets say of themselves, and errors of connections that fail."""
    parts = urlsplit(dsn)
    nowhere = urlunsplit(parts._replace(path="/nowhere"))
    shown: list[object] = [
        DatabaseConfig(dsn=dsn),
        Settings(listen="127.0.0.1:0", api_tokens=(TOKEN,)),
        WaitpointToken(token),
    ]
    async with await Client.connect(dsn) as client:
        shown += [client, client.engine]
    async with await Client.connect(url, token=TOKEN) as remote:
        shown += [remote, remote.engine]
        with contextlib.suppress(Exception):
            await remote.handle(PAYLOAD).describe()
    wrong: list[tuple[str, dict[str, Any]]] = [(nowhere, {}), (url, {"token": TOKEN + "x"})]
    for where, options in wrong:
        try:
            async with await Client.connect(where, **options) as other:
                await other.admin.list_workers()
        except Exception as error:
            chain: BaseException | None = error
            while chain is not None:
                output.said.append((f"{type(chain).__name__}", f"{chain} {chain!r}"))
                chain = chain.__cause__ or chain.__context__
    output.said += [(f"repr of {type(each).__name__}", f"{each!r} {each}") for each in shown]


async def _rows(dsn: str, output: Output) -> None:
    """What stays in tables that people read: events, failures, workers."""
    conn = await asyncpg.connect(dsn)
    try:
        for table in (
            *("operator_event", "completion_event", "lease_event", "signal_event"),
            *("worker_registry_event", "worker_registry", "attempt", "bulk_action"),
        ):
            rows = await conn.fetch(f"SELECT t::text AS row FROM ff.{table} t")
            output.said.append((f"table {table}", "\n".join(each["row"] for each in rows)))
    finally:
        await conn.close()


def _with_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0] or "postgres"
    return urlunsplit(parts._replace(netloc=f"{name}:{PASSWORD}@{host}"))


def run(arena: Arena) -> Sequence[Figure]:
    """Everything that was said, searched for every marker."""
    output, markers = Output(), {"password": PASSWORD, "token": TOKEN, "payload": PAYLOAD}
    markers["secret"] = SECRET
    with tempfile.TemporaryDirectory() as directory, arena.database() as plain:
        dsn = _with_password(plain)
        logs = [Path(directory, name) for name in ("server.log", "worker.log")]
        more = {"FF_API_TOKEN": TOKEN, "FF_LOG_FORMAT": "json"}
        more["FF_LOG"] = "debug"
        with server(dsn, logs[0], **more) as url, _worker(dsn, logs[1]):
            caller = Caller(url, output)
            caller.post("/v1/keys/rotate", {"new_kid": "canary", "new_secret_hex": SECRET})
            made = [
                caller.post("/v1/executions", {"execution_kind": kind, "input": {name: PAYLOAD}})
                for kind, name in (("typed", "number"), ("fails", "text"), ("steps", "text"))
            ]
            for each in made:
                caller.ended(each["execution_id"])
            waits = caller.post("/v1/executions", {"execution_kind": "held", "input": PAYLOAD})
            worker = {"worker_id": "w", "worker_instance_id": "w", "kinds": ["held"]}
            [claimed] = caller.post("/v1/work/claim", worker)["executions"]
            held = {**claimed, "execution_id": waits["execution_id"]}
            waitpoint = caller.post(
                "/v1/work/waitpoints",
                {"handle": held["handle"], "waitpoint_key": "a", "expires_in": 600},
            )
            markers["waitpoint token"] = waitpoint["token"].partition(":")[2]
            _wrong_requests(caller, held, waitpoint)
            for each in (*made, held):
                path = f"/v1/executions/{quote(each['execution_id'])}"
                for part in ("", "/state", "/explanation", "/attempts", "/history", "/waitpoints"):
                    caller.said("GET", path + part)
            for path in _LISTS:
                caller.said("GET", path)
            # People whose token shows payloads are shown them where they decide something.
            hiding = {"label": "people", "role": "admin", "hide_payloads": True}
            markers["token of people"] = caller.post("/v1/tokens", hiding)["token"]
            caller.log_in(markers["token of people"])
            for path in _PAGES:
                caller.said("GET", f"/ui{path}")
            asyncio.run(_of_objects(dsn, url, waitpoint["token"], output))
        asyncio.run(_rows(plain, output))
        told = {each.name: each.read_text() for each in logs}
        assert "failed with 1 payloads" in told["worker.log"], "failures are told"
        assert "/v1/executions" in told["server.log"], "requests are told"
        output.said += told.items()
    hits = output.hits(markers)
    size = sum(len(text) for _, text in output.said)
    return [
        Figure(
            "S11",
            f"secrets and payloads in {len(output.said)} outputs ({size:,} characters)",
            f"{hits.total()} {dict(hits) or ''}".strip(),
            "0",
            held=not hits,
        )
    ]


CANARY: Final = Proof("canary", quick=run, full=run, claims=("S11",))
