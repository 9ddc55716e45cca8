"""A task: the function that runs executions of one kind, and their settings."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from types import SimpleNamespace
from typing import (
    Any,
    Generic,
    Never,
    NoReturn,
    ParamSpec,
    TypeVar,
    cast,
    is_typeddict,
)

import msgspec

from flowfabric.app.check_function import annotations_of, check_function
from flowfabric.app.check_types import check_types
from flowfabric.app.codec import RAW, UNENCODABLE, Codec, JsonCodec, MsgpackCodec
from flowfabric.app.depends import Dependency, Plan
from flowfabric.app.limit import TaskLimit
from flowfabric.app.mismatch import SCALARS, decode_mismatch, scalar_mismatch
from flowfabric.app.overrides import Overrides
from flowfabric.app.passable import Field, is_model
from flowfabric.app.result_type import ResultType, codec_of
from flowfabric.app.unencodable import unencodable
from flowfabric.errors import (
    PAYLOAD_DECODE,
    ConfigError,
    Fail,
    ValidationError,
)
from flowfabric.limits import Merged, with_key_of
from flowfabric.policy import ExecutionPolicy
from flowfabric.worker.durable.settings import DurableSettings
from flowfabric.worker.environment import Environment
from flowfabric.worker.handler import EncodedResult, Handler
from flowfabric.worker.run_task import Middleware, run_task

P = ParamSpec("P")
R = TypeVar("R")


class Call(Generic[R]):
    """A task with its arguments, ready to submit."""

    __slots__ = ("limit_key", "merged", "payload", "task")

    def __init__(
        self,
        task: Task[..., R],
        payload: bytes,
        limit_key: str | None = None,
        merged: Merged | None = None,
    ) -> None:
        self.task, self.payload, self.limit_key, self.merged = task, payload, limit_key, merged

    def __repr__(self) -> str:
        return f"<call of {self.task.kind!r}, {len(self.payload)} bytes>"


class PartialCall(Generic[R]):
    """A task with some of its arguments; only a flow takes it, whose members feed the others."""

    __slots__ = ("call", "missing")

    def __init__(self, call: Call[R], missing: frozenset[str]) -> None:
        self.call, self.missing = call, missing

    def __repr__(self) -> str:
        return f"<partial call of {self.call.task.kind!r} without {sorted(self.missing)}>"


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
        durable: DurableSettings | None = None,
        limit: TaskLimit | None = None,
        merged: Merged | None = None,
    ) -> None:
        check_function(function, kind)
        hints = annotations_of(function, kind)
        if in_process and (inspect.iscoroutinefunction(function) or _is_main(function)):
            why = "executor='process' needs a plain function of an importable module"
            raise ConfigError("task", kind, why)
        self.in_process = in_process
        self.function, self.kind, self.lane = function, kind, lane
        self.requires = tuple(sorted(requires))
        self.priority, self.policy = priority, policy
        self.limit, self.merged = limit, merged
        self._codec, self.middleware = codec, middleware
        self.state = state
        self._retry_on, self._no_retry_on = retry_on, no_retry_on
        self._durable = msgspec.structs.replace(
            durable or DurableSettings(), codec=codec, encode_arguments=self._encoded_call
        )
        self.plan = Plan(function, owner=f"task {kind!r}", overrides=overrides)
        self.is_async = inspect.iscoroutinefunction(function)
        self._parameters = _payload_parameters(function, hints)
        self.arguments = {
            name: Field(each.annotation, each.required) for name, each in self._parameters.items()
        }
        """The arguments that come from the payload, with their types."""
        returns = hints.get("return", Any)
        self.returns = returns = Any if returns in (NoReturn, Never) else returns
        """The type of the result; `Any` without an annotation."""
        self._single = _single_model(self._parameters)
        self._shape = None if self._single else _shape(kind, self._parameters)
        self._decoders: dict[str, Callable[[bytes], Any]] = {}
        for name, parameter in self._parameters.items():
            check_types(kind, f"parameter {name!r}", codec, parameter.annotation)
        check_types(kind, "its result", codec, returns)
        self._result_type = ResultType(kind, codec, returns)
        self.__name__ = getattr(function, "__name__", kind)
        self.__doc__ = function.__doc__

    @property
    def payload_type(self) -> Any:
        """The type of the whole payload: the only model, or a struct with all arguments."""
        return self._single or self._shape

    @property
    def encoding(self) -> str:
        return RAW if self._single is bytes else self._codec.name

    @property
    def codec_name(self) -> str:
        return self._codec.name

    @property
    def takes_whole_payload(self) -> bool:
        """Is the payload the only argument: a model, or bytes?"""
        return self._single is not None

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """This task with these arguments; raises `ValidationError` when they do not match."""
        given = self._bound(args, kwargs)
        payload = self._payload_of(given)
        if self.limit is None and self.merged is None:
            return Call(self, payload)
        values = [given.get(name, each.default) for name, each in self._parameters.items()]
        limit_key = None if self.limit is None else self.limit.key_of(self.kind, values)
        merged = None if self.merged is None else with_key_of(self.merged, self.kind, values)
        return Call(self, payload, limit_key, merged)

    def _payload_of(self, given: dict[str, Any]) -> bytes:
        if self._single is None:
            return self._encode_arguments(given)
        [(name, parameter)] = self._parameters.items()
        value = given.get(name, parameter.default)
        if not is_typeddict(self._single) and not isinstance(value, self._single):
            wanted = self._single.__name__
            raise self._invalid(f"argument {name!r} must be {wanted}, not {type(value).__name__}")
        if self._single is bytes:
            return value
        payload = self._encode(value)
        self._check_readable(payload, f"{name}")
        return payload

    def partial(self, *args: Any, **kwargs: Any) -> PartialCall[R]:
        """This task with these arguments, for `flow.add(...).after(..., feed=...)`.

        The arguments that are left out are those that upstreams feed. Raises `ValidationError` for
        an argument that does not match.
        """
        given = self._bound(args, kwargs, partial=True)
        missing = frozenset(
            name for name, each in self._parameters.items() if each.required and name not in given
        )
        if not missing:
            call = cast("Callable[..., Call[R]]", self.call)
            return PartialCall(call(**given), missing)
        if self._single is bytes:
            return PartialCall(Call(self, b""), missing)
        return PartialCall(Call(self, self._encode_arguments(given, partial=True)), missing)

    def many(self, items: Iterable[Any]) -> list[Call[R]]:
        """One call for each item, with the item as the only argument."""
        call = cast("Callable[[Any], Call[R]]", self.call)
        return [call(item) for item in items]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, in this process."""
        return self.function(*args, **kwargs)

    def read_result(self, result: bytes | None, encoding: str | None = None) -> R:
        """Decode a stored result into the value that the function returned.

        Raises `ResultDecodeError` if it is not of the type that the function is annotated with.
        """
        return cast("R", self._result_type.read(result, encoding))

    def handler(self, environment: Environment) -> Handler:
        """How a worker runs this task."""
        return Handler(
            kind=self.kind,
            run=partial(run_task, self, environment),
            read_result=self.read_result,
            retry_on=self._retry_on,
            no_retry_on=self._no_retry_on,
            durable=self._durable,
        )

    def _encoded_call(self, *args: P.args, **kwargs: P.kwargs) -> tuple[bytes, str | None]:
        return self.call(*args, **kwargs).payload, self.encoding

    # When a call is made.

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, partial: bool = False
    ) -> dict[str, Any]:
        if not args and kwargs.keys() == self._parameters.keys():
            return kwargs
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
            if name not in given and parameter.required and not partial:
                raise self._invalid(f"argument {name!r} is missing")
        return given

    def _invalid(self, why: str) -> ValidationError:
        return ValidationError("invalid_input", f"task {self.kind!r} {why}")

    def _encode_arguments(self, given: dict[str, Any], *, partial: bool = False) -> bytes:
        """The payload of these arguments; raises `ValidationError` if one is of another type."""
        scalars = self._scalars
        for name, value in given.items():
            if type(value) is not scalars.get(name):
                break
        else:
            return self._encode(given)
        payload = self._encode(self._in_order(given))
        for name, value in given.items():
            why = scalar_mismatch(value, self._parameters[name].annotation)
            if why is not None:
                raise self._invalid(f"cannot take argument {name}: {why}")
        self._check_readable(payload, partial=partial)
        return payload

    def _in_order(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments, sets as sorted lists: equal arguments are equal bytes in every process."""
        sets = [name for name, value in given.items() if isinstance(value, set | frozenset)]
        if not sets or not isinstance(self._codec, JsonCodec | MsgpackCodec):
            return given
        with contextlib.suppress(TypeError):  # of values that have no order
            return given | {name: sorted(given[name]) for name in sets}
        return given

    def _check_readable(self, payload: bytes, name: str = "", *, partial: bool = False) -> None:
        """Raise `ValidationError` unless a worker with this task can read the payload."""
        try:
            decode = self._partial_decoder if partial else self._decoder_for(self._codec.name)
            decode(payload)
        except Exception as error:
            path, why = decode_mismatch(error)
            place = (name + path[1:]).removeprefix(".") or "of another type"
            raise self._invalid(f"cannot take argument {place}: {why}") from None

    def _encode(self, value: object) -> bytes:
        try:
            return self._codec.encode(value)
        except UNENCODABLE as error:
            why = unencodable(value, error, self._codec)
            raise self._invalid(f"cannot encode its arguments: {why}") from None

    @cached_property
    def _scalars(self) -> dict[str, type]:
        """The arguments that are scalars: a value of just that type needs no further check."""
        annotations = {name: each.annotation for name, each in self._parameters.items()}
        return {
            name: wanted
            for name, wanted in annotations.items()
            if isinstance(wanted, type) and wanted in SCALARS
        }

    @cached_property
    def _partial_decoder(self) -> Callable[[bytes], Any]:
        """Decodes a payload in which any argument may be missing."""
        optional = {
            name: _Parameter(each.annotation, required=False, default=None)
            for name, each in self._parameters.items()
        }
        return self._codec.decoder(_shape(self.kind, optional))

    # In the worker.

    def decode(self, payload: bytes, encoding: str | None) -> dict[str, Any]:
        """The arguments in a payload, by name; raises `Fail` when it does not decode."""
        if self._single is bytes:
            return {next(iter(self._parameters)): payload}
        try:
            value = self._decoder_for(encoding)(payload)
        except Exception as error:
            raise Fail(
                f"payload of {self.kind!r} does not decode: {error}",
                category=PAYLOAD_DECODE,
                retryable=False,
            ) from None
        if self._single:
            return {next(iter(self._parameters)): value}
        return msgspec.structs.asdict(value)

    def _decoder_for(self, encoding: str | None) -> Callable[[bytes], Any]:
        name = encoding or ""
        if name not in self._decoders:
            codec = codec_of(encoding, own=self._codec)
            self._decoders[name] = codec.decoder(self._single or self._shape)
        return self._decoders[name]

    def encode_result(self, result: object, encoding: str | None) -> EncodedResult:
        """The result in the encoding of its payload; raises `Fail` when it cannot be stored."""
        return self._result_type.encode(result, encoding)


class _Parameter(msgspec.Struct, frozen=True):
    annotation: Any
    required: bool
    default: Any


def _payload_parameters(
    function: Callable[..., Any], hints: dict[str, Any]
) -> dict[str, _Parameter]:
    """The parameters that come from the payload: all but the context and dependencies."""
    found: dict[str, _Parameter] = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if isinstance(parameter.default, Dependency):
            continue
        required = parameter.default is parameter.empty
        found[name] = _Parameter(
            hints.get(name, Any), required, None if required else parameter.default
        )
    return found


def _single_model(parameters: dict[str, _Parameter]) -> Any:
    """The type of the only parameter, if the whole payload is one object of that type."""
    if len(parameters) != 1:
        return None
    [parameter] = parameters.values()
    wanted = parameter.annotation
    return wanted if wanted is bytes or is_model(wanted) else None


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


def _is_main(function: Callable[..., Any]) -> bool:
    return function.__module__ == "__main__"


def _default_of(parameter: _Parameter) -> Any:
    return parameter.default
