"""A test of many cases runs them all and names those that fail."""

from __future__ import annotations

import inspect

import pytest

from tests.all_cases import all_cases


def failures_of(group: ExceptionGroup) -> dict[str, type[Exception]]:
    return {error.__notes__[-1].removeprefix("case: "): type(error) for error in group.exceptions}


def test_every_case_runs_and_each_that_fails_is_named() -> None:
    ran: list[int] = []

    @all_cases("number", [1, 2, 3, 4], ids=lambda number: f"n{number}")
    def looks(number: int) -> None:
        ran.append(number)
        assert number != 2
        if number == 3:
            raise KeyError(number)
        if number == 4:
            with pytest.raises(ValueError):
                pass

    with pytest.raises(ExceptionGroup, match="3 of 4 cases: n2; n3; n4") as group:
        looks()
    assert ran == [1, 2, 3, 4]
    assert failures_of(group.value) == {"n2": AssertionError, "n3": KeyError, "n4": AssertionError}


async def test_coroutines_and_pairs_of_axes_are_run_too() -> None:
    ran: list[tuple[int, str]] = []

    @all_cases("number", lambda: (n for n in (1, 2)))
    @all_cases(("text", "even"), [("a", True), ("b", False)], ids=["first", "second"])
    async def looks(number: int, text: str, even: bool) -> None:
        ran.append((number, text))
        assert even or number == 1

    with pytest.raises(ExceptionGroup, match="1 of 2 cases: 2") as group:
        await looks()
    [inner] = group.value.exceptions
    assert isinstance(inner, ExceptionGroup)
    assert failures_of(inner) == {"second": AssertionError}
    assert ran == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_fixtures_are_asked_for_and_no_cases_are_a_failure() -> None:
    @all_cases("number", [])
    def looks(number: int, tmp_path: str) -> None: ...

    assert list(inspect.signature(looks).parameters) == ["tmp_path"]
    with pytest.raises(AssertionError, match="no cases"):
        looks(tmp_path="")
