"""Resume conditions: which signals on which waitpoints let a suspended execution go on.

condition  the kinds of conditions, and the signals that conditions are about
stored     conditions as JSON
check      the checks before anything waits for a condition
evaluate   which signals satisfy a condition
"""

from flowfabric.conditions.check import MAX_NAME, check_condition, check_timeout
from flowfabric.conditions.condition import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    Distinct,
    Match,
    OperatorOnly,
    Received,
    Signal,
    Signals,
    Single,
    TimeoutOnly,
    UnknownCondition,
)
from flowfabric.conditions.evaluate import (
    OPERATOR_ONLY,
    TIMEOUT_ONLY,
    can_be_satisfied,
    counted_signals,
    is_satisfied,
    keys_of,
    match_of_last,
    remaining,
    required_names,
    satisfiers,
)
from flowfabric.conditions.stored import decode_condition, encode_condition

__all__ = [
    "MAX_NAME",
    "OPERATOR_ONLY",
    "TIMEOUT_ONLY",
    "AllConditions",
    "AnyCondition",
    "Condition",
    "CountOf",
    "Distinct",
    "Match",
    "OperatorOnly",
    "Received",
    "Signal",
    "Signals",
    "Single",
    "TimeoutOnly",
    "UnknownCondition",
    "can_be_satisfied",
    "check_condition",
    "check_timeout",
    "counted_signals",
    "decode_condition",
    "encode_condition",
    "is_satisfied",
    "keys_of",
    "match_of_last",
    "remaining",
    "required_names",
    "satisfiers",
]
