"""The exit code says how a command ended: 0 done, 1 failed, 2 usage, 3 timeout, 4 no database."""

from __future__ import annotations

from collections.abc import Iterator

from flowfabric import App, Ctx, errors
from flowfabric.cli.exit_codes import exit_code
from tests.all_cases import all_cases
from tests.cli.conftest import Inside, one_line


def classes(kind: type[errors.FlowFabricError]) -> Iterator[type[errors.FlowFabricError]]:
    for each in kind.__subclasses__():
        yield each
        yield from classes(each)


@all_cases(
    ("error", "code"),
    [
        (errors.ExecutionFailed.__new__(errors.ExecutionFailed), 1),
        (errors.NotFound("lane", "x"), 1),
        (errors.ValidationError("invalid_input", "execution x already ended"), 1),
        (errors.invalid_input("lane", "x", "is no lane"), 2),
        (errors.ValidationError("invalid_kid", "kid must not hold a colon"), 2),
        (errors.ConfigError("application", "x", "has no tasks"), 2),
        (errors.PermissionDenied("migrate", "not the owner"), 1),
        (errors.NeedsDatabase("submit", "conn="), 1),
        (errors.ResultTimeout.__new__(errors.ResultTimeout), 3),
        (errors.OperationTimeout("x"), 3),
        (errors.ConfigError("database", "FF_DATABASE_URL", "is not set"), 4),
        (errors.TransportError("gone"), 4),
        (errors.Unavailable("schema", "run ff migrate"), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_its_code(error: errors.FlowFabricError, code: int) -> None:
    assert exit_code(error) == code


def test_every_outcome_is_a_failure_of_the_execution() -> None:
    for outcome in classes(errors.OutcomeError):
        assert exit_code(outcome.__new__(outcome)) == 1


async def test_submit_and_wait_ends_as_the_execution_does(ff: Inside, ff_dsn: str) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx, fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "done"

    waiting = await ff("submit", "later", "--timeout", "0.01s")
    async with app.worker(dsn=ff_dsn):
        done = await ff("submit", "job", '{"fails": false}', "--wait")
        failed = await ff("submit", "job", '{"fails": true}', "--wait")

    assert (done.code, done.out.splitlines()[-1]) == (0, '"done"')
    assert (failed.code, "no" in failed.err) == (1, True)
    assert waiting.code == 3
    assert "later" in waiting.err


async def test_no_database_is_told_before_an_id_is_looked_up(ff_alone: Inside) -> None:
    uuid = "00000000-0000-4000-8000-000000000000"

    assert "FF_DATABASE_URL" in one_line(await ff_alone("explain", uuid), 4)
