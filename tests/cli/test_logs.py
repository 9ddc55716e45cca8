"""What `ff worker` and `ff dev` log, and how."""

import contextlib
import json
import logging
import os
from collections.abc import Generator
from unittest import mock

import pytest
import typer

from flowfabric.audit import audit
from flowfabric.cli.logs import JsonFormatter, TextFormatter, log_to_terminal
from flowfabric.errors import ConfigError
from tests.all_cases import all_cases


@contextlib.contextmanager
def root_logger() -> Generator[logging.Logger]:
    """The root logger without handlers, as a command finds it."""
    root = logging.getLogger()
    handlers, level, root.handlers = root.handlers, root.level, []
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_the_levels_have_colours_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
    environment: dict[str, str],
    coloured: bool,
) -> None:
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("sys.stderr.isatty", return_value=True),
        root_logger(),
    ):
        log_to_terminal("warning")
        logging.getLogger("shop").info("not wanted")
        logging.getLogger("shop").warning("low on %s", "tea")

    line = capsys.readouterr().err
    assert ("\x1b[33mWARNING\x1b[0m" in line) == coloured
    assert line.endswith("  low on tea\n")
    assert "not wanted" not in line


def test_an_application_that_configures_logging_itself_keeps_its_handlers() -> None:
    own = logging.NullHandler()
    with root_logger() as root:
        root.addHandler(own)
        root.setLevel(logging.ERROR)

        log_to_terminal(None)
        assert (root.handlers, root.level) == ([own], logging.ERROR)

        log_to_terminal("debug")
        assert (root.handlers, root.level) == ([own], logging.DEBUG)


def test_a_level_or_a_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="'loud' is not one of debug, info"):
        log_to_terminal("loud")
    with (
        mock.patch.dict(os.environ, {"FF_LOG_FORMAT": "xml"}),
        pytest.raises(ConfigError, match=r"FF_LOG_FORMAT.*'xml' is not one of text, json"),
    ):
        log_to_terminal("info")


@pytest.mark.parametrize("said", ["loud", "shop=loud", "=info", "info,shop"])
def test_levels_of_loggers_that_do_not_exist_are_refused(said: str) -> None:
    with (
        mock.patch.dict(os.environ, {"FF_LOG": said}),
        pytest.raises(ConfigError, match=r"FF_LOG.*is not LEVEL or LOGGER=LEVEL"),
    ):
        log_to_terminal(None)


def test_levels_are_set_for_each_logger(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"FF_LOG": "error, flowfabric.noisy=debug ,flowfabric.quiet=ERROR"}
    with mock.patch.dict(os.environ, said), root_logger() as root:
        log_to_terminal(None)
        assert root.level == logging.ERROR
        logging.getLogger("flowfabric.noisy").debug("wanted")
        logging.getLogger("flowfabric.quiet").warning("not this")
        audit("lease_revoked", actor="ann", reason=None)

    told = capsys.readouterr().err
    assert "wanted" in told
    assert "not this" not in told
    assert "lease_revoked actor=ann" in told, "no level hides the audit log"


class Odd:
    def __str__(self) -> str:
        return "odd"


@all_cases(
    "value", [{"a": [1]}, {(1, 2): 3}, float("nan"), 10**40, Odd(), b"x", "\ud800"], ids=type
)
def test_json_has_every_field_of_the_record_whatever_its_value(value: object) -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "INFO", "msg": "n = %s", "args": (1,), "value": value}
    )

    line = JsonFormatter().format(record)

    assert "\n" not in line
    told = json.loads(line, parse_constant=pytest.fail)
    assert (told["logger"], told["level"], told["message"]) == ("shop", "info", "n = 1")
    assert "value" in told


def test_a_traceback_follows_its_line() -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "msg": "failed", "exc_text": "Traceback …\nKeyError: 'x'\n"}
    )

    assert TextFormatter().format(record).endswith("  failed\nTraceback …\nKeyError: 'x'")
