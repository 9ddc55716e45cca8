"""Commands that need packages which only an extra of FlowFabric installs."""

from importlib.util import find_spec

from flowfabric.errors import ConfigError


def require(modules: tuple[str, ...], *, field: str, value: str, extra: str) -> None:
    """Raise `ConfigError`, naming the extra to install, unless every one of `modules` is there."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        why = f"needs {', '.join(missing)}: pip install 'flowfabric[{extra}]'"
        raise ConfigError(field, value, why)
