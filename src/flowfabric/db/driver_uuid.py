"""The driver's own class of UUIDs: made from bytes, and sent, without a line of Python.

It is a subclass of `uuid.UUID`, and what every statement answers.
"""

from __future__ import annotations

from asyncpg.pgproto.pgproto import UUID as DriverUUID  # noqa: N811

__all__ = ["DriverUUID"]
