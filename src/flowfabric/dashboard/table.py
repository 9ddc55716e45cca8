"""The route table of the dashboard: screens that are looked at, and acts that change something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from flowfabric.states import Scope

if TYPE_CHECKING:
    from flowfabric.dashboard.answers import Answer
    from flowfabric.dashboard.visit import SentForm, Visit

Show: TypeAlias = "Callable[[Visit], Awaitable[Answer]]"
Ask: TypeAlias = "Callable[[Visit], Awaitable[Dialog]]"
Do: TypeAlias = "Callable[[Visit, SentForm], Awaitable[ActDone]]"
PreviewOf: TypeAlias = "Callable[[Visit, SentForm], Awaitable[Preview]]"
CONTROL: Final = 64 * 1024
LARGE: Final = 1024 * 1024


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """A page: `GET` shows it, and changes nothing."""

    path: str
    show: Any
    scope: Scope = Scope.READ


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A change: `GET` asks for a reason in a dialog, `POST` does it."""

    path: str
    ask: Any
    do: Any
    scope: Scope
    most: int = CONTROL
    """Bytes that the form may have."""
    preview: Any = None
    """What the form as it is would do, if that can be shown before it is sent."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a form would do: a sentence, and the first of what it is about."""

    text: str
    lines: Sequence[str] = ()
    wrong: bool = False


class DialogField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a dialog, beside the reason."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    """`text`, `number`, `password`, `area`, `select`, `check`, `hidden`, or `preview`."""
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Values and their words."""
    required: bool = False
    half: bool = False
    """Does it share a line with its neighbour?"""
    group: str = ""
    """A heading above the field, where a group of fields begins."""


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked before something changes."""

    question: str
    effect: str
    """What will be the case afterwards, in a sentence."""
    button: str
    back: str
    """The path of the page to which it goes back."""
    fields: Sequence[DialogField] = ()
    reason: bool = True
    danger: bool = False
    seen: str = ""
    """The version that the person has seen; another one is refused."""
    compared: bool = True
    """Is the version compared before the act? If not, the operation does so while it changes."""
    now: str = ""
    """What is the case now, for a person who saw another version."""
    listed: Sequence[str] = ()
    """Samples of what will change."""
    warning: str = ""


class ActDone(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, in a sentence; the page goes on to `to`."""

    message: str
    to: str = ""
    reload: bool = False
    """Must the page be loaded anew because more than its regions has changed?"""
    link: str = ""
    """The path of the record of what was done."""
    secret: str = ""
    """What is shown once, and never again."""


def screen(path: str, show: Show, scope: Scope = Scope.READ) -> Screen:
    """A row of the table."""
    return Screen(path=path, show=show, scope=scope)


def act(
    path: str,
    ask: Ask,
    do: Do,
    scope: Scope = Scope.OPERATE,
    *,
    most: int = CONTROL,
    preview: PreviewOf | None = None,
) -> Act:
    """A row of the table."""
    return Act(path=path, ask=ask, do=do, scope=scope, most=most, preview=preview)
