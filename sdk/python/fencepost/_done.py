"""The return value of an effect, and the outcome that callers get for it. A mistake in that value must not lose it:
nothing here raises before the value can be handed to the caller in `Unsealed`."""

from __future__ import annotations

import inspect
import json
import numbers
import uuid
from dataclasses import dataclass
from typing import Any, Optional, Union

from ._errors import Error
from ._json import dumps

_SHOWN_CHARACTERS_MAX = 200
# The server's own bound.
_EFFECT_ID_BYTES_MAX = 1024


class NotApplied(Exception):
    """Raised by an effect that knows that nothing happened: the key is free again at once. Any other exception leaves the
    outcome unknown: the claim keeps its lease, and the next holder is told."""


class Done:
    """A completed effect: the id of the effect (text, an integer or a UUID; it is sealed as text), and the receipt that every
    duplicate gets. In a receipt, dates, times, UUIDs and decimals become text. `receipt_json` is a receipt that is JSON text
    already; it is kept byte for byte.

    Never raises, since the effect has been had when it is made: `run` says what is wrong with it, and keeps it."""

    def __init__(
        self, effect_id: Union[str, int, uuid.UUID], receipt: Any = None, *, receipt_json: Optional[str] = None
    ) -> None:
        self._mistake: Optional[str] = None
        self.effect_id: str = effect_id  # type: ignore[assignment]
        self.receipt_json: str = receipt_json  # type: ignore[assignment]
        if isinstance(effect_id, (numbers.Integral, uuid.UUID)) and not isinstance(effect_id, bool):
            self.effect_id = str(effect_id)
        elif not isinstance(effect_id, str):
            self._mistake = "the effect id must be text, an integer or a UUID, and is %s" % shown(effect_id)
        if self._mistake is None:
            count = len(self.effect_id.encode("utf-8", "surrogatepass"))
            if not 1 <= count <= _EFFECT_ID_BYTES_MAX:
                said = "the effect id must have 1 to %d bytes, and has %d"
                self._mistake = said % (_EFFECT_ID_BYTES_MAX, count)
        try:
            if receipt_json is None:
                self.receipt_json = dumps(receipt)
            # Text that is spliced into a document must not be able to end it.
            json.loads(self.receipt_json)
        except Exception as error:
            self.receipt_json = shown(receipt) if receipt_json is None else receipt_json
            self._mistake = self._mistake or "the receipt %s is not JSON: %s" % (shown(self.receipt_json), error)

    def __repr__(self) -> str:
        return "Done(%r, receipt_json=%s)" % (self.effect_id, shown(self.receipt_json))


class Unsealed(Error):
    """The effect ran and could not be recorded; `__cause__` says why. The next holder is told that this attempt is unknown."""

    def __init__(self, done: Any, cause: Exception) -> None:
        known = isinstance(done, Done) and isinstance(done.effect_id, str)
        known = known and 0 < len(done.effect_id) <= _SHOWN_CHARACTERS_MAX
        what = "%s was done and is" % done.effect_id if known else "the effect ran, and what it did is"
        super().__init__("%s not recorded: %s" % (what, cause), getattr(cause, "problem", None))
        self.done = done
        """The effect's return value: a `Done`, unless that was the mistake."""


@dataclass(frozen=True)
class Outcome:
    """The result for every caller, first or not."""

    effect_id: str
    receipt_json: str
    """The first one's receipt, as the exact text it was sealed with."""
    replayed: bool
    """Whether somebody, perhaps this caller before a crash, had the effect earlier."""

    @property
    def receipt(self) -> Any:
        return json.loads(self.receipt_json)


def sealable(returned: Any) -> Done:
    """The effect's return value, if it can be sealed."""
    if isinstance(returned, Done):
        if returned._mistake is not None:
            raise TypeError(returned._mistake)
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
        why = "nothing awaited it, so it did not run; give coroutines to `run_async` or `once_async`"
    else:
        why = "an effect returns Done(effect_id, receipt)"
    raise TypeError("the effect returned %s: %s" % (shown(returned), why))


def check_effect(effect: Any) -> None:
    """Refuses, before anything runs, a function that cannot be an effect."""
    if not callable(effect):
        raise TypeError("%s is not a function; an effect is a function that takes the claim" % shown(effect))
    check_arguments(effect, None)


def check_plain(effect: Any) -> None:
    """Refuses, before anything runs, a function whose call would only make a coroutine or a generator."""
    for called in (effect, getattr(effect, "__call__", None)):
        if inspect.iscoroutinefunction(called):
            raise TypeError("%s is an `async def`; use `once_async` or `run_async`" % shown(effect))
    check_no_generator(effect)


def check_no_generator(effect: Any) -> None:
    for called in (effect, getattr(effect, "__call__", None)):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError("%s is a generator; an effect returns Done(effect_id, receipt)" % shown(effect))


def check_arguments(effect: Any, *args: Any, **kwargs: Any) -> None:
    try:
        signature = inspect.signature(effect)
    except (TypeError, ValueError):
        # Some that are written in C have none.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        message = "%s cannot be called with the claim and these arguments: %s" % (shown(effect), error)
        raise TypeError(message) from None


def shown(value: Any) -> str:
    """A value for a message, cut to a length that can be read."""
    try:
        text = value if isinstance(value, str) and value[:1] in ("{", "[") else repr(value)
    except Exception:
        text = "a %s" % type(value).__name__
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
