"""Rules for code that a machine can check: what is run, where SQL comes from, whose time counts."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.all_cases import all_cases
from tests.walls.sources import Builder, Module, builders, constants, modules

FORBIDDEN_MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "yaml",
    "multiprocessing",  # pickles what it sends
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}

# A module is imported by name only where the operator named it, or to run one of their tasks.
# The operator named the modules; the package itself has a table of its own.
MAY_IMPORT_BY_NAME = {
    "flowfabric",
    "flowfabric.cli.loading",
    "flowfabric.worker.child_process",
}

# Modules that may read this machine's clock: to mint an id, to show an age, to compare clocks, and
# for the times of spans, which never reach the database.
MAY_READ_THE_CLOCK = {
    "flowfabric.fresh_uuids.new_uuid",
    "flowfabric.fresh_uuids.new_uuids",
    "flowfabric.cli.output.ago",
    "flowfabric.cli.schedules.preview",
    "flowfabric.engine.lifecycle.attempt_log._until",
    "flowfabric.db.doctor.examine",
    "flowfabric.tracing.attempt_span",
}
CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}

METHODS = {
    "execute": 0,
    "executemany": 0,
    "fetch": 0,
    "fetchrow": 0,
    "fetchval": 0,
    "prepare": 0,
    "cursor": 0,
    "copy_from_query": 0,
    "exec_driver_sql": 0,
}
FUNCTIONS = {"fetch_all": 1, "fetch_one": 1, "fetch_maybe": 1, "execute": 1}
MAY_BUILD_SQL = {"db", "testing"}

A_MODULE_HAS_AT_MOST = 400


class Finding(str):
    """`flowfabric.x.y:12: what`."""

    __slots__ = ()


def where(module: Module, node: ast.AST, what: str) -> Finding:
    return Finding(f"{module.name}:{getattr(node, 'lineno', 0)}: {what}")


def module_of(source: str) -> Module:
    """A module made up by a test."""
    return Module("flowfabric.made.up", Path("up.py"), ast.parse(textwrap.dedent(source)))


# What is never executed.


def executed(module: Module) -> Iterator[Finding]:
    """Code that would run what somebody else wrote."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                found = {alias.name.partition(".")[0] for alias in names} & FORBIDDEN_MODULES
            case ast.ImportFrom(module=str(name), names=names):
                found = {name.partition(".")[0]} & FORBIDDEN_MODULES
                found |= {"ProcessPoolExecutor"} & {alias.name for alias in names}
            case ast.Call(func=ast.Name(id=name)):
                found = {name} & FORBIDDEN_CALLS
            case ast.Attribute(attr="ProcessPoolExecutor" as name):
                found = {name}
            case _:
                continue
        if found:
            yield where(module, node, f"uses {found.pop()}")


def imported_by_name(module: Module) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(attr="import_module" | "resolve_name") as found:
                yield where(module, found, "imports a module by name")
            case ast.ImportFrom(names=names) as found:
                if {"import_module", "resolve_name"} & {alias.name for alias in names}:
                    yield where(module, found, "imports a module by name")
            case _:
                pass


def test_nothing_that_is_stored_is_ever_executed() -> None:
    assert [finding for module in modules() for finding in executed(module)] == []


def test_modules_are_imported_by_name_only_where_the_name_is_not_from_a_stranger() -> None:
    assert [
        finding
        for module in modules()
        if module.name not in MAY_IMPORT_BY_NAME
        for finding in imported_by_name(module)
    ] == []


@all_cases(
    "source",
    [
        "import pickle",
        "import os, marshal as m",
        "from pickle import loads",
        "from yaml.loader import Loader",
        "eval(text)",
        "def f():\n    exec(stored)",
        "__import__(name)",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor()",
    ],
)
def test_code_that_runs_what_others_wrote_is_found(source: str) -> None:
    assert list(executed(module_of(source)))


@pytest.mark.parametrize(
    "source",
    ["import importlib\nimportlib.import_module(x)", "from importlib import import_module"],
)
def test_an_import_by_name_is_found(source: str) -> None:
    assert list(imported_by_name(module_of(source)))


# The server asks nobody: an address that a client gives is never called.

HTTP_CLIENTS = {
    *("aiohttp", "httpx", "requests", "urllib3", "niquests", "pycurl"),
    *("urllib.request", "http.client", "flowfabric.remote"),
}
SERVES = ("flowfabric.server", "flowfabric.dashboard", "flowfabric.engine", "flowfabric.reconcile")


def calls_others(module: Module) -> Iterator[Finding]:
    """Imports of what sends requests."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                found = {alias.name for alias in names}
            case ast.ImportFrom(module=str(name), names=names):
                found = {name, *(f"{name}.{alias.name}" for alias in names)}
            case _:
                continue
        for each in sorted(found):
            if any(each == client or each.startswith(client + ".") for client in HTTP_CLIENTS):
                yield where(module, node, f"imports {each}")


def test_what_serves_requests_sends_none() -> None:
    serving = [each for each in modules() if each.name.startswith(SERVES)]
    assert len(serving) > 100
    assert [finding for module in serving for finding in calls_others(module)] == []


@all_cases(
    "source",
    [
        "import aiohttp",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import http.client as h",
        "def f():\n    from flowfabric.remote.transport import Transport",
    ],
)
def test_an_import_of_what_sends_requests_is_found(source: str) -> None:
    assert list(calls_others(module_of(source)))


# SQL is constant text.


def is_constant(node: ast.expr, known: set[str]) -> bool:
    """Is the text the same for every caller?"""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name):
            return name in known
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return is_constant(left, known) and is_constant(right, known)
        case ast.IfExp(body=body, orelse=orelse):
            return is_constant(body, known) and is_constant(orelse, known)
        case ast.JoinedStr(values=values):
            return all(is_constant(value, known) for value in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return is_constant(value, known)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            given = [*args, *(keyword.value for keyword in keywords if keyword.arg)]
            spread = len(given) < len(args) + len(keywords)
            return (
                f"{name}()" in known
                and not spread
                and all(is_constant(each, known) or _is_switch(each) for each in given)
            )
        case _:
            return False


def _is_switch(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def gives_constant(builder: Builder) -> bool:
    """Is all that the function returns made of constant text and of what it is given?"""
    known = constant_names(builder.module)
    for node in builder.tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                if is_constant(value, known):
                    known.add(name)
            case _:
                pass
    returned = [node.value for node in ast.walk(builder.tree) if isinstance(node, ast.Return)]
    return bool(returned) and all(
        value is not None and is_constant(value, known) for value in returned
    )


def constant_names(module: Module) -> set[str]:
    """Names that stand for constant text; `name()` for a function that gives some.

    Upper-case ones, parameters that the type checker lets only constant text into, what
    `positional` made of one, and builders of the package.
    """
    known = {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.isupper()
    }
    known |= {
        node.arg
        for node in ast.walk(module.tree)
        if isinstance(node, ast.arg)
        and isinstance(node.annotation, ast.Name)
        and node.annotation.id == "LiteralString"
    }
    built = {(builder.module.name, builder.name) for builder in builders()}
    known |= {
        f"{alias.asname or alias.name}()"
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module, alias.name) in built
    }
    known |= {f"{name}()" for home, name in built if home == module.name}
    for node in module.tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                if is_constant(value, known):
                    known.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if is_constant(value, known):
                    known.add(name)
            case _:
                pass
    for node in ast.walk(module.tree):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=[ast.Name(id=name), *_])],
                value=ast.Call(func=ast.Name(id="positional"), args=[argument]),
            ) if is_constant(argument, known):
                known.add(name)
            case _:
                pass
    return known


def built_sql(module: Module) -> Iterator[Finding]:
    """Statements whose text is put together where they are run."""
    known = constant_names(module)
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in METHODS:
                position = METHODS[name]
            case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
                position = FUNCTIONS[name]
            case _:
                continue
        if len(args) <= position or isinstance(args[position], ast.Starred):
            continue
        if not is_constant(args[position], known):
            yield where(module, node, f"{name}({ast.unparse(args[position])[:60]})")


def test_sql_is_constant_text_wherever_it_is_run() -> None:
    assert [
        finding
        for module in modules()
        if module.room not in MAY_BUILD_SQL
        for finding in built_sql(module)
    ] == []


def test_sql_constants_are_made_of_constants() -> None:
    for constant in constants():
        if constant.is_literal:
            assert constant.name in constant_names(constant.module), constant.name


def test_builders_of_sql_give_constant_text() -> None:
    assert [builder.name for builder in builders() if not gives_constant(builder)] == []
    assert len(builders()) >= 8


@all_cases(
    ("source", "constant"),
    [
        ("def f(x: LiteralString) -> LiteralString:\n    return f'SELECT {x}'", True),
        ("def f(x: str) -> LiteralString:\n    return f'SELECT {x}'", False),
        ("def f(x: LiteralString) -> LiteralString:\n    return x.lower()", False),
        ("def f(x: LiteralString) -> LiteralString:\n    return f'{x!r}'", False),
        ("def f(n: int) -> LiteralString:\n    return str(n)", False),
        (
            "def f(x: LiteralString) -> LiteralString:\n"
            "    if x:\n        return x\n    return name",
            False,
        ),
    ],
)
def test_a_builder_that_takes_other_text_is_found(source: str, constant: bool) -> None:
    module = module_of(source)
    [tree] = module.tree.body
    assert isinstance(tree, ast.FunctionDef)

    assert gives_constant(Builder(module, "f", tree)) is constant


@all_cases(
    "source",
    [
        'conn.execute(f"SELECT {x}")',
        'conn.fetch("SELECT %s" % x)',
        'conn.fetchval("SELECT {}".format(x))',
        'conn.fetchrow("SELECT " + x)',
        "conn.execute(sql)",
        'fetch_all(conn, f"SELECT {x}", Row)',
        'READ = "SELECT 1"\nfetch_one(conn, READ + x, Row)',
        'READ = f"SELECT {1}"\nfetch_one(conn, READ, Row)',
        'READ = other("SELECT 1")\nfetch_one(conn, READ, Row)',
        "from flowfabric.engine.lifecycle.sql.end import end\nfetch_all(conn, end(x), Row)",
        'from flowfabric.engine.lifecycle.sql.end import end\nfetch_all(conn, end("x", **y), Row)',
        'from x import end\nfetch_all(conn, end("x"), Row)',
        'READ = "SELECT 1"\nfetch_one(conn, READ.replace("1", x), Row)',
        "text, names = positional(sql)\nconn.fetch(text)",
    ],
)
def test_sql_that_is_put_together_is_found(source: str) -> None:
    assert list(built_sql(module_of(source)))


@all_cases(
    "source",
    [
        'conn.execute("SELECT 1")',
        'from x import READ\nfetch_all(conn, READ, Row, a="b" + c)',
        'A = "SELECT"\nB = A + " 1"\nfetch_all(conn, B if x else A, Row)',
        'A = "1"\nB = f"SELECT {A}"\nfetch_all(conn, B, Row)',
        "from flowfabric.engine.lifecycle.sql.end import end\n"
        'A = "WITH" + end("seen", outcome="x", on=True)\nfetch_all(conn, A, Row)',
        "from x import READ\ntext, names = positional(READ)\nconn.fetch(text, *names)",
    ],
)
def test_sql_that_is_constant_is_let_through(source: str) -> None:
    assert list(built_sql(module_of(source))) == []


# Time is the database's.


def clocks_read(module: Module) -> Iterator[tuple[str, Finding]]:
    """Where this machine's clock is read, with the function that does it."""
    for owner in ast.walk(module.tree):
        if not isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            continue
        name = f"{module.name}.{owner.name}" if not isinstance(owner, ast.Module) else module.name
        for node in _own(owner):
            match node:
                case ast.Attribute(value=ast.Name(id=base), attr=attribute) if (
                    attribute in CLOCKS.get(base, ())
                ):
                    yield name, where(module, node, f"{base}.{attribute}")
                case ast.Attribute(value=ast.Attribute(attr=base), attr=attribute) if (
                    base in ("datetime", "date") and attribute in CLOCKS[base]
                ):
                    yield name, where(module, node, f"{base}.{attribute}")
                case ast.ImportFrom(module="time", names=names):
                    for alias in names:
                        if alias.name in CLOCKS["time"]:
                            yield name, where(module, node, f"time.{alias.name}")
                case _:
                    pass


def _own(owner: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that are not within another function."""
    for child in ast.iter_child_nodes(owner):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own(child)


def test_no_moment_of_this_machines_clock_reaches_the_database() -> None:
    assert [
        finding
        for module in modules()
        for owner, finding in clocks_read(module)
        if owner not in MAY_READ_THE_CLOCK
    ] == []


@all_cases(
    "source",
    [
        "import time\ndef f():\n    return time.time()",
        "from time import time_ns",
        "from datetime import datetime\nx = datetime.now(UTC)",
        "import datetime\nasync def f():\n    return datetime.datetime.utcnow()",
        "def f():\n    g(default_factory=datetime.now)",
    ],
)
def test_a_clock_that_is_read_is_found(source: str) -> None:
    assert list(clocks_read(module_of(source)))


@pytest.mark.parametrize("source", ["time.monotonic()", "clock.now()", "loop.time()"])
def test_a_clock_that_does_not_tell_the_time_of_day_is_let_through(source: str) -> None:
    assert list(clocks_read(module_of(source))) == []


# The shape of the package.


def test_no_module_is_longer_than_it_may_be() -> None:
    lengths = {module.name: len(module.path.read_text().splitlines()) for module in modules()}

    assert {name: lines for name, lines in lengths.items() if lines > A_MODULE_HAS_AT_MOST} == {}


def test_imports_go_only_inwards() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run([command], cwd=_project(), capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout


def _project() -> Path:
    return Path(__file__).parents[2]
