"""A server and a credential: effects, batches, and requests to APIs behind the gateway."""

from __future__ import annotations

import functools
import json
import ssl
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar, Union

from ._done import Done, Outcome, check_arguments, check_no_generator, check_plain
from ._effect import Effect
from ._errors import Problem, Unavailable
from ._http import Reply, Transport
from ._json import dumps
from ._retry import GaveUp, Retry, Tries, retry_after_s, uuid7
from ._threads import in_thread

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The API's own answer, whatever its status."""

    status: int
    headers: List[Tuple[str, str]]
    body: bytes
    replayed: bool
    """Whether it is the stored answer to an earlier request with this key."""
    idempotency_key: str

    def json(self) -> Any:
        return json.loads(self.body)


class Fencepost:
    """A client. Threads may share it; each keeps a connection of its own."""

    def __init__(
        self, url: str, token: str, retry: Optional[Retry] = None, context: Optional[ssl.SSLContext] = None
    ) -> None:
        self.retry = retry or Retry()
        self._transport = Transport(url, context)
        self._headers = {"authorization": "Bearer " + token}

    def scope(self, name: str) -> Effect:
        """An effect of this scope."""
        return Effect(self, name)

    def once(
        self, scope: str, key: Callable[..., Mapping[str, Any]], **options: Any
    ) -> Callable[[Callable[..., Done]], Callable[..., Outcome]]:
        """Makes a function run once for each key. `key` gets the call's arguments; the function gets the claim before them
        and returns `Done`; callers get the `Outcome`. Options are those of the effect: `lease_s`, `wait_s`. An `async def` is
        for `once_async`.

            @fencepost.once("BOOKING", key=lambda case, group: {"caseUrn": case, "waveUrn": "w", "groupId": group})
            def book(claim, case, group): ...
        """

        effect = self.scope(scope).options(**options)

        def decorate(function: Callable[..., Done]) -> Callable[..., Outcome]:
            check_plain(function)

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Outcome:
                keyed = effect.key(key(*args, **kwargs))
                check_arguments(function, None, *args, **kwargs)
                return keyed.run(lambda claim: function(claim, *args, **kwargs))

            return run

        return decorate

    def once_async(
        self, scope: str, key: Callable[..., Mapping[str, Any]], **options: Any
    ) -> Callable[[Callable[..., Awaitable[Done]]], Callable[..., Awaitable[Outcome]]]:
        """`once` for an `async def`; see `Effect.run_async`."""
        effect = self.scope(scope).options(**options)

        def decorate(function: Callable[..., Awaitable[Done]]) -> Callable[..., Awaitable[Outcome]]:
            check_no_generator(function)

            @functools.wraps(function)
            async def run(*args: Any, **kwargs: Any) -> Outcome:
                keyed = effect.key(key(*args, **kwargs))
                check_arguments(function, None, *args, **kwargs)
                return await keyed.run_async(lambda claim: function(claim, *args, **kwargs))

            return run

        return decorate

    def batch(self, commands: Iterable[Mapping[str, Any]]) -> List[Dict[str, Any]]:
        """Asks several commands in one commit, in their order; each has its own `status` and `body`. A batch whose answer is
        lost is asked again whole: its claims then meet themselves and are in flight until their lease runs out."""
        reply = self._post("/v1/fences/batch", dumps({"commands": list(commands)}).encode(), Tries(self.retry))
        results: List[Dict[str, Any]] = json.loads(reply.body)["results"]
        return results

    def request(
        self,
        method: str,
        path: str,
        *,
        json_body: Any = None,
        body: Optional[bytes] = None,
        headers: Optional[Mapping[str, str]] = None,
        idempotency_key: Optional[str] = None,
    ) -> Answer:
        """A request to an API behind the gateway: sent again with the same key while that may help. The key is a fresh UUID v7
        unless you have one; who wants retries to be safe over a restart keeps it with the work. What Fencepost itself refuses
        is raised; every other answer is the API's."""
        given = list((headers or {}).items())
        # A key among the headers is the caller's own, and no less meant.
        own = [value for name, value in given if name.lower() == "idempotency-key"]
        key = idempotency_key if idempotency_key is not None else own[0] if own else uuid7()
        if not key or any(value != key for value in own):
            raise ValueError("an idempotency key is one value that is not empty")
        tries = Tries(self.retry)
        # A duplicate of a request under way is answered as soon as the first one is.
        sent = {**self._headers, "prefer": "wait=%d" % tries.wait_s_max}
        if json_body is not None:
            body = dumps(json_body).encode()
            sent["content-type"] = "application/json"
        # A name has no case: what the caller says takes the place of ours.
        sent.update((name.lower(), value) for name, value in given)
        sent["idempotency-key"] = key
        while True:
            reply = tries.send(self._transport, method, path, sent, body or b"")
            if isinstance(reply, GaveUp):
                if reply.last is None:
                    raise Unavailable(reply.why, tries.made, tries.unanswered, None)
                return self._answer(reply.last, key, tries)
            problem = Problem.read(reply.status, reply.body, retry_after_s(reply))
            if problem.code != "in-flight" or not tries.pause(problem.retry_after_s or 0.0):
                return self._answer(reply, key, tries)

    async def request_async(self, method: str, path: str, **options: Any) -> Answer:
        """`request` for asyncio, in a thread of its own. Where the task is cancelled, the request may still be carried out."""
        return await in_thread(self._then_close(lambda: self.request(method, path, **options)))

    def close(self) -> None:
        """Closes the calling thread's connection."""
        self._transport.close()

    @staticmethod
    def _answer(reply: Reply, key: str, tries: Tries) -> Answer:
        problem = Problem.read(reply.status, reply.body, retry_after_s(reply))
        if problem.code:
            raise problem.error(perhaps_own=tries.unanswered)
        replayed = reply.header("idempotency-replayed") == "true"
        return Answer(reply.status, reply.headers, reply.body, replayed, key)

    def _then_close(self, work: Callable[..., T]) -> Callable[..., T]:
        """Work for a thread that ends with it, and its connection too. For the rest of this package."""

        def run(*args: Any) -> T:
            try:
                return work(*args)
            finally:
                self.close()

        return run

    def _post(self, path: str, body: bytes, tries: Tries) -> Reply:
        """Posts a document until there is an answer that stands. A refusal is raised. For the rest of this package."""
        return self._settle("POST", path, {"content-type": "application/json"}, body, tries)

    def _get(self, path: str) -> Reply:
        """Reads a document. For the rest of this package."""
        return self._settle("GET", path, {}, b"", Tries(self.retry))

    def _settle(self, method: str, path: str, headers: Dict[str, str], body: bytes, tries: Tries) -> Reply:
        reply: Union[Reply, GaveUp] = tries.send(self._transport, method, path, {**self._headers, **headers}, body)
        if isinstance(reply, GaveUp):
            last = reply.last
            problem = Problem.read(last.status, last.body, retry_after_s(last)) if last else None
            raise Unavailable(reply.why, tries.made, tries.unanswered, problem)
        if reply.status >= 300:
            raise Problem.read(reply.status, reply.body, retry_after_s(reply)).error()
        return reply
