"""Budgets: what happens at a hard limit."""

from enum import StrEnum


class EnforcementMode(StrEnum):
    """What a hard limit of a budget does."""

    STRICT = "strict"
    """Reports beyond it are refused, and work that is attached to the spent budget is held back."""
    WARN = "warn"
    """Breaches are counted and reported; nothing is refused or held back."""
