import pytest

from flowfabric.cli.extras import require
from flowfabric.errors import ConfigError


def test_packages_that_are_installed_are_no_obstacle() -> None:
    require(("json", "typer"), field="server", value="ff server", extra="server")


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(ConfigError) as refused:
        require(("json", "no_such_package"), field="server", value="ff server", extra="server")

    message = str(refused.value)
    assert "needs no_such_package: pip install 'flowfabric[server]'" in message
    assert "json" not in message
