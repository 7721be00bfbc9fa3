"""One effect to be had once: a scope, a key, and the claim that lets one caller act."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import threading
import time
import uuid
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Dict, Iterator, Mapping, Optional, Union
from urllib.parse import urlencode

from ._done import Done, NotApplied, Outcome, Unsealed, check_effect, check_no_generator, check_plain, sealable, shown
from ._errors import Error, FencedOff, InFlight
from ._json import dumps, raw_members
from ._retry import Retry, Tries
from ._threads import in_thread

if TYPE_CHECKING:
    from ._client import Fencepost


@dataclass(frozen=True)
class _Options:
    body: Any = None
    version: Union[int, str, None] = None
    source: Optional[Dict[str, str]] = None
    seq: Optional[int] = None
    tenant: Optional[str] = None
    # Short, since it is renewed: it is also how long a lost answer to a claim costs.
    lease_s: float = 30.0
    wait_s: Optional[float] = None


_OPTIONS = [option.name for option in fields(_Options)]
_LEASE_S_MAX = 86_400.0
_NO_FIELDS: Mapping[str, Any] = {}


class Effect:
    """Made by `Fencepost.scope`. Every step gives a new one, so one may be the start of many."""

    def __init__(self, client: Fencepost, scope: str) -> None:
        self._client = client
        self._scope = scope
        self._key: Dict[str, Any] = {}
        self._options = _Options()

    def key(self, fields: Mapping[str, Any] = _NO_FIELDS, /, **named: Any) -> Effect:
        """The key fields, as a mapping or by name; exactly those of the scope. Values are text, integers, booleans or UUIDs;
        all of them count as text."""
        if not isinstance(fields, Mapping):
            raise TypeError("a key is its fields, as a dict or by name, and not %s" % shown(fields))
        given: Dict[str, Any] = {**fields, **named}
        other = copy.copy(self)
        other._key = {name: _key_value(name, value) for name, value in given.items()}
        return other

    def options(self, **options: Any) -> Effect:
        """`body`: the JSON the effect is asked with; another one under the same key is a conflict. `version`, `source`
        (`{"type", "id"}`). `lease_s`: how long a holder may be silent, 30 unless said. `wait_s`: how long to wait for somebody
        else's outcome; unless said, `run` waits for as long as the lease, and `claim` does not wait. `tenant`: for admins."""
        for name, value in options.items():
            if name not in _OPTIONS:
                raise TypeError("there is no option `%s`; the options are %s" % (name, ", ".join(_OPTIONS)))
            _check_option(name, value)
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
        return self._claim(self._options.wait_s or 0.0)

    def _claim(self, patience_s_max: float) -> Claim:
        request = self._request()
        path = "/v1/fences/claim" if self._options.seq is None else "/v1/fences/again"
        tries = Tries(self._client.retry)
        wait_until = time.monotonic() + patience_s_max
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
            # The server answers: the deadline is for one that does not, and counts from the end of the wait.
            tries.until = max(tries.until, wait_until + self._client.retry.deadline_s)
            now = time.monotonic()
            over = not tries.unanswered and now >= wait_until
            waited = 0 < wait_s <= now - begun
            # A server that lets nobody wait so long answers sooner, one with too many waiters at once; asking at once again
            # would be a storm. The time at the server counts as a pause, and the last question is when the wait is over.
            pause_s = max(0.0, (problem.retry_after_s or 0.0) - (now - begun))
            if not tries.unanswered:
                pause_s = min(pause_s, wait_until - now)
            if over or not (waited or tries.pause(pause_s)):
                held_for = "after a wait of %g s" % patience_s_max if patience_s_max else "and this call does not wait"
                said = "somebody else holds the claim, %s; ask again, or set `wait_s`" % held_for
                raise InFlight(problem, tries.unanswered, said)

    def run(self, effect: Callable[[Claim], Done]) -> Outcome:
        """Has the effect once: the first caller runs it, everyone else gets the receipt. Callers wait for the one who runs it
        for as long as the lease, unless `wait_s` says otherwise. A thread renews the lease while it runs. `NotApplied` frees
        the key; any other exception leaves it to its lease. An effect that returns what cannot be sealed is `Unsealed`."""
        check_effect(effect)
        check_plain(effect)
        with self._claim(self._run_wait_s()) as claim:
            if claim.outcome is not None:
                return claim.outcome
            done = claim._sealed_or(effect(claim))
            try:
                claim.seal(done)
            except Exception as cause:
                raise Unsealed(done, cause) from cause
            return Outcome(done.effect_id, done.receipt_json, False)

    async def run_async(self, effect: Callable[[Claim], Union[Done, Awaitable[Done]]]) -> Outcome:
        """The same for asyncio: awaits what the effect returns. Requests to the server run in threads, so the loop is never
        held up; the claim's own methods block, as everywhere. Where the task is cancelled before the effect begins, the claim
        is given back; after that it keeps its lease, and a seal that has begun is carried through."""
        check_effect(effect)
        check_no_generator(effect)
        client, wait_s = self._client, self._run_wait_s()
        asked, unused = client._then_close(lambda: self._claim(wait_s)), client._then_close(_give_up)
        claim: Claim = await in_thread(asked, unused)
        if claim.outcome is not None:
            return claim.outcome
        with claim._renewed():
            done: Any = None
            try:
                done = effect(claim)
                done = claim._sealed_or(await done if inspect.isawaitable(done) else done)
            except NotApplied:
                with contextlib.suppress(Error):
                    await in_thread(client._then_close(claim.release))
                raise
            try:
                await in_thread(client._then_close(lambda: claim.seal(done)))
            except Exception as cause:
                raise Unsealed(done, cause) from cause
            return Outcome(done.effect_id, done.receipt_json, False)

    def _run_wait_s(self) -> float:
        options = self._options
        return options.lease_s if options.wait_s is None else options.wait_s

    def lookup(self) -> Optional[Dict[str, Any]]:
        """The history of the key; none where it is unknown."""
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
        self._sealed: Optional[Done] = None
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
        done = sealable(done)
        told = dumps(self._told(effect_id=done.effect_id))
        # The receipt is put in as it is: written again, it would be other bytes.
        body = told[:-1] + ',"receipt":' + done.receipt_json + "}"
        self._effect._client._post("/v1/fences/seal", body.encode(), Tries(self._effect._client.retry))
        self._settled, self._sealed = True, done

    def _sealed_or(self, returned: Any) -> Any:
        """The effect's return value; where that is nothing because it sealed its claim itself, the sealed outcome."""
        return self._sealed if returned is None and self._sealed is not None else returned

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
        self._start_renewing()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._left.set()
        if isinstance(error, NotApplied) and not self._settled:
            # If even the release fails, the lease ends the claim; the caller hears of its own failure.
            with contextlib.suppress(Error):
                self.release()

    @contextlib.contextmanager
    def _renewed(self) -> Iterator[None]:
        self._start_renewing()
        try:
            yield
        finally:
            self._left.set()

    def _start_renewing(self) -> None:
        if not self._settled:
            self._beat = threading.Thread(target=self._keep, name="fencepost-renew", daemon=True)
            self._beat.start()

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


def _give_up(claim: Claim) -> None:
    if claim.outcome is None:
        claim.release()


def _key_value(name: str, value: Any) -> Union[str, int, bool]:
    if isinstance(value, uuid.UUID):
        return str(value)
    # A date or a fraction can be written in several ways, and two ways would be two keys.
    if not isinstance(value, (str, int)):
        kinds = "text, an integer, a boolean or a UUID"
        raise TypeError("key field `%s` must be %s, and is %s; write it as text" % (name, kinds, shown(value)))
    return value


def _check_option(name: str, value: Any) -> None:
    if name not in ("lease_s", "wait_s") or (name == "wait_s" and value is None):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise TypeError("`%s` is a number of seconds, and not %s" % (name, shown(value)))
    if name == "lease_s" and value > _LEASE_S_MAX:
        raise ValueError("`lease_s` is at most %d, a day, and not %g" % (_LEASE_S_MAX, value))
