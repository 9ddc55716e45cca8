"""Importing the user's application by `MODULE:APP`."""

from __future__ import annotations

import importlib
import os
import sys

from flowfabric.app.app import App
from flowfabric.errors import ConfigError


def load_app(path: str) -> App:
    """The `App` that `MODULE:APP` names; the current directory is on the import path.

    Raises `ConfigError` if there is no such app or it has no tasks.
    """
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError("application", path, "must look like MODULE:APP, e.g. shop.tasks:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError("application", path, f"cannot import: {error}") from None
    found: object = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, App):
        kind = type(found).__name__
        raise ConfigError("application", path, f"{attribute!r} is {kind}, not a flowfabric.App")
    if not found.tasks:
        raise ConfigError("application", path, "has no tasks")
    return found
