"""Blocking calls for callers on an event loop. Each runs in a thread of its own: in a shared pool, callers that wait for an
outcome could take every place, and the seal that they wait for would find none."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Callable, Optional, TypeVar

T = TypeVar("T")


def _ignore(result: Any) -> None:
    pass


async def in_thread(work: Callable[[], T], unused: Callable[[T], None] = _ignore) -> T:
    """Awaits `work`. A caller that is cancelled goes on at once; the thread comes to its end by itself, and a result that
    nobody awaits any more is given to `unused`, in a thread again."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def give_back(result: T) -> None:
        with contextlib.suppress(Exception):
            unused(result)

    def deliver(result: Optional[T], error: Optional[Exception]) -> None:
        if future.done():
            if error is None:
                _start(give_back, result)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: Optional[T] = None
        fault: Optional[Exception] = None
        try:
            result = work()
        except Exception as error:
            fault = error
        try:
            loop.call_soon_threadsafe(deliver, result, fault)
        except RuntimeError:
            # The loop is closed.
            if fault is None:
                give_back(result)  # type: ignore[arg-type]

    _start(run)
    try:
        return await future
    except asyncio.CancelledError:
        # The result and the cancellation came together.
        if future.done() and not future.cancelled() and future.exception() is None:
            _start(give_back, future.result())
        raise


def _start(work: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=work, args=args, name="fencepost-call", daemon=True).start()
