"""The engine of the test's own database."""

import pytest

from flowfabric.engine.engine import Engine


@pytest.fixture
async def engine(ff_engine: Engine) -> Engine:
    return ff_engine
