"""The search box: an id, a key, a name or a query; one exact hit is opened at once."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.api.leaves import parse_execution_id
from flowfabric.dashboard.answers import Answer, PageAnswer, Redirect
from flowfabric.dashboard.pages.filters import parse_query
from flowfabric.dashboard.pages.lanes import live_workers
from flowfabric.dashboard.table import screen
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.search import Search
from flowfabric.errors import EngineError
from flowfabric.ids import ExecutionId

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found."""

    what: str
    name: str
    href: str
    more: str = ""


async def search(visit: Visit) -> Answer:
    """What the text names; the page of it if that is one thing."""
    text = visit.query("q")
    query = parse_query(text)
    if query is not None:
        parameters: dict[str, Any] = dict(query)
        return Redirect(to=visit.url("/executions", **parameters))
    hits = await _hits(visit, text) if text else []
    if len(hits) == 1:
        return Redirect(to=hits[0].href)
    values = {"hits": hits, "text": text}
    return PageAnswer(template="search.html", title="Search", section="search", values=values)


async def _hits(visit: Visit, text: str) -> list[Hit]:
    hits: list[Hit] = []
    uuid = UUID(text) if _UUID.fullmatch(text) else None
    found = _execution_id(text)
    if found is None and uuid is not None:
        found = await visit.engine.find_execution(uuid, namespace=visit.namespace)
    if found is not None and await _is_seen(visit, found):
        href = visit.url(f"/executions/{found.partition_key}.{found.uuid}")
        hits.append(Hit(what="execution", name=str(found), href=href))
    if uuid is not None:
        namespace = await visit.engine.get_flow_namespace(uuid)
        if namespace is not None and visit.sees(namespace):
            hits.append(Hit(what="flow", name=str(uuid), href=visit.url(f"/flows/{uuid}")))
    if uuid is None and found is None:
        hits += await _named(visit, text)
    return hits


def _execution_id(text: str) -> ExecutionId | None:
    try:
        return parse_execution_id(text)
    except EngineError:
        return None


async def _is_seen(visit: Visit, found: ExecutionId) -> bool:
    if found.partition_key >= visit.engine.partitions:
        return False
    namespaces = await visit.engine.read_namespaces([found])
    return found in namespaces and visit.sees(namespaces[found])


async def _named(visit: Visit, text: str) -> list[Hit]:
    """Keys, lanes and kinds of this name."""
    hits: list[Hit] = []
    for namespace in (await visit.namespaces())[:50]:
        try:
            found = await visit.engine.locate_execution_by_key(namespace, text)
        except EngineError:
            return hits
        if found is not None:
            href = visit.url(f"/executions/{found.partition_key}.{found.uuid}")
            hits.append(Hit(what="key", name=text, href=href, more=f"in namespace {namespace}"))
    lanes = {each.lane_id for each in await visit.engine.count_by_lane()}
    if text in lanes:
        hits.append(Hit(what="lane", name=text, href=visit.url(f"/lanes/{text}")))
    workers = await live_workers(visit)
    if any(text in each.kinds for each in workers) or await _is_kind(visit, text):
        hits.append(Hit(what="kind", name=text, href=visit.url("/executions", kind=text)))
    hits += [
        Hit(what="worker", name=text, href=visit.url(f"/workers/{text}"))
        for each in workers
        if each.worker_instance_id == text
    ]
    near = sorted({each for w in workers for each in w.kinds if text.lower() in each.lower()})
    hits += [
        Hit(what="kind", name=each, href=visit.url("/executions", kind=each))
        for each in near
        if each != text
    ]
    return hits


async def _is_kind(visit: Visit, text: str) -> bool:
    """Is there an execution of this kind, whether or not a worker serves it?"""
    wanted = Search(namespace=visit.namespace, execution_kinds=(text,))
    return (await visit.engine.count_matching(wanted, at_most=1)).count > 0


ROUTES: Final = (screen("/search", search),)
