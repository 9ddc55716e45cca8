"""The reference pages say what the code says: commands, errors, names, tables."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer.main

import flowfabric
from flowfabric import (
    App,
    Client,
    Engine,
    Fail,
    Flow,
    FlowHandle,
    Handle,
    Retry,
    RetryLater,
    Worker,
    errors,
    sync,
)
from flowfabric.cli.main import app as ff
from flowfabric.client.admin import Admin
from flowfabric.client.schedules import Schedules
from flowfabric.counters import COUNTERS, Distribution, EventCount, Level, ObservationCount
from flowfabric.db.rows import Connection
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.outbox import Event
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.reconcile.sweeps import SWEEPS
from tests.all_cases import all_cases
from tests.docs.pages import prose, quoted, rows, sections

CLI = "docs/reference/cli.md"
ERRORS = "docs/reference/errors.md"
PYTHON = "docs/reference/python.md"
TABLES = "docs/reference/tables.md"
METRICS = "docs/reference/metrics.md"


# Commands.


def commands(name: str, command: Any) -> dict[str, Any]:
    """Every command by the words that call it; a group without options of its own is left out."""
    found = {name: command} if command.params else {}
    for word, child in getattr(command, "commands", {}).items():
        found |= commands(f"{name} {word}", child)
    return found


COMMANDS = commands("ff", typer.main.get_command(ff))


def test_every_command_is_there_and_no_other() -> None:
    assert set(sections(CLI, 2)) == set(COMMANDS)


@all_cases("name", COMMANDS)
def test_a_command_has_the_options_that_are_written(name: str) -> None:
    options = [each for each in COMMANDS[name].params if each.param_type_name == "option"]
    spelled = [(*each.opts, *each.secondary_opts) for each in options]
    written = [
        tuple(word.split(" ")[0] for word in quoted(cell))
        for cell, _, _ in rows(sections(CLI, 2)[name])
    ]

    assert sorted(written) == sorted(spelled)


@all_cases("name", COMMANDS)
def test_an_option_has_the_default_that_is_written(name: str) -> None:
    defaults = {each.opts[0]: each.default for each in COMMANDS[name].params}

    for cell, default, _ in rows(sections(CLI, 2)[name]):
        stored = defaults[quoted(cell)[0].split(" ")[0]]
        if isinstance(stored, bool):
            assert stored is False
            assert default in ("no", "")
        elif stored is not None:
            assert default == str(stored), cell
        else:
            assert not default.replace(".", "").isdigit(), cell


@all_cases("name", COMMANDS)
def test_a_command_is_shown_with_its_arguments(name: str) -> None:
    arguments = [each for each in COMMANDS[name].params if each.param_type_name == "argument"]
    shown = {word for each in quoted(sections(CLI, 2)[name]) for word in each.split(" ")}

    for argument in arguments:
        metavar = (argument.metavar or argument.name.upper()).strip("[].")
        assert metavar in {word.strip("[].") for word in shown}


def test_the_readme_names_every_noun() -> None:
    named = {word for each in quoted(prose("README.md")) for word in each.split(" ")}

    assert {name.removeprefix("ff ").split(" ")[0] for name in COMMANDS} <= named


# Errors.


def error_classes() -> dict[str, type[errors.FlowFabricError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.FlowFabricError)
    }


def listed_errors() -> dict[str, list[str]]:
    """The rows of the table of classes, by the class."""
    listed = rows(sections(ERRORS, 2)["All classes"])
    return {quoted(cells[0])[0]: cells for cells in listed if len(cells) == 5}


ENTITIES = (
    *("execution", "attempt", "lane", "worker", "flow", "member", "edge", "join", "schedule"),
    "budget",
)
CODES_OF_INSTANCES = {
    "NotFound",
    "ValidationError",
    "InvalidToken",
    "MissingToken",
    "TokenExpired",
    "InvalidGrant",
    "Unavailable",
    "PermissionDenied",
    "NeedsDatabase",
}


def test_every_error_is_listed_with_its_code_status_and_retryability() -> None:
    written = listed_errors()
    classes = error_classes()

    assert set(written) == set(classes)
    for name, (_, code, status, retryable, _) in written.items():
        error = classes[name]
        if name not in CODES_OF_INSTANCES:
            assert quoted(code) == [error.code], name
        assert int(status) == error.http_status, name
        assert retryable == ("yes" if error.retry_class == "retryable" else "no"), name


def test_codes_that_belong_to_an_instance_are_listed() -> None:
    written = listed_errors()

    assert quoted(written["NotFound"][1]) == [
        errors.NotFound(entity, "").code for entity in ENTITIES
    ]
    for refused in (errors.InvalidToken, errors.MissingToken, errors.TokenExpired):
        assert quoted(written[refused.__name__][1]) == [refused().code]
    assert quoted(written["Unavailable"][1]) == [errors.Unavailable("", "").code]
    assert quoted(written["PermissionDenied"][1]) == [errors.PermissionDenied("", "").code]
    assert quoted(written["NeedsDatabase"][1]) == [errors.NeedsDatabase("", "").code]


@pytest.mark.parametrize("error", [errors.ValidationError, errors.InvalidGrant])
def test_every_code_of_an_instance_is_listed(error: Any) -> None:
    listed = rows(sections(ERRORS, 2)[f"Codes of {error.__name__}"])

    assert {quoted(code)[0] for code, _ in listed} == error.CODES


def test_what_an_error_catches_is_what_stands_under_it() -> None:
    everything = rows(sections(ERRORS, 2)["All classes"])
    written = {
        quoted(cells[0])[0]: set(quoted(cells[1])) for cells in everything if len(cells) == 2
    }
    classes = error_classes()

    for name, caught in written.items():
        below = {
            other
            for other, error in classes.items()
            if issubclass(error, classes[name]) and other != name
        }
        both = [other for other in written if other in below]
        assert caught == below - set(both) - set().union(*(written[other] for other in both)), name


def test_every_category_of_the_engine_is_listed() -> None:
    listed = {quoted(name)[0] for name, _ in rows(sections(ERRORS, 2)["Failure categories"])}

    assert {
        errors.HANDLER_ERROR,
        errors.HANDLER_PANIC,
        errors.PAYLOAD_DECODE,
        errors.RESULT_ENCODE,
    } <= listed


def test_every_retry_class_is_named() -> None:
    named = set(quoted(prose(ERRORS)))

    assert {each.value for each in errors.RetryClass} <= named


# Metrics.


def test_every_metric_is_listed_with_its_type_labels_and_meaning() -> None:
    types = {
        EventCount: "counter",
        ObservationCount: "counter",
        Distribution: "histogram",
        Level: "gauge",
    }
    listed = {
        quoted(cells[0])[0]: (cells[1], quoted(cells[2]), cells[3])
        for section in sections(METRICS, 2).values()
        for cells in rows(section)
        if len(cells) == 4
    }

    assert listed == {
        each.name: (types[type(each)], list(each.labels), each.meaning) for each in COUNTERS
    }


# Python.


def members(kind: type) -> dict[str, Any]:
    """What a class has, its own and that of the parts it is made of in this package."""
    parts = [part for part in kind.__mro__ if part.__module__.startswith("flowfabric.")]
    return {name: value for part in reversed(parts) for name, value in vars(part).items()}


def test_every_public_name_is_on_the_page() -> None:
    headings = {*sections(PYTHON, 3)}
    listed = headings | set(quoted(sections(PYTHON, 2)["Errors"]))

    assert set(flowfabric.__all__) <= listed
    public = {*flowfabric.__all__, "flowfabric.metrics", "flowfabric.sync"}
    assert {title.split(".")[0] if title[0].isupper() else title for title in headings} <= public


@all_cases(
    ("title", "function"),
    [
        ("App.task", App.task),
        ("App.worker", App.worker),
        ("Client.connect", Client.connect),
        ("Client.submit", Client.submit),
        ("Client.search", Client.search),
        ("Client.subscribe_completions", Client.subscribe_completions),
        ("Client.subscribe_completions", Client.subscribe_lease_history),
        ("Client.subscribe_completions", Client.subscribe_operator_events),
        ("Client.subscribe_completions", Client.subscribe_signal_delivery),
        ("Retry", Retry),
        ("RetryLater", RetryLater.__init__),
        ("Fail", Fail.__init__),
    ],
)
def test_a_call_has_the_parameters_that_are_written(title: str, function: Any) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    taken = [
        (each.name, "" if each.default is each.empty else repr(each.default))
        for each in parameters
        if each.name not in ("self", "cls")
    ]
    written = [
        (quoted(cells[0])[0], (quoted(cells[1]) or [""])[0])
        for cells in rows(sections(PYTHON, 3)[title])
        if len(cells) == 3
    ]

    assert written == taken


@all_cases(
    ("title", "kind"),
    [
        ("App", App),
        ("Client", Client),
        ("Client.admin", Admin),
        ("Client.schedules", Schedules),
        ("Handle", Handle),
        ("Flow", Flow),
        ("FlowHandle", FlowHandle),
        ("Worker", Worker),
    ],
)
def test_every_member_is_on_the_page(title: str, kind: type) -> None:
    text = sections(PYTHON, 3)[title]
    named = {word.split("(")[0].removeprefix("await ") for word in quoted(text)}
    public = {name for name, value in members(kind).items() if not name.startswith("_") and value}

    assert (
        public - {"submit_with_options", "executions_of", "flow_of", "flow_handle", "handles"}
        <= named
    )


def test_every_operation_of_the_engine_is_named() -> None:
    groups = rows(sections(PYTHON, 3)["Engine"])
    named = {operation for _, operations in groups for operation in quoted(operations)}
    parts = [part for part in Engine.__mro__ if part is not object]
    operations = {name for part in parts for name in vars(part) if not name.startswith("_")}

    itself = {"connect", "close", "is_remote", "partitions"}
    assert operations - itself == named


@pytest.mark.parametrize("event", [CompletionEvent, LeaseEvent, OperatorEvent, SignalEvent])
def test_every_field_of_an_event_is_listed(event: type[Event]) -> None:
    tables = rows(sections(PYTHON, 3)["Client.subscribe_completions"])
    listed = {cells[0]: quoted(cells[1]) for cells in tables if len(cells) == 2}

    own = tuple(listed[f"`{event.__name__}`"])
    assert listed["every one"] == list(Event.__struct_fields__)
    assert own == event.__struct_fields__[len(Event.__struct_fields__) :]


def test_the_blocking_client_has_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in members(kind) if not name.startswith("_")}

    inner = {"submit_with_options", "executions_of", "flow_of", "flow_handle", "parse"}
    subscriptions = {name for name in methods(Client) if name.startswith("subscribe_")}
    assert methods(Client) - methods(sync.Client) == inner | subscriptions
    for ours, theirs in (
        (sync.Handle, Handle),
        (sync.FlowHandle, FlowHandle),
        (sync.Admin, Admin),
        (sync.Schedules, Schedules),
    ):
        assert methods(ours) - {"actor"} == methods(theirs)


# Tables and sweeps.


async def test_every_table_and_column_is_listed(db: Connection) -> None:
    stored: dict[str, list[str]] = {}
    for row in await db.fetch(
        "SELECT table_name, column_name, data_type, udt_name FROM information_schema.columns"
        " WHERE table_schema = 'ff' ORDER BY table_name, ordinal_position"
    ):
        kind = row["data_type"]
        if kind == "ARRAY":
            kind = f"{row['udt_name'].removeprefix('_')}[]"
        stored.setdefault(row["table_name"], []).append(f"{row['column_name']} {kind}")
    written = {
        table: [f"{quoted(column)[0]} {kind}" for column, kind, _ in rows(text)]
        for table, text in sections(TABLES, 2).items()
    }

    assert written == stored


def test_every_sweep_is_listed_with_its_interval() -> None:
    listed = {
        quoted(name)[0]: every
        for name, every, _ in rows(sections("docs/operations.md", 2)["Sweeps"])
    }

    assert listed == {sweep.name: f"{sweep.every:g} s" for sweep in SWEEPS}
