"""The settings of one worker process."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Literal, TypedDict

import msgspec

from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.errors import ConfigError, ValidationError
from flowfabric.ids import check_list, check_name
from flowfabric.policy import capabilities_of, check_capabilities, milliseconds
from flowfabric.version import __version__
from flowfabric.worker.renewal_schedule import HEARTBEAT


class Registration(TypedDict):
    """The arguments of `register_worker`."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...]
    capabilities: tuple[str, ...]
    kinds: tuple[str, ...]
    concurrency: int
    liveness_ttl: float
    namespace: str
    version: str
    host: str


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Checked when created: raises `ConfigError` for a setting that is not valid."""

    lanes: tuple[str, ...] = ("default",)
    namespace: str = "default"
    worker_id: str = "worker"
    worker_instance_id: str = ""
    capabilities: tuple[str, ...] = ()
    concurrency: int = 64
    sync_workers: int = 32
    max_stuck_threads: int | None = None
    """How many threads may be stuck before their kinds are not claimed; None: `sync_workers`."""
    lease_ttl: float = 30.0
    drain: float = 30.0
    prefetch: int = 512
    """How many executions may be claimed beyond the free slots; used when handlers are fast."""
    transactions: int = 4
    """How many handlers may have a transaction at a time; each one uses a connection."""
    on_lease_lost: Literal["cancel", "ignore"] = "cancel"
    lease_history: Literal["brief", "full"] = "brief"
    reconcile: bool = True

    def __post_init__(self) -> None:
        for field in ("lanes", "capabilities"):
            msgspec.structs.force_setattr(self, field, listed(field, getattr(self, field)))
        _check_one_of("on_lease_lost", self.on_lease_lost, "cancel", "ignore")
        _check_one_of("lease_history", self.lease_history, "brief", "full")
        _check_one_of("reconcile", self.reconcile, True, False)
        for field in ("concurrency", "sync_workers", "transactions"):
            _check_count(field, getattr(self, field), at_least=1)
        if self.max_stuck_threads is not None:
            _check_count("max_stuck_threads", self.max_stuck_threads, at_least=1)
        _check_count("prefetch", self.prefetch, at_least=0)
        try:
            milliseconds(self.lease_ttl, field="lease_ttl")
            milliseconds(self.drain, field="drain")
        except ValidationError as error:
            raise ConfigError("worker", "settings", error.detail) from None
        if self.lease_ttl < 1:
            raise ConfigError("worker", "lease_ttl", f"{self.lease_ttl} is not at least 1 second")
        if self.drain < 0:
            raise ConfigError("worker", "drain", f"{self.drain} must not be negative")
        try:
            check_name(self.namespace, field="namespace")
            capabilities_of(self.capabilities, field="capabilities", side="worker")
            self.claimant(kinds=None, instance=self.worker_instance_id or "any")
        except ValidationError as error:
            raise ConfigError("worker", "settings", error.detail) from None

    def claimant(self, *, kinds: tuple[str, ...] | None, instance: str) -> Claimant:
        """This worker as the claim statement needs it."""
        return Claimant(
            worker_id=self.worker_id,
            worker_instance_id=instance,
            lanes=self.lanes,
            namespace=self.namespace,
            kinds=kinds,
            capabilities=tuple(check_capabilities(self.capabilities, side="worker")),
        )

    def registration(self, instance: str, kinds: tuple[str, ...]) -> Registration:
        """This worker process as the registry lists it; its heartbeats keep it listed."""
        return Registration(
            worker_id=self.worker_id,
            worker_instance_id=instance,
            lanes=self.lanes,
            capabilities=self.capabilities,
            kinds=kinds,
            concurrency=self.concurrency,
            liveness_ttl=3 * HEARTBEAT,
            namespace=self.namespace,
            version=__version__,
            host=socket.gethostname()[:256],
        )

    def instance_id(self) -> str:
        """The name of this process: `worker_instance_id`, or host, process id and a random part."""
        if self.worker_instance_id:
            return self.worker_instance_id
        host = "".join(c if c.isalnum() else "-" for c in socket.gethostname()) or "host"
        return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


def listed(field: str, given: object) -> tuple[str, ...]:
    """The names in a list, each once; raises `ConfigError` for a text and for anything else."""
    try:
        return tuple(dict.fromkeys(check_list(given, field=field)))
    except ValidationError as error:
        raise ConfigError("worker", field, error.detail) from None
    except TypeError:  # members that cannot be compared
        raise ConfigError("worker", field, f"{given!r} must be a list of texts") from None


def _check_one_of(field: str, given: object, *allowed: object) -> None:
    if not any(given is each or (given == each and type(given) is str) for each in allowed):
        choices = " or ".join(map(repr, allowed))
        raise ConfigError("worker", field, f"{given!r} must be {choices}")


def _check_count(field: str, given: object, *, at_least: int) -> None:
    if type(given) is not int:
        raise ConfigError("worker", field, f"{given!r} is not a whole number")
    if given < at_least:
        raise ConfigError("worker", field, f"{given} is not at least {at_least}")
