"""The little JSON that a client needs. Never parses a receipt and writes it again: duplicates get the first one's bytes."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any, Dict


def dumps(value: Any) -> str:
    """Compact. Dates, times, UUIDs and decimals become text. NaN is refused: it is not JSON, and the server would say so of
    the whole request."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    raise TypeError("%r is a %s; turn it into text, a number, a list or a dict" % (value, type(value).__name__))


def raw_members(text: str) -> Dict[str, str]:
    """The members of a JSON object, each as the exact text it was written in."""
    decoder, members = json.JSONDecoder(), {}
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        name, at = decoder.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, end = decoder.raw_decode(text, begin)
        members[name] = text[begin:end]
        at = _skip(text, end)
    return members


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
