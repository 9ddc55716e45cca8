"""Cases of one kind as one test: it runs them all, and names each one that fails.

A test of its own for each case costs more than most cases do: every process of a run collects it,
and garbage is looked for after it.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., Any]
Cases: TypeAlias = Iterable[Any] | FunctionType
Ids: TypeAlias = Iterable[str] | Callable[[Any], object] | None


def all_cases(names: str | Sequence[str], cases: Cases, ids: Ids = None) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all cases are one test, which fixtures see once.

    Cases that take long to find are given as a function. Raises an `ExceptionGroup` of what the
    cases raised; its message and a note of each exception name the case.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names

    def found() -> list[tuple[str, dict[str, Any]]]:
        made = [
            [case] if len(arguments) == 1 else list(case)
            for case in (cases() if isinstance(cases, FunctionType) else cases)
        ]
        assert made, "there are no cases"
        return [
            (label, dict(zip(arguments, values, strict=True)))
            for label, values in zip(_labels(made, ids), made, strict=True)
        ]

    def of(test: Test) -> Test:
        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            with Failures() as failures:
                for label, case in found():
                    with failures.noted(label):
                        await test(**fixtures, **case)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            with Failures() as failures:
                for label, case in found():
                    with failures.noted(label):
                        test(**fixtures, **case)

        left = dict(inspect.signature(test).parameters)
        for name in arguments:
            del left[name]
        merged: Any = run_async if inspect.iscoroutinefunction(test) else run
        merged.__signature__ = inspect.Signature(list(left.values()))
        return merged

    return of


class Failures:
    """What cases raised, raised together at the end."""

    def __init__(self) -> None:
        self._raised: list[Exception] = []
        self._names: list[str] = []
        self._ran = 0

    @contextmanager
    def noted(self, label: str) -> Iterator[None]:
        """What the body raises is kept with the name of its case."""
        self._ran += 1
        try:
            yield
        except pytest.fail.Exception as failed:  # as `pytest.raises` does
            self._keep(AssertionError(str(failed)).with_traceback(failed.__traceback__), label)
        except Exception as error:
            self._keep(error, label)

    def _keep(self, error: Exception, label: str) -> None:
        error.add_note(f"case: {label}")
        self._raised.append(error)
        self._names.append(label)

    def __enter__(self) -> Failures:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._raised:
            what = f"{len(self._raised)} of {self._ran} cases: {'; '.join(self._names)}"
            raise ExceptionGroup(what, self._raised)


def _labels(cases: Sequence[Sequence[Any]], ids: Ids) -> list[str]:
    if ids is not None and not callable(ids):
        return list(ids)
    name = ids or (lambda value: getattr(value, "__name__", reprlib.repr(value)))
    return ["-".join(str(name(value))[:80] for value in case) for case in cases]
