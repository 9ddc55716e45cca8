"""`ff flows`: list, show, graph, cancel and replay graphs of executions."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.client.identity import user_at_host
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.submission import NewFlow
from flowfabric.joins import AnyOf, Quorum
from tests import given
from tests.cli.conftest import Inside, Shell, one_line, usage_error
from tests.engine.controls import Action, actions
from tests.engine.flows.graphs import Graph, member, submitted
from tests.engine.joins.parents import Family
from tests.worker.facts import database_time, eventually, has_asked

DIAMOND = "a>b a>c b>d c>d"
NOBODY = "00000000-0000-4000-8000-000000000000"


async def of(ff_engine: Engine, namespace: str, **fields: Any) -> UUID:
    """A flow of one member in a namespace."""
    flow_id = uuid4()
    only = member(flow_id, "only", namespace=namespace)
    flow = NewFlow(
        flow_id=flow_id, flow_kind="pipeline", namespace=namespace, members=[only], **fields
    )
    await ff_engine.submit_flow(flow)
    return flow_id


# List.


async def test_without_flows_the_list_says_so(ff: Inside) -> None:
    assert (await ff("flows", "list")).out == "No flows.\n"
    assert (await ff("flows", "list", "--json")).json == {"flows": [], "next_cursor": None}


async def test_flows_are_listed_with_where_they_stand(ff: Inside, ff_engine: Engine) -> None:
    runs, done, lost, ended = [await submitted(ff_engine, "a>b") for _ in range(4)]
    await runs.claim("a")
    await done.complete("a")
    await done.carry_all()
    await done.complete("b")
    await lost.fail("a")
    await lost.carry_all()
    await ended.engine.cancel_flow(ended.flow_id)

    heading, *lines = (await ff("flows", "list")).out.splitlines()

    assert heading.split() == ["flow_id", "flow_kind", "status", "node_count", "created_at"]
    assert {line.split()[0]: line.split()[1:4] for line in lines} == {
        str(runs.flow_id): ["pipeline", "active", "2"],
        str(done.flow_id): ["pipeline", "completed", "2"],
        str(lost.flow_id): ["pipeline", "failed", "2"],
        str(ended.flow_id): ["pipeline", "cancelled", "2"],
    }

    first = (await ff("flows", "list", "--state", "failed", "--limit", "1", "--json")).json
    before = f"0/{lost.flow_id}"
    none = (await ff("flows", "list", "--state", "failed", "--cursor", before)).out
    assert [each["flow_id"] for each in first["flows"]] == [str(lost.flow_id)]
    assert (first["next_cursor"], none) == (None, "No flows.\n")


async def test_the_list_goes_on_where_the_last_page_ended(ff: Inside, ff_engine: Engine) -> None:
    made = [(await submitted(ff_engine, "a")).flow_id for _ in range(5)]
    cursors: list[str] = []
    found: list[str] = []
    cursor: list[str] = []

    while True:
        page = (await ff("flows", "list", "--limit", "2", "--json", *cursor)).json
        found += [flow["flow_id"] for flow in page["flows"]]
        if page["next_cursor"] is None:
            break
        cursors.append(page["next_cursor"])
        cursor = ["--cursor", cursors[-1]]

    assert sorted(found) == sorted(map(str, made))
    first = (await ff("flows", "list", "--limit", "2")).out.splitlines()
    assert first[-1] == f"More: --cursor {cursors[0]}"
    whole = (await ff("flows", "list", "--limit", "5")).out
    assert "More" not in whole


async def test_only_of_a_namespace(ff: Inside, ff_engine: Engine) -> None:
    ours, _ = await of(ff_engine, "acme"), await of(ff_engine, "other")

    answer = await ff("flows", "list", "--namespace", "acme", "--json")

    [flow] = answer.json["flows"]
    assert (flow["flow_id"], flow["namespace"], flow["status"]) == (str(ours), "acme", "active")
    assert flow["node_count"] == 1
    assert (await ff("flows", "list", "--namespace", "nobody")).out == "No flows.\n"


async def test_what_cannot_be_listed_is_named(ff: Inside, ff_alone: Inside) -> None:
    assert "cursor: 'x'" in one_line(await ff("flows", "list", "--cursor", "x"), 2)
    for limit in ("0", "1001", "x"):
        assert "--limit" in usage_error(await ff_alone("flows", "list", "--limit", limit))


# Show.


async def test_a_flow_is_a_tree_of_what_waits_for_what(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, DIAMOND, policies={"d": Quorum(1, "let_run")})
    await flow.complete("a")
    await flow.carry_all()
    await flow.claim("b")

    root, *lines = (await ff("flows", "show", str(flow.flow_id))).out.splitlines()

    assert root == "pipeline running  1 completed, 1 active, 1 waiting, 1 waiting_children"
    depth = {re.sub(r"^[\s│├└─]+", "", line): re.search(r"\w", line) for line in lines}
    assert sorted(depth) == [
        "a completed",
        "b active",
        "c waiting",
        next(line for line in depth if line.startswith("d waiting_children (0 of 1 done, quorum")),
    ]
    last = sorted(depth)[-1]
    assert re.fullmatch(r"d waiting_children \(0 of 1 done, quorum 1\) \(also after [bc]\)", last)
    places = [found.start() for found in map(depth.get, sorted(depth)) if found]
    assert places == [4, 8, 8, 12]


@pytest.mark.parametrize("won", ["fast", "lazy"])
async def test_a_member_stands_below_the_upstream_that_decided(
    ff: Inside, ff_engine: Engine, won: str
) -> None:
    flow = await submitted(ff_engine, "fast>ship lazy>ship", policies={"ship": AnyOf()})
    await flow.complete(won)
    await flow.carry_all()

    lines = (await ff("flows", "show", str(flow.flow_id))).out.splitlines()

    [above] = [index for index, line in enumerate(lines) if f" {won} completed" in line]
    other = "lazy" if won == "fast" else "fast"
    assert re.search(rf"ship waiting .*\(also after {other}\)", lines[above + 1])


async def test_reasons_stand_beside_those_that_ended_badly(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.fail("a")
    await flow.carry_all()

    out = (await ff("flows", "show", str(flow.flow_id))).out

    assert "pipeline failed  1 failed, 1 skipped" in out
    assert "a failed boom" in out
    assert "b skipped dependency_impossible" in out


async def test_names_and_reasons_are_shown_as_they_are(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "[red]a[/red]>b[/]")
    await flow.cancel("[red]a[/red]")
    await ff_engine.cancel_flow(flow.flow_id, reason="[bold]no[/bold] \\[x]")

    answer = await ff("flows", "show", str(flow.flow_id))

    assert answer.code == 0, answer.err
    assert "[red]a[/red] cancelled not wanted" in answer.out
    assert re.search(r"b\[/\] cancelled .*\[bold\]no\[/bold\]", answer.out)
    assert answer.out.splitlines()[-1].startswith("cancelled ")
    assert ": [bold]no[/bold] \\[x]" in answer.out.splitlines()[-1]


async def test_everything_for_programs(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, DIAMOND, policies={"d": AnyOf()})
    await flow.complete("a")
    await flow.carry_all()

    shown = (await ff("flows", "show", str(flow.flow_id), "--json")).json

    assert (shown["flow_id"], shown["flow_kind"]) == (str(flow.flow_id), "pipeline")
    assert (shown["derived_state"], shown["node_count"], shown["edge_count"]) == ("blocked", 4, 4)
    states = {each["name"]: each["public_state"] for each in shown["members"]}
    assert states == {"a": "completed", "b": "waiting", "c": "waiting", "d": "waiting_children"}
    names = {each["execution_id"]: each["name"] for each in shown["members"]}
    arrows = {f"{names[e['upstream']]}>{names[e['downstream']]}" for e in shown["edges"]}
    assert arrows == set(DIAMOND.split())
    assert Counter(edge["resolution"] for edge in shown["edges"]) == {
        "satisfied": 2,
        "unresolved": 2,
    }
    [group] = [each for each in shown["edge_groups"] if each["total_deps"] == 2]
    assert names[group["downstream_execution_id"]] == "d"


async def test_a_large_flow_is_cut_and_for_programs_whole(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, " ".join(f"a>m{number}" for number in range(1200)))

    out = (await ff("flows", "show", str(flow.flow_id))).out
    shown = (await ff("flows", "show", str(flow.flow_id), "--json")).json

    assert out.count("waiting_children (") == 199
    assert "… and 1001 more" in out
    assert (len(shown["members"]), len(shown["edges"])) == (1201, 1200)


@pytest.mark.parametrize("command", ["show", "graph", "cancel", "replay"])
async def test_a_flow_that_is_unknown_or_cannot_be_is_named(
    ff: Inside, ff_alone: Inside, command: str
) -> None:
    unknown = one_line(await ff("flows", command, NOBODY))
    malformed = one_line(await ff("flows", command, "release"), 2)
    execution = one_line(await ff("flows", command, "{fp:1}:" + NOBODY), 2)
    missing = usage_error(await ff_alone("flows", command))

    assert unknown == f"ff: flow {NOBODY} does not exist"
    assert "FLOW: 'release'" in malformed
    assert "FLOW: '{fp:1}" in execution
    assert "Missing argument 'FLOW'" in missing


async def test_following_an_unknown_flow_ends_at_once(ff: Inside) -> None:
    line = one_line(await ff("flows", "show", NOBODY, "--follow"))

    assert line == f"ff: flow {NOBODY} does not exist"


async def test_following_ends_when_the_flow_has_ended(
    shell: Shell, ff_engine: Engine, db: Connection
) -> None:
    flow = await submitted(ff_engine, "a>b")
    following = await shell.start("flows", "show", str(flow.flow_id), "--follow")
    try:
        for _ in range(2):  # it has looked, and it looks again
            since = await database_time(db)
            await eventually(lambda since=since: has_asked(db, "flows.list_edges", since))
        early = following.returncode
        await flow.complete("a")
        await flow.carry_all()
        await flow.complete("b")
        out, err = await asyncio.wait_for(following.communicate(), 30)
    finally:
        if following.returncode is None:
            following.kill()
            await following.wait()

    assert early is None
    assert (following.returncode, err) == (0, b"")
    assert "pipeline completed" in out.decode()
    assert "b completed" in out.decode()


async def test_following_a_flow_that_has_ended_shows_it_and_ends(
    ff: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")

    answer = await ff("flows", "show", str(flow.flow_id), "--follow")

    assert answer.code == 0
    assert "a completed" in answer.out


# Graph.

NODE = re.compile(r'  (n\d+)\["([^"<>]*)<br/>(\w+)"\]')
STYLE = re.compile(r"  style (n\d+) fill:#[0-9a-f]{6}")


async def test_mermaid_has_every_member_edge_policy_and_colour(
    ff: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, DIAMOND, policies={"d": Quorum(2)})
    await flow.complete("a")
    await flow.carry_all()
    await flow.fail("b")

    first, *lines = (await ff("flows", "graph", str(flow.flow_id))).out.splitlines()

    assert first == "graph LR"
    nodes = {found[1]: found for line in lines if (found := NODE.fullmatch(line))}
    names = {number: found[2] for number, found in nodes.items()}
    assert {found[2]: found[3] for found in nodes.values()} == {
        "a": "completed",
        "b": "failed",
        "c": "waiting",
        "d": "waiting_children",
    }
    links = {
        f"{names[up]}>{names[down]}": label
        for line in lines
        for up, label, down in re.findall(r"^  (n\d+) --(?: ([\w ]+) --)?> (n\d+)$", line)
    }
    assert links == {"a>b": "", "a>c": "", "b>d": "quorum 2", "c>d": "quorum 2"}
    coloured = {names[found[1]] for line in lines if (found := STYLE.fullmatch(line))}
    assert coloured == {"a", "b"}
    assert len(lines) == 4 + 4 + 2


async def test_dot_has_every_member_and_edge(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, DIAMOND)

    answer = await ff("flows", "graph", str(flow.flow_id), "--format", "dot")

    first, _, *lines, last = answer.out.splitlines()
    assert (first, last) == ("digraph flow {", "}")
    nodes = dict(
        re.findall(
            r'^  (n\d+) \[label="(\w)\\n\w+", fillcolor="[#\w]+"\];$', "\n".join(lines), re.M
        )
    )
    links = re.findall(r"^  (n\d+) -> (n\d+);$", "\n".join(lines), re.M)
    assert sorted(nodes.values()) == ["a", "b", "c", "d"]
    assert {f"{nodes[up]}>{nodes[down]}" for up, down in links} == set(DIAMOND.split())
    assert len(lines) == 8


AWKWARD = 'x"]\n;--<b>{é}|#\\'


@pytest.mark.parametrize("language", ["mermaid", "dot"])
async def test_names_cannot_break_out_of_the_picture(
    ff: Inside, ff_engine: Engine, db: Connection, language: str
) -> None:
    flow_id = uuid4()
    only = member(flow_id, "given")
    await ff_engine.submit_flow(NewFlow(flow_id=flow_id, flow_kind="odd", members=[only]))
    await db.execute("UPDATE ff.exec_body SET member_name = $1", AWKWARD)  # by another writer

    answer = await ff("flows", "graph", str(flow_id), "--format", language, "--json")

    assert (answer.json["flow_id"], answer.json["format"]) == (str(flow_id), language)
    text = answer.json["graph"]
    assert len(text.splitlines()) == (2 if language == "mermaid" else 4)
    assert "x____--_b__é____" in text
    [label] = re.findall(r'"(x[^"]*)"', text)
    assert re.fullmatch(r"[\w\-]+(<br/>|\\n)waiting", label)


async def test_a_language_that_nobody_draws_is_refused(ff_alone: Inside) -> None:
    said = usage_error(await ff_alone("flows", "graph", NOBODY, "--format", "svg"))

    assert "'svg' is not one of 'mermaid', 'dot'" in said


# Cancel.


async def test_without_a_terminal_nothing_is_cancelled_unless_told_to(
    ff: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    await flow.complete("a")

    line = one_line(await ff("flows", "cancel", str(flow.flow_id)))

    assert line == (
        "ff: cancel flow 'pipeline' (cancel_all)? 2 of its 3 members have not ended. "
        "Nothing was done: give --yes to do it without being asked."
    )
    assert (await flow.flow())["public_flow_state"] == "open"


POLICIES = {
    "cancel_all": "a:ok b:c c:c d:c",
    "cancel_pending": "a:ok b:a c:c d:c",
    "cancel_flow_only": "a:ok b:a c:w d:wc",
}


@pytest.mark.parametrize(("policy", "states"), POLICIES.items())
async def test_a_policy_says_who_ends(
    ff: Inside, ff_engine: Engine, db: Connection, policy: str, states: str
) -> None:
    flow = await submitted(ff_engine, DIAMOND)
    await flow.complete("a")
    await flow.carry_all()
    await flow.claim("b")

    answer = await ff(
        "flows", "cancel", str(flow.flow_id), "--policy", policy, "--reason", "no [1]", "--yes"
    )

    ended = states.count(":c")
    assert (answer.code, answer.out) == (0, f"cancelled {flow.flow_id}: {ended} members\n")
    assert await flow.states() == states
    details = {
        "flow_id": str(flow.flow_id),
        "cancellation_policy": policy,
        "member_count": ended,
    }
    assert await actions(db) == [Action("flow_cancel_requested", user_at_host(), "no [1]", details)]
    await flow.carry_all()


async def test_the_same_cancel_for_programs(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")

    answer = await ff("flows", "cancel", str(flow.flow_id), "-y", "--json")

    assert answer.json["flow_id"] == str(flow.flow_id)
    assert answer.json["cancellation_policy"] == "cancel_all"
    assert sorted(answer.json["member_execution_ids"]) == sorted(map(str, flow.ids.values()))
    stored = await flow.flow()
    assert (stored["public_flow_state"], stored["cancel_reason"]) == (
        "cancelled",
        "cancelled with ff",
    )
    await flow.carry_all()


async def test_cancelling_twice_keeps_the_first_reason(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await ff("flows", "cancel", str(flow.flow_id), "--reason", "first", "-y")

    second = ("--reason", "second", "--policy", "cancel_pending")
    again = await ff("flows", "cancel", str(flow.flow_id), *second, "-y", "--json")

    assert again.code == 0
    assert again.json["stored_cancel_reason"] == "first"
    assert again.json["stored_cancellation_policy"] == "cancel_all"
    await flow.carry_all()


async def test_a_policy_that_is_none_and_a_reason_that_is_too_long_are_refused(
    ff: Inside, ff_alone: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a")

    unknown = usage_error(await ff_alone("flows", "cancel", NOBODY, "--policy", "all"))
    long = one_line(
        await ff("flows", "cancel", str(flow.flow_id), "--reason", "x" * 16385, "-y"), 2
    )

    assert "ff: --policy: 'all' is not one of" in unknown
    assert "--reason: " in long
    assert await flow.states() == "a:w"


# How a flow is laid out.


def chain(members: int) -> str:
    names = [f"m{number:02}" for number in range(members)]
    return " ".join(f"{up}>{down}" for up, down in pairwise(names))


async def test_a_long_chain_can_be_read_in_a_narrow_terminal(ff: Inside, ff_engine: Engine) -> None:
    flow: Graph = await submitted(ff_engine, chain(40))

    _, *lines = (await ff("flows", "show", str(flow.flow_id), COLUMNS="80")).out.splitlines()

    assert [line[4 if number == 0 else 6 :].split()[0] for number, line in enumerate(lines)] == [
        f"m{number:02}" for number in range(40)
    ]
    assert lines[0] == "└── m00 waiting"
    assert set(lines[1:]) == {
        f"    ↳ m{number:02} waiting_children (0 of 1 done, all of)" for number in range(1, 40)
    }


async def test_what_branches_begins_anew_below_the_end_of_a_chain(
    ff: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b b>c b>d c>e")
    await flow.cancel("c", "d")
    await flow.carry_all()

    out = (await ff("flows", "show", str(flow.flow_id))).out

    below = [
        "    ├── c cancelled not wanted",
        "    │   ↳ e skipped dependency_impossible",
        "    └── d cancelled not wanted",
    ]
    other = [
        "    ├── d cancelled not wanted",
        "    └── c cancelled not wanted",
        "        ↳ e skipped dependency_impossible",
    ]
    _, first, second, *rest = out.splitlines()
    assert (first, second) == (
        "└── a waiting",
        "    ↳ b waiting_children (0 of 1 done, all of)",
    )
    assert rest in (below, other)


async def test_deeper_than_there_is_room_for_a_member_names_whom_it_comes_after(
    ff: Inside, ff_engine: Engine
) -> None:
    names = [f"m{number:02}" for number in range(30)]
    ladder = " ".join(f"{up}>{down} {up}>x{down}" for up, down in pairwise(names))
    flow = await submitted(ff_engine, ladder)

    out = (await ff("flows", "show", str(flow.flow_id), COLUMNS="80")).out

    lines = {re.split(r"[─ ]+", line.strip("│├└─ "))[0]: line for line in out.splitlines()[1:]}
    assert set(lines) == {*names, *(f"x{name}" for name in names[1:])}
    assert max(line.index("m") for line in lines.values()) < 40
    assert "(after" not in lines["m07"]
    assert lines["m08"].endswith("(after m07)")
    assert lines["xm29"].endswith("(after m28)")


async def test_a_parent_is_shown_with_its_children(
    ff: Inside, ff_engine: Engine, db: Connection
) -> None:
    family = Family(ff_engine, await given.claimed(db))
    await family.spawn("abc", policy=AnyOf())
    await family.put_down()

    _, parent, *children = (await ff("flows", "show", str(family.flow_id))).out.splitlines()
    drawn = (await ff("flows", "graph", str(family.flow_id))).out
    shown = (await ff("flows", "show", str(family.flow_id), "--json")).json

    assert parent == "└── job waiting_children (0 of 1 done, any of)"
    assert [line.strip("│├└─ ") for line in children] == ["child waiting"] * 3
    [job] = re.findall(r"(n\d+)\[\"job", drawn)
    assert sorted(re.findall(r"(n\d+) -- any of --> (n\d+)", drawn)) == [
        (each, job) for each in sorted(re.findall(r"(n\d+)\[\"child", drawn))
    ]
    [group] = shown["edge_groups"]
    assert group["downstream_execution_id"] == str(family.parent)
    assert group["waits_as"] == "children"


async def test_an_only_child_stands_below_its_parent_and_not_after_it(
    ff: Inside, ff_engine: Engine, db: Connection
) -> None:
    family = Family(ff_engine, await given.claimed(db))
    await family.spawn("a")
    await family.complete("a")
    await family.settle()
    await family.complete("p")

    _, *lines = (await ff("flows", "show", str(family.flow_id))).out.splitlines()

    assert lines == ["└── job completed", "    └── child completed"]


# Words.


async def test_cancelling_twice_says_that_it_was_cancelled_before(
    ff: Inside, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b")
    await ff("flows", "cancel", str(flow.flow_id), "-y")
    await flow.carry_all()

    again = await ff("flows", "cancel", str(flow.flow_id), "-y")

    assert "already" in again.out


async def test_one_is_not_many(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")

    answer = await ff("flows", "cancel", str(flow.flow_id), "-y")

    assert answer.out == f"cancelled {flow.flow_id}: 1 member\n"


async def test_one_that_has_ended_waits_for_nothing(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.cancel("b")

    out = (await ff("flows", "show", str(flow.flow_id))).out

    assert "b cancelled not wanted" in out


# Replay.


async def test_a_preview_lists_what_a_replay_then_does(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    await flow.fail("a")
    await flow.carry_all()
    flow_id = str(flow.flow_id)

    preview = (await ff("flows", "replay", flow_id, "--preview")).out.splitlines()
    assert await flow.states() == "a:f b:k c:k"
    done = (await ff("flows", "replay", flow_id, "--reason", "mended")).out.splitlines()
    again = (await ff("flows", "replay", flow_id)).out

    assert preview[0] == f"would replay {flow_id}: 1 member runs again, 2 wait"
    assert preview[1] == f"  runs again: a failed {flow['a']} boom"
    assert [line.split(" {")[0] for line in preview[2:]] == [
        "  waits again: b skipped",
        "  waits again: c skipped",
    ]
    assert done == [f"replayed {flow_id}: 1 member runs again, 2 wait", *preview[1:]]
    assert again == f"nothing to replay: {flow_id}\n"
    assert await flow.states() == "a:w b:wc c:wc"


async def test_the_same_replay_for_programs(ff: Inside, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.fail("a")
    await flow.carry_all()

    answer = (await ff("flows", "replay", str(flow.flow_id), "--preview", "--json")).json

    assert (answer["flow_id"], answer["preview"], answer["stay"]) == (str(flow.flow_id), True, [])
    assert [each["name"] for each in answer["run_again"]] == ["a"]
    assert [each["public_state"] for each in answer["wait_again"]] == ["skipped"]


@pytest.mark.parametrize(("flags", "states"), [([], "a:w b:wc"), (["--no-downstream"], "a:w b:k")])
async def test_a_replay_of_a_member_takes_what_was_skipped_with_it_or_not(
    ff: Inside, ff_engine: Engine, flags: list[str], states: str
) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.fail("a")
    await flow.carry_all()

    await ff("executions", "replay", str(flow["a"]), *flags)

    assert await flow.states() == states
