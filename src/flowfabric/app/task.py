"""A task: the function that runs executions of one kind, and their settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import NoneType, SimpleNamespace
from typing import (
    Any,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    is_typeddict,
)

import msgspec

from flowfabric.app.codec import JSON, MSGPACK, RAW, UNENCODABLE, Codec
from flowfabric.app.depends import Dependency, Plan
from flowfabric.app.overrides import Overrides
from flowfabric.errors import (
    PAYLOAD_DECODE,
    RESULT_ENCODE,
    ConfigError,
    Fail,
    RetryLater,
    ValidationError,
    invalid_input,
)
from flowfabric.policy import ExecutionPolicy, Retry, TimeoutPolicy, milliseconds
from flowfabric.stored_policy import DEFAULT_RECLAIMS
from flowfabric.worker.context import Ctx
from flowfabric.worker.environment import Environment
from flowfabric.worker.handler import EncodedResult, Handler
from flowfabric.worker.run_task import Middleware, run_task

P = ParamSpec("P")
R = TypeVar("R")

_BUILT_IN: Final[Mapping[str, Codec]] = {JSON.name: JSON, MSGPACK.name: MSGPACK}


class Call(Generic[R]):
    """A task with its arguments, ready to submit."""

    __slots__ = ("payload", "task")

    def __init__(self, task: Task[..., R], payload: bytes) -> None:
        self.task, self.payload = task, payload

    def __repr__(self) -> str:
        return f"<call of {self.task.kind!r}, {len(self.payload)} bytes>"


class Task(Generic[P, R]):
    """A registered function; clients submit `task.call(...)`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: str,
        lane: str,
        codec: Codec,
        middleware: Sequence[Middleware],
        state: SimpleNamespace,
        overrides: Overrides,
        requires: Iterable[str] = (),
        policy: ExecutionPolicy | None = None,
        priority: int = 0,
        retry_on: tuple[type[BaseException], ...] = (),
        no_retry_on: tuple[type[BaseException], ...] = (),
        in_process: bool = False,
    ) -> None:
        if in_process and (inspect.iscoroutinefunction(function) or _is_main(function)):
            why = "executor='process' needs a plain function of an importable module"
            raise ConfigError("task", kind, why)
        self.in_process = in_process
        self.function, self.kind, self.lane = function, kind, lane
        self.requires = tuple(sorted(requires))
        self.priority = priority
        self.policy = policy
        self._codec, self.middleware = codec, middleware
        self.state = state
        self._retry_on, self._no_retry_on = retry_on, no_retry_on
        self.plan = Plan(function, owner=f"task {kind!r}", overrides=overrides)
        self.is_async = inspect.iscoroutinefunction(function)
        self._parameters, self._returns = _payload_parameters(function, kind)
        self._single = _single_model(self._parameters)
        self._shape = None if self._single else _shape(kind, self._parameters)
        self._raw_result = _is_raw(self._returns)
        self._decoders: dict[str, Callable[[bytes], Any]] = {}
        for name, parameter in self._parameters.items():
            _check_decodable(kind, f"parameter {name!r}", codec, parameter.annotation)
        _check_decodable(kind, "its result", codec, self._returns)
        self._untyped_result = self._returns is Any
        self._result_decoders: dict[str, Callable[[bytes], Any]] = {}
        self.__name__ = getattr(function, "__name__", kind)
        self.__doc__ = function.__doc__

    @property
    def payload_type(self) -> Any:
        """The type of the whole payload: the only model, or a struct with all arguments."""
        return self._single or self._shape

    @property
    def encoding(self) -> str:
        return RAW if self._single is bytes else self._codec.name

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """This task with these arguments; raises `ValidationError` when they do not match."""
        given = self._bound(args, kwargs)
        if self._single is None:
            return Call(self, self._encode(given))
        [(name, parameter)] = self._parameters.items()
        value = given.get(name, parameter.default)
        if not is_typeddict(self._single) and not isinstance(value, self._single):
            wanted = self._single.__name__
            raise self._invalid(f"argument {name!r} must be {wanted}, not {type(value).__name__}")
        return Call(self, value if self._single is bytes else self._encode(value))

    def many(self, items: Iterable[Any]) -> list[Call[R]]:
        """One call for each item, with the item as the only argument."""
        call = cast("Callable[[Any], Call[R]]", self.call)
        return [call(item) for item in items]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, in this process."""
        return self.function(*args, **kwargs)

    def read_result(self, result: bytes | None, encoding: str | None = None) -> R:
        """Decode a stored result into the value that the function returned."""
        if result is None or self._raw_result or (encoding == RAW and self._untyped_result):
            return cast("R", result)
        name = encoding or ""
        if name not in self._result_decoders:
            own = name == self._codec.name
            codec = self._codec if own else _BUILT_IN.get(name, self._codec)
            self._result_decoders[name] = codec.decoder(self._returns)
        return self._result_decoders[name](result)

    def handler(self, environment: Environment) -> Handler:
        """How a worker runs this task."""
        return Handler(
            kind=self.kind,
            run=partial(run_task, self, environment),
            retry_on=self._retry_on,
            no_retry_on=self._no_retry_on,
        )

    # When a call is made.

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._parameters):
            raise self._invalid(f"takes {len(self._parameters)} arguments, {len(args)} were given")
        given = dict(zip(self._parameters, args, strict=False))
        for name, value in kwargs.items():
            if name not in self._parameters:
                raise self._invalid(f"has no argument {name!r}")
            if name in given:
                raise self._invalid(f"argument {name!r} was given twice")
            given[name] = value
        for name, parameter in self._parameters.items():
            if name not in given and parameter.required:
                raise self._invalid(f"argument {name!r} is missing")
        return given

    def _invalid(self, why: str) -> ValidationError:
        return ValidationError("invalid_input", f"task {self.kind!r} {why}")

    def _encode(self, value: object) -> bytes:
        try:
            return self._codec.encode(value)
        except UNENCODABLE as error:
            raise self._invalid(f"cannot encode its arguments: {error}") from None

    # In the worker.

    def decode(self, payload: bytes, encoding: str | None) -> dict[str, Any]:
        """The arguments in a payload, by name; raises `Fail` when it does not decode."""
        if self._single is bytes:
            return {next(iter(self._parameters)): payload}
        decoder = self._decoders.get(encoding or "")
        try:
            if decoder is None:
                decoder = self._decoders[encoding or ""] = self._decoder_for(encoding)
            value = decoder(payload)
        except Exception as error:
            raise Fail(
                f"payload of {self.kind!r} does not decode: {error}",
                category=PAYLOAD_DECODE,
                retryable=False,
            ) from None
        if self._single:
            return {next(iter(self._parameters)): value}
        return {name: getattr(value, name) for name in self._parameters}

    def _decoder_for(self, encoding: str | None) -> Callable[[bytes], Any]:
        return self._codec_of(encoding).decoder(self._single or self._shape)

    def _codec_of(self, encoding: str | None) -> Codec:
        if encoding in (None, RAW, self._codec.name):
            return self._codec
        if encoding not in _BUILT_IN:
            raise ValueError(f"encoding {encoding!r} is unknown")
        return _BUILT_IN[encoding]

    def encode_result(self, result: object, encoding: str | None) -> EncodedResult:
        """The result in the encoding of its payload; raises `Fail` when it cannot be encoded.

        Bytes that the task returns as its whole result stay as they are.
        """
        if result is None:
            return EncodedResult()
        if isinstance(result, bytes) and (self._raw_result or self._untyped_result):
            return EncodedResult(result, None if encoding == RAW else RAW)
        if isinstance(result, Retry | RetryLater):
            raise Fail(
                f"{self.kind!r} returned a {type(result).__name__}; a handler that is to be tried"
                " again raises RetryLater",
                category=RESULT_ENCODE,
                retryable=False,
            )
        try:
            codec = self._codec_of(encoding)
            data = codec.encode(result)
            return EncodedResult(data, None if encoding == codec.name else codec.name)
        except UNENCODABLE as error:
            raise Fail(
                f"result of {self.kind!r} cannot be encoded: {error}",
                category=RESULT_ENCODE,
                retryable=False,
            ) from None


class _Parameter(msgspec.Struct, frozen=True):
    annotation: Any
    required: bool
    default: Any


def task_policy(
    retry: object,
    timeout: float | timedelta | None,
    deadline: float | timedelta | None,
    max_reclaims: int | None,
) -> ExecutionPolicy | None:
    """The policy of a task with these settings; raises `ValidationError` if one is not valid."""
    if retry is None and timeout is None and deadline is None and max_reclaims is None:
        return None
    limits = None
    if timeout is not None or deadline is not None:
        limits = TimeoutPolicy(
            attempt_timeout=_limit("timeout", timeout),
            execution_deadline=_limit("deadline", deadline),
        )
    if retry is not None and not isinstance(retry, Retry):
        raise invalid_input("retry", retry, "must be a Retry")
    return ExecutionPolicy(
        retry_policy=None if retry is None else retry.policy,
        timeout_policy=limits,
        max_reclaim_count=DEFAULT_RECLAIMS if max_reclaims is None else max_reclaims,
    )


def _limit(setting: str, given: float | timedelta | None) -> float | None:
    """A time limit in seconds; raises `ValidationError` that names the task's setting."""
    if given is None:
        return None
    limit = milliseconds(given, field=setting) / 1000
    if limit < 0:
        raise invalid_input(setting, given, "must not be negative")
    return limit


def _payload_parameters(
    function: Callable[..., Any], kind: str
) -> tuple[dict[str, _Parameter], Any]:
    """The parameters that come from the payload, and the type of the result."""
    signature = inspect.signature(function)
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise ConfigError("task", kind, f"annotation cannot be resolved: {error}") from None
    names = list(signature.parameters)
    if not names:
        raise ConfigError("task", kind, "its first parameter must be the context (ctx: Ctx)")
    if hints.get(names[0], Ctx) not in (Ctx, Any):
        raise ConfigError("task", kind, f"its first parameter, {names[0]!r}, must be of type Ctx")
    found: dict[str, _Parameter] = {}
    for name in names[1:]:
        parameter = signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError("task", kind, f"parameter *{name} cannot come from a payload")
        if isinstance(parameter.default, Dependency):
            continue
        required = parameter.default is parameter.empty
        found[name] = _Parameter(
            hints.get(name, Any), required, None if required else parameter.default
        )
    return found, hints.get("return", Any)


def _single_model(parameters: dict[str, _Parameter]) -> Any:
    """The type of the only parameter, if the whole payload is one object of that type."""
    if len(parameters) != 1:
        return None
    [parameter] = parameters.values()
    wanted = parameter.annotation
    return wanted if wanted is bytes or _is_model(wanted) else None


def _is_model(wanted: Any) -> bool:
    if not isinstance(wanted, type):
        return False
    kind = cast("type[object]", wanted)
    return (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or hasattr(kind, "model_validate")
        or is_typeddict(kind)
    )


def _shape(kind: str, parameters: dict[str, _Parameter]) -> type[msgspec.Struct]:
    """A struct with a field for each argument, so that one decoding checks them all."""
    fields = [
        (name, parameter.annotation)
        if parameter.required
        else (
            name,
            parameter.annotation,
            msgspec.field(default_factory=partial(_default_of, parameter)),
        )
        for name, parameter in parameters.items()
    ]
    name = "".join(letter if letter.isalnum() else "_" for letter in kind)
    return msgspec.defstruct(f"payload_{name}", fields, kw_only=True)


def _check_decodable(kind: str, what: str, codec: Codec, wanted: Any) -> None:
    """Raise `ConfigError` for a type that the codec cannot decode."""
    try:
        codec.decoder(wanted)
    except Exception as error:
        raise ConfigError("task", kind, f"{what} cannot be decoded: {error}") from None


def _is_raw(returns: Any) -> bool:
    """Are results bytes, which are stored as they are?"""
    return returns is bytes or set(get_args(returns)) == {bytes, NoneType}


def _is_main(function: Callable[..., Any]) -> bool:
    return function.__module__ == "__main__"


def _default_of(parameter: _Parameter) -> Any:
    return parameter.default
