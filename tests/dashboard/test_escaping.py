"""What a template writes is escaped as Jinja would do it."""

from __future__ import annotations

from enum import StrEnum

import jinja2
import pytest
from markupsafe import Markup, escape

from flowfabric.dashboard import render
from flowfabric.dashboard.escaping import EscapingEnvironment, escaped
from tests.all_cases import all_cases


class Hostile(StrEnum):
    """A word of an enum that is markup."""

    WORD = "<b>&'\""


class Picture:
    """Knows its own markup."""

    def __html__(self) -> str:
        return "<svg/>"


class Name:
    """Only its text is hostile."""

    def __str__(self) -> str:
        return "<i>"


@all_cases(
    "value",
    [
        "",
        "plain text, 1 + 1 = 2; ünï…",
        *(f"a{mark}b" for mark in "&<>\"'"),
        "&amp;",
        "<script>alert('x')</script>",
        Markup("<b>bold</b>"),
        Hostile.WORD,
        Picture(),
        Name(),
        12,
        -0.5,
        None,
        ["<"],
    ],
)
def test_every_value_is_escaped_as_jinja_escapes_it(value: object) -> None:
    assert str(escaped(value)) == str(escape(value))


@all_cases(
    "source",
    [
        "{{ text }}",
        "{% for each in [text] %}{{ each }}{% endfor %}",
        "{% set body %}{{ text }}{% endset %}{{ body }}",
        "{% macro part(given) %}{{ given }}{% endmacro %}{{ part(text) }}",
        "{{ text ~ '' }}",
        "{{ [text, '']|join }}",
        "{% block region %}{{ text }}{% endblock %}",
        "{{ '<'|replace('<', text) }}",
    ],
)
def test_text_is_escaped_once_wherever_a_template_writes_it(source: str) -> None:
    env = EscapingEnvironment(jinja2.DictLoader({"page": source}))

    assert env.get_template("page").render(text="<b>&") == "&lt;b&gt;&amp;"


def test_a_value_that_is_missing_is_an_error() -> None:
    env = EscapingEnvironment(jinja2.DictLoader({"page": "{{ missing }}"}))

    with pytest.raises(jinja2.UndefinedError):
        env.get_template("page").render()


def test_the_pages_are_compiled_with_it() -> None:
    source, _, _ = render._env.loader.get_source(render._env, "lanes.html")  # pyright: ignore

    compiled = render._env.compile(source, raw=True)  # pyright: ignore

    assert "environment.escaped(" in compiled
    assert " escape(" not in compiled.partition("def root")[2]
