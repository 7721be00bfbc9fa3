"""When a request is sent again: which answers, after how long, until when. Every try is the same request."""

from __future__ import annotations

import os
import random
import time
import uuid
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Mapping, Optional, Union

from ._http import NotSent, Reply, Transport, Unanswered

# Whether another try of the same request may fare better. Nothing else of 4xx is here: asking again would not change it.
_PASSING = frozenset((408, 429, 502, 503, 504))


@dataclass(frozen=True)
class Retry:
    """How long and how often a request is sent again."""

    pause_s: float = 0.1
    """The longest first pause; it doubles with every try. The pause itself is random below that (full jitter)."""
    pause_s_max: float = 5.0
    attempt_timeout_s: float = 15.0
    """Patience with one try."""
    deadline_s: float = 60.0
    """Patience with all tries of one request together. Longer than a lease, so that a claim whose answer was lost can be had
    again within one call."""

    def pause_before(self, try_number: int) -> float:
        ceiling = self.pause_s * 2.0 ** min(try_number - 1, 60)
        return random.random() * min(ceiling, self.pause_s_max)


@dataclass
class GaveUp:
    """The deadline came first."""

    why: str
    last: Optional[Reply]


class Tries:
    """The tries of one request."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.until = time.monotonic() + retry.deadline_s
        self.made = 0
        self.unanswered = False
        """Whether one may have been carried out without its answer coming through."""

    @property
    def wait_s_max(self) -> float:
        """The longest that one try should wait at the server: well within the patience with it."""
        return min(self.retry.attempt_timeout_s, self.left()) * 0.6

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def pause(self, at_least_s: float) -> bool:
        """Waits before another try, at least as long as the server asked; false where the deadline is before that."""
        pause = at_least_s + self.retry.pause_before(self.made)
        if pause >= self.left():
            return False
        time.sleep(pause)
        return True

    def send(self, transport: Transport, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Union[Reply, GaveUp]:
        while True:
            self.made += 1
            timeout_s = max(0.001, min(self.retry.attempt_timeout_s, self.left()))
            last = None
            try:
                last = transport.once(method, path, headers, body, timeout_s)
                if last.status not in _PASSING:
                    return last
                # A store that did not confirm in time may have committed all the same.
                self.unanswered |= last.status >= 500
                why = "status %d" % last.status
            except NotSent as error:
                why = str(error)
            except Unanswered as error:
                self.unanswered = True
                why = str(error)
            asked_s = retry_after_s(last) if last else None
            if not self.pause(asked_s or 0.0):
                return GaveUp(why, last)


def retry_after_s(reply: Reply) -> Optional[float]:
    """`Retry-After`, as seconds or as a date."""
    text = (reply.header("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, IndexError):
        return None


def uuid7() -> str:
    """A UUID v7 (RFC 9562): keys that sort by time."""
    number = int(time.time() * 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=number & ~(3 << 62) | 2 << 62))
