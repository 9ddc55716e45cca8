"""Importing the user's application by `MODULE:APP`."""

from __future__ import annotations

import importlib
import operator
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import flowfabric
from flowfabric.app.app import App
from flowfabric.cli.output import visible
from flowfabric.errors import ConfigError

_OURS: Final = str(Path(flowfabric.__file__).parent)
_IMPORTLIB: Final = (str(Path(importlib.__file__).parent), "<frozen importlib")


def load_app(path: str) -> App:
    """The `App` that `MODULE:APP` names; the current directory is on the import path.

    Raises `ConfigError` if there is no such app or it has no tasks. If the module itself fails, its
    traceback is printed before, with the frames of the user's code alone.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError("application", path, "must look like MODULE:APP, e.g. shop.tasks:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if not _is_missing(error, module_name):
            sys.stderr.write(visible(_users_traceback(error)))
        said = f"{type(error).__name__}: {error}"
        why = str(error) if isinstance(error, ModuleNotFoundError) else said
        raise ConfigError("application", path, f"cannot import {module_name}: {why}") from None
    apps = ", ".join(name for name, value in vars(module).items() if isinstance(value, App))
    hint = f"; its apps: {apps}" if apps else "; it has no flowfabric.App"
    try:
        found = operator.attrgetter(attribute)(module)
    except AttributeError:
        why = f"module {module_name} has no attribute {attribute}{hint}"
        raise ConfigError("application", path, why) from None
    if not isinstance(found, App):
        why = f"{attribute} of module {module_name} is {type(found).__name__}, not a flowfabric.App"
        raise ConfigError("application", path, why + hint)
    if not found.tasks:
        raise ConfigError("application", path, "has no tasks")
    return found


def _is_missing(error: Exception, module_name: str) -> bool:
    """Is it the named module that does not exist, and not one that the module imports?"""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")


def _users_traceback(error: Exception) -> str:
    """The traceback of the error and its causes, without our frames and those of importlib."""
    told = traceback.TracebackException.from_exception(error)
    for each in _chain(told):
        each.stack = traceback.StackSummary.from_list(
            [frame for frame in each.stack if not frame.filename.startswith((_OURS, *_IMPORTLIB))]
        )
    return "".join(told.format())


def _chain(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    yield told
    for cause in (told.__cause__, told.__context__):
        if cause is not None:
            yield from _chain(cause)
