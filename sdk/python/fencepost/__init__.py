"""Fencepost over HTTP, from Python: effects that happen once, and retries that are safe.

Needs nothing but the standard library. Never runs an effect without a claim, and never sends a retry under another key or
token than the first try.
"""

from ._client import Answer, Fencepost
from ._done import Done, NotApplied, Outcome, Unsealed
from ._effect import Claim, Effect
from ._errors import (
    Conflict,
    Error,
    FencedOff,
    InDoubt,
    InFlight,
    Problem,
    Refused,
    SequenceGap,
    Stale,
    Unavailable,
)
from ._retry import Retry, uuid7

__all__ = [
    "Answer",
    "Claim",
    "Conflict",
    "Done",
    "Effect",
    "Error",
    "FencedOff",
    "Fencepost",
    "InDoubt",
    "InFlight",
    "NotApplied",
    "Outcome",
    "Problem",
    "Refused",
    "Retry",
    "SequenceGap",
    "Stale",
    "Unavailable",
    "Unsealed",
    "uuid7",
]
