"""The page of an execution: what to do about it, its attempts, signals, budgets and policy."""

from __future__ import annotations

import html
import re
import shlex

from flowfabric import Engine
from flowfabric.conditions import OperatorOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import NonDeterministicReplay
from flowfabric.server.app import Application
from flowfabric.states import DIVERGENCE, LaneState, Role, SuspensionReason
from tests import given
from tests.dashboard.busy import Busy
from tests.dashboard.conftest import Person, browser
from tests.engine.joins import parents


async def test_the_page_says_what_was_agreed_spent_and_sent(
    served: Application, busy: Busy, ff_engine: Engine, person: Person
) -> None:
    deep = b'{"a": {"b": {"c": {"d": [1, 2, 3]}}}, "note": "it\'s"}'
    [made] = await ff_engine.create_execution(
        [given.new(execution_kind="deep", input_payload=deep, payload_encoding="json")]
    )
    async with browser(served) as admin:
        page = (await admin.get(busy.path("completed"))).text
        assert "1 retry, 10 ms to 1 m apart" in page
        assert "850 tokens by this execution" in page
        assert f'href="/ui/budgets/{busy.budget}"' in page

        path = f"/executions/{made.execution_id.partition_key}.{made.execution_id.uuid}"
        page = (await admin.get(path)).text
        assert "3 items" in page
        [command] = [
            html.unescape(each.partition('"')[0])
            for each in page.split('data-copy="')
            if each.startswith("ff submit")
        ]
        assert shlex.split(command)[:4] == ["ff", "submit", "deep", deep.decode()]
        assert "ff submit" not in (await admin.get(busy.path("completed"))).text  # a secret

        answer = f"{busy.path('approval').replace('executions', 'approvals')}/{busy.waitpoint}"
        page = (await admin.get(busy.path("approval"))).text
        assert page.count(f'href="/ui{answer}/answer"') == 2  # beside the reason and the waitpoint
        await ff_engine.set_lane_state("idle lane", LaneState.PAUSED, actor="ann", reason="x")
        assert 'href="/ui/lanes/idle%20lane/resume' in (await admin.get(busy.path("waiting"))).text
    reader = await person(Role.READER)
    assert "/answer" not in (await reader.get(busy.path("approval"))).text
    assert "/resume" not in (await reader.get(busy.path("waiting"))).text


async def test_two_attempts_are_shown_side_by_side_and_the_story_page_by_page(
    served: Application, busy: Busy, ff_engine: Engine, person: Person
) -> None:
    failed = busy.path("failed")
    async with browser(served) as admin:
        assert (await admin.get(failed)).text.count("<title>retried after ") == 1
        assert "compare" in (await admin.get(failed)).text
        page = (await admin.get(f"{failed}?attempt=1&with=0")).text
        assert "Attempt 1 beside attempt 2" in page
        assert page.count('class="differs"') >= 2
        for query in ("with=1", "with=7", "with=x", "attempt=9&with=1"):
            assert "beside attempt" not in (await admin.get(f"{failed}?{query}")).text

        for number in range(102):
            await ff_engine.change_priority(busy.waiting, number, actor="ann", reason="again")
        page = (await admin.get(busy.path("waiting"))).text
        assert "before=3" in page
        older = (await admin.get(f"{busy.path('waiting')}?before=3")).text
        assert "submitted" in older
        assert older.count('<svg class="dot"') == 3
    blind = await person(Role.OPERATOR, label="blind", hide_payloads=True)
    page = (await blind.get(f"{failed}?attempt=1&with=0")).text
    assert "beside attempt" in page
    assert "Traceback" not in page


async def test_parents_children_and_a_journal_that_no_longer_fits_are_shown(
    served: Application, ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db, execution_kind="fan_out")
    await family.spawn("ab", execution_kind="piece")
    wrong = NonDeterministicReplay(family.parent, recorded=["read", "split"], asked=["read", "cut"])
    await ff_engine.suspend(
        [
            SuspendRequest(
                lease=family.lease,
                condition=OperatorOnly(),
                reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
                detail=f"{DIVERGENCE}{wrong}",
                keeps_waitpoints=True,
            )
        ]
    )

    def path(name: str) -> str:
        return f"/executions/{family[name].partition_key}.{family[name].uuid}"

    async with browser(served) as admin:
        page = (await admin.get(path("p"))).text
        assert page.count('<span class="sub">child</span>') == 2
        rows = re.findall(r'<tr class="differs">.*', page)
        assert len(rows) == 1
        assert "first difference" in rows[0]
        assert "<code>split</code>" in rows[0]
        assert "<code>cut</code>" in rows[0]
        child = (await admin.get(path("a"))).text
        assert f'<span class="sub">parent</span><a class="name" href="/ui{path("p")}"' in child
