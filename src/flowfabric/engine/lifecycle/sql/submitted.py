"""What was submitted with an idempotency key is kept when the payload is replaced."""

from __future__ import annotations

from typing import Final, LiteralString

SUBMITTED_KEPT: Final[LiteralString] = """submitted_payload = CASE
               WHEN b.idempotency_key IS NOT NULL THEN coalesce(b.submitted_payload, b.payload) END,
           submitted_encoding = CASE
               WHEN b.submitted_payload IS NOT NULL THEN b.submitted_encoding
               WHEN b.idempotency_key IS NOT NULL THEN b.payload_encoding END"""
"""Beside `payload` in the SET list of an update of `ff.exec_body b`."""
