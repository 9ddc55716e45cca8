"""After every test the invariants of flows hold."""

from tests.engine.flows.conftest import database, pytest_runtest_makereport, sound

__all__ = ["database", "pytest_runtest_makereport", "sound"]
