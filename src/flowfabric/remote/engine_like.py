"""What client and worker stand on: the engine itself, or the same operations over HTTP.

Every call on an `EngineLike` is checked against both classes, so their signatures cannot differ.
"""

from typing import TypeAlias

from flowfabric.engine.engine import Engine
from flowfabric.remote.engine import RemoteEngine

EngineLike: TypeAlias = Engine | RemoteEngine
