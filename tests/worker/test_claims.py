"""When a lease is counted from, and which claims may have got something without an answer."""

import asyncio
import time

import pytest

from flowfabric import Client
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.worker.claims import Claims
from flowfabric.worker.running_attempt import HeldLeases
from flowfabric.worker.threads import HandlerThreads
from flowfabric.worker.unanswered_claims import UnansweredClaims
from tests import given
from tests.worker.facts import eventually
from tests.worker.proxy import Proxy

pytestmark = pytest.mark.direct("claims on a pool")


def claims_with(unanswered: UnansweredClaims, held: HeldLeases, stopping: asyncio.Event) -> Claims:
    return Claims(
        given.WORKER,
        lease_ttl=30,
        held_leases=held,
        unanswered=unanswered,
        threads=HandlerThreads(1),
        stopping=stopping,
    )


def unanswered_claims(held: HeldLeases) -> UnansweredClaims:
    return UnansweredClaims("w-1", held, lease_ttl=30, running_for=30)


async def test_a_lease_counts_from_the_sending_of_its_claim_not_from_the_wait_for_a_connection(
    ff_dsn: str, db: Connection
) -> None:
    await given.created(db)
    held = HeldLeases()
    claims = claims_with(unanswered_claims(held), held, asyncio.Event())

    async with await Client.connect(ff_dsn, pool_size=1) as client:
        async with on_database(client.engine).pool.connection():
            claiming = asyncio.create_task(claims.claim(client.engine, 1))
            await asyncio.sleep(0.05)
            assert not claiming.done()
            released_at = time.monotonic()
        [attempt] = await claiming

    assert attempt.claimed_at >= released_at


async def test_a_claim_that_was_never_sent_is_not_asked_for(ff_dsn: str, db: Connection) -> None:
    held, stopping = HeldLeases(), asyncio.Event()
    unanswered = unanswered_claims(held)
    claims = claims_with(unanswered, held, stopping)

    async with Proxy.to(ff_dsn) as proxy, await Client.connect(proxy.dsn, pool_size=1) as client:
        proxy.cut()
        claiming = asyncio.create_task(claims.claim(client.engine, 1))
        await eventually(lambda: proxy.held_up >= 2)
        stopping.set()
        assert await claiming == []

    assert len(unanswered._sent_at) <= 1  # the first went to a connection that was open
