"""What is logged in a child process reaches the logging of its worker."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from flowfabric.worker.frames import Logged, LogLevels
from flowfabric.worker.log_context import LogContext, extra_fields


def current_levels() -> LogLevels:
    """The levels that are set in this process, by logger; that of the root logger is `root`."""
    named = logging.root.manager.loggerDict
    levels = {
        name: logger.level
        for name, logger in list(named.items())
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET
    }
    return LogLevels({**levels, "root": logging.root.level}, logging.root.manager.disable)


def replay_log(logged: Logged) -> None:
    """Give a record of a child process to the handlers of this one."""
    logger = logging.getLogger(logged.name)
    if logger.isEnabledFor(logged.level):
        logger.handle(
            logging.makeLogRecord(
                {
                    **logged.fields,
                    "name": logged.name,
                    "levelno": logged.level,
                    "levelname": logging.getLevelName(logged.level),
                    "msg": logged.message,
                    "args": None,
                    "created": logged.created,
                    "msecs": logged.created % 1 * 1000,
                    "pathname": logged.path,
                    "filename": os.path.basename(logged.path),
                    "lineno": logged.line,
                    "funcName": logged.function,
                    "process": logged.process,
                    "threadName": logged.thread,
                    "exc_text": logged.traceback,
                }
            )
        )


class ForwardingHandler(logging.Handler):
    """The root handler of a child process: passes each record to `send`."""

    def __init__(self, send: Callable[[Logged], None]) -> None:
        super().__init__()
        self._send, self._process = send, os.getpid()
        self.addFilter(LogContext())

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record; a process that the task forked has no way to, and writes to stderr."""
        try:
            if os.getpid() != self._process:
                sys.stderr.write(f"{self.format(record)}\n")
                return
            self._send(_logged(record))
        except Exception:
            self.handleError(record)


def start_forwarding(levels: LogLevels, send: Callable[[Logged], None]) -> None:
    """Send what is logged in this process from these levels on."""
    for name, level in levels.levels.items():
        logging.getLogger(None if name == "root" else name).setLevel(level)
    logging.disable(levels.disabled)
    logging.root.addHandler(ForwardingHandler(send))


def _logged(record: logging.LogRecord) -> Logged:
    traceback = record.exc_text
    if record.exc_info and not traceback:
        traceback = logging.Formatter().formatException(record.exc_info)
    return Logged(
        name=record.name,
        level=record.levelno,
        message=record.getMessage(),
        created=record.created,
        path=record.pathname,
        line=record.lineno,
        function=record.funcName,
        process=record.process,
        thread=record.threadName,
        traceback=traceback,
        fields={
            name: value if isinstance(value, str | int | float | None) else str(value)
            for name, value in extra_fields(record).items()
        },
    )
