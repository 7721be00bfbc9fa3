"""Why there is no outcome: the server's problem document, or what became of the requests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

_PAGES = "https://fencepost.dev/errors/"


@dataclass(frozen=True)
class Problem:
    """A refusal as the server wrote it (RFC 9457)."""

    status: int
    code: str
    """The stable code, such as `conflict`; empty where the answer is not one of Fencepost's."""
    detail: str
    trace_id: Optional[str] = None
    diff: Optional[List[Dict[str, Any]]] = None
    """On a conflict of two JSON bodies: the RFC 6902 patch from the first to this one."""
    retry_after_s: Optional[float] = None
    members: Dict[str, Any] = field(default_factory=dict)
    """The whole document."""

    @classmethod
    def read(cls, status: int, body: bytes, retry_after_s: Optional[float] = None) -> Problem:
        try:
            members = json.loads(body)
        except ValueError:
            members = {}
        if not isinstance(members, dict):
            members = {}
        # An upstream or a proxy may have problem documents with codes of its own.
        own = status >= 400 and str(members.get("type", "")).startswith(_PAGES)
        return cls(
            status=status,
            code=str(members.get("code", "")) if own else "",
            detail=str(members.get("detail", "an answer of status %d" % status)),
            trace_id=members.get("trace_id"),
            diff=members.get("diff"),
            retry_after_s=retry_after_s,
            members=members,
        )

    def error(self, perhaps_own: bool = False) -> Error:
        if self.code == "in-flight":
            said = "an earlier request with this key is under way; ask again with the same key, or set a longer `deadline_s`"
            return InFlight(self, perhaps_own, said)
        most = self.members.get("lease_ms_max")
        if isinstance(most, int):
            said = "the scope takes leases of at most %g s; set `lease_s`" % (most / 1000)
            return Refused(self.told(said), self)
        return _BY_CODE.get(self.code, Refused)(str(self), self)

    def __str__(self) -> str:
        return self.told(self.detail)

    def told(self, detail: str) -> str:
        trace = " (trace %s)" % self.trace_id if self.trace_id else ""
        return "%d %s: %s%s" % (self.status, self.code or "no problem document", detail, trace)


class Error(Exception):
    """Anything that this package says no with."""

    def __init__(self, message: str, problem: Optional[Problem] = None) -> None:
        super().__init__(message)
        self.problem = problem


class Conflict(Error):
    """The key was first used with another body; `problem.diff` leads from the first to this one."""


class Stale(Error):
    """A newer version of the source is already sealed."""


class InDoubt(Error):
    """The outcome of an earlier attempt is unknown and a person must decide."""


class SequenceGap(Error):
    """Not the next repetition."""


class FencedOff(Error):
    """The token no longer holds the claim."""


class Refused(Error):
    """Any other refusal: a wrong key, an unknown scope, a credential that does not fit."""


class InFlight(Error):
    """Somebody else is acting, and still was when the wait was over."""

    def __init__(self, problem: Problem, perhaps_own: bool, said: str) -> None:
        own = "; it may be this call's own claim: an earlier try had no answer" if perhaps_own else ""
        # The server's detail names the members of its own requests, not the options of this package.
        super().__init__(problem.told(said + own), problem)
        self.perhaps_own = perhaps_own
        """Whether it may be this very call: an earlier try of it had no answer and may have been let in."""


class Unavailable(Error):
    """No answer that stands before the deadline."""

    def __init__(self, why: str, attempts: int, unanswered: bool, problem: Optional[Problem]) -> None:
        super().__init__("no answer after %d tries: %s" % (attempts, why), problem)
        self.attempts = attempts
        self.unanswered = unanswered
        """Whether a try may have been carried out without its answer coming through."""


_BY_CODE = {
    "conflict": Conflict,
    "stale": Stale,
    "in-doubt": InDoubt,
    "sequence-gap": SequenceGap,
    "fenced-off": FencedOff,
}
