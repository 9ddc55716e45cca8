"""`Engine`, and every type that calling it takes or answers with.

The packages below hold one operation per module; programs import from here.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowfabric.engine.on_first_use import *  # noqa: F403
    from flowfabric.engine.on_first_use import __all__ as __all__


def __getattr__(name: str) -> object:
    # Modules below are imported one by one; all of them together take a tenth of a second.
    import flowfabric.engine.on_first_use as names

    if name != "__all__" and name not in names.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(names, name)
