"""What a sweep answers."""

import msgspec


class Moved(msgspec.Struct, frozen=True):
    """How many rows it moved."""

    moved: int
