"""Errors of steps: stored without pickle, and raised again as the same class."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from flowfabric.errors import HANDLER_ERROR, BudgetExceeded, EntryDecodeError, Fail, StepFailed
from flowfabric.ids import clean_text
from flowfabric.worker.stored_traceback import stored_traceback

E = TypeVar("E", bound=BaseException)

ERROR: Final = "error"
"""The encoding of the value of an entry that has failed."""


RECORDED: Final = "_flowfabric_recorded"
"""Set on an error whose failure is recorded: a retry of the attempt would find the same."""
_KEY: Final = "_flowfabric_key"
"""Set on an error whose failure is not recorded yet: the key of its call."""
_OWN: Final = frozenset({RECORDED, _KEY})
"""Attributes that say something about one raise: another step may raise the error again."""
MAX_PARTS: Final = 16 * 1024
"""Bytes of the arguments and attributes of an error that are stored."""


class StoredError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of the error of a step."""

    error_type: str
    category: str
    reason: str
    path: str = ""
    """Module and name of the class, to find it among the classes of `raises=`."""
    args: list[Any] | None = None
    """None if the arguments or attributes of the error cannot be stored."""
    state: dict[str, Any] = {}
    traceback: str | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode_error(name: str, data: bytes | None) -> StoredError:
    """The stored error of an entry; raises `EntryDecodeError`."""
    try:
        return msgspec.json.decode(data or b"", type=StoredError)
    except msgspec.MsgspecError as error:
        raise EntryDecodeError(name, "an error", str(error)) from error


def store_error(error: BaseException, category: str | None = None) -> StoredError:
    """What to store of the error of a step."""
    if category is None:
        category = error.category if isinstance(error, Fail | BudgetExceeded) else HANDLER_ERROR
    args, state = _parts(error)
    return StoredError(
        error_type=type(error).__name__,
        category=clean_text(category),
        reason=clean_text(_text(error)),
        path=_path(type(error)),
        args=args,
        state=state,
        traceback=clean_text(stored_traceback(error)),
    )


def raised(name: str, stored: StoredError, raises: Sequence[type[BaseException]]) -> BaseException:
    """The error to raise in the handler: one of the `raises` classes, else `StepFailed`.

    The same for the first run and for every replay: always made from what is stored.
    """
    for each in raises:
        if _path(each) == stored.path and stored.args is not None:
            rebuilt = _rebuilt(each, stored.args, stored.state)
            if rebuilt is not None:
                return rebuilt
    return StepFailed(name, stored.category, stored.reason, stored.error_type)


def not_recorded(error: E, key: tuple[Any, ...]) -> E:
    """The error, which says that its failure is recorded only if the handler gets over it."""
    with contextlib.suppress(AttributeError, TypeError):  # a class with slots
        setattr(error, _KEY, key)
    return error


def recorded(error: E) -> E:
    """The error, which says that its failure is recorded."""
    with contextlib.suppress(AttributeError, TypeError):
        setattr(error, RECORDED, True)
    return error


def unrecorded(error: BaseException | None) -> set[tuple[Any, ...]]:
    """The keys of the calls whose failures this error is about, as far as none is recorded."""
    found: set[tuple[Any, ...]] = set()
    seen: set[int] = set()
    links = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if (key := getattr(link, _KEY, None)) is not None:
            found.add(key)
        links += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            links += cast("BaseExceptionGroup[BaseException]", link).exceptions
    return found


def _rebuilt(
    error_class: type[BaseException], args: Sequence[Any], state: dict[str, Any]
) -> BaseException | None:
    """An error of the class, made without calling its constructor."""
    try:
        if _keeps_errno(error_class):
            error = error_class.__new__(error_class, *args)
        else:
            error = error_class.__new__(error_class)
            error.args = tuple(args)
        error.__dict__.update(state)
    except Exception:
        return None
    return error if type(error) is error_class else None


def _keeps_errno(error_class: type[BaseException]) -> bool:
    """Does `__new__` of `OSError` set errno, filename and the rest, which are no attributes?"""
    return issubclass(error_class, OSError) and not any(
        {"__new__", "__init__"} & each.__dict__.keys()
        for each in error_class.__mro__
        if each.__module__ != "builtins"
    )


def _parts(error: BaseException) -> tuple[list[Any] | None, dict[str, Any]]:
    """Arguments and attributes, if they survive being stored."""
    try:
        args = error.__reduce__()[1] if _keeps_errno(type(error)) else error.args
        state = {name: value for name, value in vars(error).items() if name not in _OWN}
        stored = msgspec.json.encode((list(args), state))
        if len(stored) > MAX_PARTS:
            return None, {}
        return cast("tuple[list[Any], dict[str, Any]]", tuple(msgspec.json.decode(stored)))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return None, {}


def _path(error_class: type[BaseException]) -> str:
    return f"{error_class.__module__}.{error_class.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception as fault:
        return f"(without a text: {type(fault).__name__})"
