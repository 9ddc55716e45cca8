"""After every test the invariants of flows hold."""

from tests.engine.flows.conftest import pytest_runtest_makereport, sound

__all__ = ["pytest_runtest_makereport", "sound"]
