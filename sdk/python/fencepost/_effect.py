"""One effect to be had once: a scope, a key, and the claim that lets one caller act."""

from __future__ import annotations

import copy
import json
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union
from urllib.parse import urlencode

from ._errors import Error, FencedOff, InFlight
from ._json import dumps, raw_members
from ._retry import Retry, Tries

if TYPE_CHECKING:
    from ._client import Fencepost


class NotApplied(Exception):
    """Raised by an effect that knows that nothing happened: the key is free again at once. Any other exception leaves the
    outcome unknown: the claim keeps its lease, and the next holder is told."""


class Unsealed(Error):
    """The effect was had and could not be recorded; `__cause__` says why. Whoever claims next is told that this attempt is
    unknown."""

    def __init__(self, done: Done, cause: Error) -> None:
        super().__init__("%s was done and not recorded: %s" % (done.effect_id, cause), cause.problem)
        self.done = done


class Done:
    """What a holder did: the id of the effect, and the receipt that every duplicate gets. `receipt_json` is a receipt that is
    JSON text already; it is kept byte for byte."""

    def __init__(self, effect_id: str, receipt: Any = None, *, receipt_json: Optional[str] = None) -> None:
        self.effect_id = effect_id
        self.receipt_json = dumps(receipt) if receipt_json is None else receipt_json
        # What is spliced into a document must not be able to end it.
        json.loads(self.receipt_json)


@dataclass(frozen=True)
class Outcome:
    """What every caller gets, first or not."""

    effect_id: str
    receipt_json: str
    """The first one's receipt, as the exact text it was sealed with."""
    replayed: bool
    """Whether somebody, perhaps this caller before a crash, had the effect earlier."""

    @property
    def receipt(self) -> Any:
        return json.loads(self.receipt_json)


@dataclass(frozen=True)
class _Options:
    body: Any = None
    version: Union[int, str, None] = None
    source: Optional[Dict[str, str]] = None
    seq: Optional[int] = None
    tenant: Optional[str] = None
    # Short, since it is renewed: it is also how long a lost answer to a claim costs.
    lease_s: float = 30.0
    wait_s: float = 0.0


class Effect:
    """Made by `Fencepost.scope`. Every step gives a new one, so one may be the start of many."""

    def __init__(self, client: Fencepost, scope: str) -> None:
        self._client = client
        self._scope = scope
        self._key: Dict[str, Any] = {}
        self._options = _Options()

    def key(self, **fields: Any) -> Effect:
        """The key fields; exactly those of the scope."""
        other = copy.copy(self)
        other._key = fields
        return other

    def options(self, **options: Any) -> Effect:
        """`body`: the JSON the effect is asked with; another one under the same key is a conflict. `version`, `source`
        (`{"type", "id"}`). `lease_s`: how long a holder may be silent, 30 unless said. `wait_s`: how long to wait for somebody
        else's outcome. `tenant`: for admins."""
        other = copy.copy(self)
        other._options = replace(self._options, **options)
        return other

    def body(self, body: Any) -> Effect:
        """The JSON the effect is asked with."""
        return self.options(body=body)

    def again(self, seq: int) -> Effect:
        """The `seq`th deliberate repetition of the effect, from 1."""
        return self.options(seq=seq)

    def claim(self) -> Claim:
        """Asks for the right to act. Safe to repeat, with one cost: where the answer is lost on the way, the next try meets
        this call's own claim. It then waits, within the deadline, until that lease runs out, and is let in as `recovering`; in
        a scope that holds lapsed claims, the key is in doubt."""
        options, request = self._options, self._request()
        path = "/v1/fences/claim" if options.seq is None else "/v1/fences/again"
        tries = Tries(self._client.retry, options.wait_s)
        wait_until = time.monotonic() + options.wait_s
        while True:
            begun = time.monotonic()
            patience_s = tries.left() - 1 if tries.unanswered else wait_until - begun
            # Longer waits are several requests.
            wait_s = max(0.0, min(patience_s, tries.wait_s_max))
            try:
                reply = self._client._post(path, dumps({**request, "wait_ms": int(wait_s * 1000)}).encode(), tries)
                return Claim(self, reply.body.decode())
            except InFlight as held:
                problem = held.problem
            assert problem is not None
            now = time.monotonic()
            over = not tries.unanswered and now >= wait_until
            waited = 0 < wait_s <= now - begun
            # A server that lets nobody wait so long answers sooner, one with too many waiters at once; asking at once again
            # would be a storm. The time at the server counts as a pause, and the last question is when the wait is over.
            pause_s = max(0.0, (problem.retry_after_s or 0.0) - (now - begun))
            if not tries.unanswered:
                pause_s = min(pause_s, wait_until - now)
            if over or not (waited or tries.pause(pause_s)):
                raise InFlight(problem, tries.unanswered)

    def run(self, effect: Callable[[Claim], Done]) -> Outcome:
        """Has the effect once: the first caller runs it, everyone else gets the receipt. A thread renews the lease while it
        runs. `NotApplied` frees the key; any other exception leaves it to its lease."""
        with self.claim() as claim:
            if claim.outcome is not None:
                return claim.outcome
            done = effect(claim)
            try:
                claim.seal(done)
            except Error as cause:
                raise Unsealed(done, cause) from cause
            return Outcome(done.effect_id, done.receipt_json, False)

    def lookup(self) -> Optional[Dict[str, Any]]:
        """What happened under the key; none where it is unknown."""
        query = {"scope": self._scope, **{name: _plain(value) for name, value in self._key.items()}}
        if self._options.seq is not None:
            query["seq"] = str(self._options.seq)
        if self._options.tenant is not None:
            query["tenant"] = self._options.tenant
        known = json.loads(self._client._get("/admin/idempotency/lookup?" + urlencode(query)).body)
        return known if known["exists"] else None

    def command(self) -> Dict[str, Any]:
        """The claim as a command of a batch. It cannot wait."""
        return {"op": "claim" if self._options.seq is None else "again", **self._request()}

    def _target(self) -> Dict[str, Any]:
        given = {"seq": self._options.seq, "tenant": self._options.tenant}
        return {"scope": self._scope, "key": self._key, **_present(given)}

    def _request(self) -> Dict[str, Any]:
        options = self._options
        given = {"body": options.body, "version": options.version, "source": options.source}
        return {**self._target(), "lease_ms": self._lease_ms(), **_present(given)}

    def _lease_ms(self) -> int:
        return max(1, int(self._options.lease_s * 1000))


class Claim:
    """The right to act under a fence, until its lease runs out; or the outcome, where somebody did. In a `with` block a thread
    renews it; leaving the block by `NotApplied` releases it, and leaving it in any other way without a seal lets the lease run
    out: nobody knows whether the effect happened."""

    def __init__(self, effect: Effect, answer: str) -> None:
        members = raw_members(answer)
        known = json.loads(answer)
        self._effect = effect
        self._settled = known["decision"] != "new"
        self._left = threading.Event()
        self._beat: Optional[threading.Thread] = None
        self.outcome: Optional[Outcome] = None
        """There where the effect was had before; then there is nothing to do."""
        if self._settled:
            self.outcome = Outcome(known["effect_id"], members["receipt"], True)
        self.idempotency_key: str = known["idempotency_key"]
        """A stable key for a target that is idempotent itself: the same for every attempt."""
        self.token: int = known.get("token", 0)
        """Hand it to targets that can compare, so that an old holder's write is refused there too."""
        self.attempt: int = known.get("attempt", 0)
        self.recovering: bool = known.get("recovering", False)
        """An earlier attempt ran out of its lease, and nobody knows what became of it: ask the target before acting. It may
        have been this call's own claim, if its answer was lost."""
        self.earlier: Optional[Dict[str, Any]] = known.get("earlier")
        self.lost = False
        """Whether a renewal was refused: somebody else was let in. A long effect asks between its steps."""

    def renew(self) -> None:
        """Asks for more time, counted from now."""
        self._renew(self._effect._client.retry)

    def _renew(self, retry: Retry) -> None:
        try:
            self._post("renew", self._told(lease_ms=self._effect._lease_ms()), Tries(retry))
        except FencedOff:
            self.lost = True
            raise

    def seal(self, done: Done) -> None:
        """Records the outcome. Safe to repeat: the same seal again is answered as done."""
        told = dumps(self._told(effect_id=done.effect_id))
        # The receipt is put in as it is: written again, it would be other bytes.
        body = told[:-1] + ',"receipt":' + done.receipt_json + "}"
        self._effect._client._post("/v1/fences/seal", body.encode(), Tries(self._effect._client.retry))
        self._settled = True

    def release(self) -> None:
        """Gives the key back: nothing happened."""
        tries = Tries(self._effect._client.retry)
        try:
            self._post("release", self._told(), tries)
        except FencedOff:
            # A try without an answer released it, and somebody was let in before the next. It is given up either way.
            if not tries.unanswered:
                raise
        self._settled = True

    def __enter__(self) -> Claim:
        if not self._settled:
            self._beat = threading.Thread(target=self._keep, name="fencepost-renew", daemon=True)
            self._beat.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._left.set()
        if isinstance(error, NotApplied) and not self._settled:
            try:
                self.release()
            except Error:
                # The lease ends the claim; the caller hears of its own failure.
                pass

    def _keep(self) -> None:
        lease_s, usual = self._effect._lease_ms() / 1000, self._effect._client.retry
        third_s = max(0.001, lease_s / 3)
        # One try that hangs must leave time for another before the lease is over.
        retry = replace(usual, deadline_s=lease_s, attempt_timeout_s=min(third_s, usual.attempt_timeout_s))
        while not self._left.wait(third_s) and not self._settled:
            try:
                self._renew(retry)
            except Error:
                # A refused renewal is not an error yet: the seal will say what became of the claim.
                pass
        self._effect._client.close()

    def _told(self, **more: Any) -> Dict[str, Any]:
        return {**self._effect._target(), "token": self.token, **more}

    def _post(self, operation: str, told: Dict[str, Any], tries: Tries) -> None:
        self._effect._client._post("/v1/fences/" + operation, dumps(told).encode(), tries)


def _present(members: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
