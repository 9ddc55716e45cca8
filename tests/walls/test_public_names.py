"""What users import: a name that appears or disappears here is a decision."""

from __future__ import annotations

from types import ModuleType

import pytest

import flowfabric
import flowfabric.testing

PINNED = """
AllOf AnyOf App Call ChildFailed Client Codec ConfigError Conflict Contention Ctx Depends Engine
EngineError ExecutionCancelled ExecutionExpired ExecutionFailed ExecutionId ExecutionSkipped Fail
Flow FlowCancelled FlowFabricError FlowFailed FlowHandle Handle JsonCodec LeaseExpired LeaseLost
MsgpackCodec NonDeterministicReplay NotFound OutcomeError PublicState Quorum ResourceExhausted
ResultTimeout Retry StaleLease StateError Task TransportError Unavailable ValidationError Worker
"""
PINNED_FOR_TESTS = "Clock TestServer"


@pytest.mark.parametrize(
    ("module", "names"), [(flowfabric, PINNED), (flowfabric.testing, PINNED_FOR_TESTS)]
)
def test_the_public_names_are_pinned(module: ModuleType, names: str) -> None:
    assert sorted(module.__all__) == names.split()


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in flowfabric.__all__:
        assert getattr(flowfabric, name).__doc__, name
