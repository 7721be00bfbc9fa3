"""Waiting by default, and what becomes of mistakes: the behaviours that every client has, against the real binary."""

import datetime
import threading
import time
import urllib.request
import uuid
from dataclasses import replace
from typing import Any, List

from fencepost import Claim, Done, Fencepost, InFlight, NotApplied, Outcome, Refused, Unavailable, Unsealed

from .stage import HASTY, StageTest, need, stage

NOT_SEALABLE: List[Any] = [None, "RSV-1", {"effect_id": "RSV-1"}, Done, 5, Done(None), Done(True), Done(1.5)]  # type: ignore[arg-type]
NOT_RECEIPTS = [Done("RSV-1", {1, 2}), Done("RSV-1", float("nan")), Done("RSV-1", receipt_json='{},"token":1')]


def waiters() -> int:
    with urllib.request.urlopen(need("FENCEPOST_URL") + "/metrics") as answer:
        lines = str(answer.read(), "utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("fencepost_waiters "))


def until_waiting(number: int) -> None:
    begun = time.monotonic()
    while waiters() < number:
        if time.monotonic() - begun > HASTY.deadline_s:
            raise AssertionError("only %d wait" % waiters())


class Mistakes(StageTest):
    def test_of_many_at_once_without_a_word_about_waiting_one_runs_and_all_get_its_receipt(self) -> None:
        effect, outcomes, runs = self.booking(self.direct), [], []

        def slow(claim: Claim) -> Done:
            runs.append(claim)
            until_waiting(4)
            return Done("RSV-20", [1])

        def one() -> None:
            outcomes.append(effect.run(slow))
            self.direct.close()

        threads = [threading.Thread(target=one) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(runs), 1)
        self.assertEqual(sorted(outcome.replayed for outcome in outcomes), [False, True, True, True, True])
        self.assertEqual({outcome.receipt_json for outcome in outcomes}, {"[1]"})

    def test_a_run_that_the_server_cuts_short_asks_again_until_there_is_a_receipt(self) -> None:
        group, outcomes = str(uuid.uuid4()), []
        holder = self.booking(self.direct, group).claim()
        stage("faults", "brief:0")
        before = int(stage("requests"))
        waiting = self.booking(self.road, group)
        thread = threading.Thread(target=lambda: outcomes.append(waiting.run(self.fail)))
        thread.start()
        while int(stage("requests")) < before + 2:
            pass
        holder.seal(Done("RSV-21"))
        thread.join()
        self.assertTrue(outcomes[0].replayed)

    def test_a_run_waits_for_its_lease_unless_told_otherwise_and_says_how_to_wait_longer(self) -> None:
        group = str(uuid.uuid4())
        self.booking(self.direct, group).claim()
        waiting = self.booking(self.direct, group).options(lease_s=1)
        for effect, least_s in ((waiting, 1.0), (waiting.options(wait_s=0), 0.0), (waiting.options(wait_s=0.5), 0.5)):
            begun = time.monotonic()
            with self.assertRaisesRegex(InFlight, "wait_s") as held:
                effect.run(self.fail)
            self.assertTrue(least_s <= time.monotonic() - begun < least_s + 3, least_s)
            self.assertNotIn("wait_ms", str(held.exception))
        with self.assertRaisesRegex(InFlight, "does not wait"):
            waiting.claim()

    def test_a_wait_does_not_lengthen_the_deadline_of_a_server_that_does_not_answer(self) -> None:
        nobody = Fencepost("http://127.0.0.1:1", "dev-partner", replace(HASTY, deadline_s=0.3))
        begun = time.monotonic()
        with self.assertRaises(Unavailable):
            self.booking(nobody).run(self.fail)
        self.assertLess(time.monotonic() - begun, 5)

    def test_ids_and_keys_that_are_numbers_or_uuids_count_as_their_text(self) -> None:
        for value in (5, uuid.uuid4()):
            group = uuid.uuid4()
            key = {"caseUrn": value, "waveUrn": 7, "groupId": group}
            first = self.direct.scope("BOOKING").key(key).run(lambda claim: Done(value))
            as_text = self.direct.scope("BOOKING").key(caseUrn=str(value), waveUrn="7", groupId=str(group))
            second = as_text.run(self.fail)
            self.assertEqual((first.effect_id, second.effect_id, second.replayed), (str(value), str(value), True))
            self.assertIsNotNone(self.direct.scope("BOOKING").key(key).lookup())

    def test_a_receipt_keeps_dates_and_uuids_as_text(self) -> None:
        at, number = datetime.datetime(2026, 11, 18, 5, 6, 7, tzinfo=datetime.timezone.utc), uuid.uuid4()
        effect = self.booking(self.direct).body({"at": at})
        effect.run(lambda claim: Done("RSV-25", {"at": at, "day": at.date(), "id": number}))
        expected = {"at": "2026-11-18T05:06:07+00:00", "day": "2026-11-18", "id": str(number)}
        self.assertEqual(effect.run(self.fail).receipt, expected)

    def test_an_outcome_that_cannot_be_sealed_is_shown_and_kept_for_the_caller(self) -> None:
        for returned in NOT_SEALABLE + NOT_RECEIPTS:
            effect = self.booking(self.direct)
            with self.assertRaises(Unsealed) as unsealed:
                effect.run(lambda claim: returned)
            self.assertIs(unsealed.exception.done, returned)
            message = str(unsealed.exception)
            sealable_id = returned in NOT_RECEIPTS
            self.assertIn("RSV-1 was done and is not recorded" if sealable_id else "the effect ran", message)
            shown = "is not JSON" if sealable_id else "effect id" if isinstance(returned, Done) else repr(returned)
            self.assertIn(shown, message)
            if not isinstance(returned, Done):
                self.assertIn("Done(effect_id, receipt)", message)
            # It was done: nobody else is let in before the lease is over.
            with self.assertRaises(InFlight):
                effect.claim()
        with self.assertRaisesRegex(TypeError, "Done"):
            self.booking(self.direct).claim().seal("RSV-1")  # type: ignore[arg-type]

    def test_an_effect_id_that_is_empty_or_too_long_is_refused_in_the_clients_own_words(self) -> None:
        for effect_id in ("", "x" * 1025, "\u20ac" * 342, 10**1024):
            done = Done(effect_id)
            with self.assertRaises(Unsealed) as unsealed:
                self.booking(self.direct).run(lambda claim: done)
            count = len(str(effect_id).encode())
            why = "the effect id must have 1 to 1024 bytes, and has %d" % count
            self.assertEqual(str(unsealed.exception), "the effect ran, and what it did is not recorded: " + why)
            self.assertIs(unsealed.exception.done, done)
        # The longest that there may be.
        self.booking(self.direct).run(lambda claim: Done("x" * 1024))

    def test_a_lease_over_the_maximum_of_its_scope_is_refused_in_the_clients_own_words(self) -> None:
        brief = self.direct.scope("BRIEF").key(id=str(uuid.uuid4()))
        with self.assertRaisesRegex(Refused, "the scope takes leases of at most 2 s; set `lease_s`") as refused:
            brief.options(lease_s=3).claim()
        self.assertNotIn("lease_ms", str(refused.exception))
        self.assertEqual(brief.options(lease_s=2).claim().attempt, 1)

    def test_an_effect_that_seals_its_claim_itself_has_that_outcome(self) -> None:
        for returns in (lambda done: done, lambda done: None):

            def book(claim: Claim) -> Any:
                done = Done("RSV-29", [1])
                claim.seal(done)
                return returns(done)

            effect = self.booking(self.direct)
            self.assertEqual(effect.run(book), Outcome("RSV-29", "[1]", False))
            self.assertEqual(effect.run(self.fail), Outcome("RSV-29", "[1]", True))

    def test_a_mistake_that_can_be_known_before_the_effect_is_refused_without_a_claim(self) -> None:
        effect = self.booking(self.direct)

        async def coroutine(claim: Claim) -> Done:
            return Done("never")

        class Called:
            async def __call__(self, claim: Claim) -> Done:
                return Done("never")

        def generator(claim: Claim) -> Any:
            yield Done("never")

        wrong: List[Any] = [coroutine, Called(), generator, None, "book", lambda: Done("never"), lambda a, b: Done("never")]
        for function in wrong:
            with self.assertRaises(TypeError, msg=repr(function)):
                effect.run(function)
        for function in (coroutine, Called(), generator):
            with self.assertRaises(TypeError):
                self.direct.once("BOOKING", key=dict)(function)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "once_async"):
            self.direct.once("BOOKING", key=dict)(coroutine)  # type: ignore[arg-type]
        self.assertIsNone(effect.lookup())
        for value in (None, 1.5, datetime.datetime.now(), ["a"], b"a"):
            with self.assertRaisesRegex(TypeError, "groupId"):
                effect.key(groupId=value)
        for fields in (None, "G-1", [("groupId", 1)]):
            with self.assertRaisesRegex(TypeError, "a key is its fields"):
                effect.key(fields)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "no option `wait_ms`.*wait_s"):
            self.direct.once("BOOKING", key=dict, wait_ms=5)
        for option in ({"wait_s": datetime.timedelta(1)}, {"lease_s": "30"}, {"lease_s": None}, {"wait_s": float("nan")}):
            with self.assertRaisesRegex(TypeError, "a number of seconds"):
                effect.options(**option)
        with self.assertRaisesRegex(ValueError, "`lease_s` is at most 86400"):
            effect.options(lease_s=100_000)

    def test_a_call_that_does_not_fit_the_decorated_function_is_refused_without_a_claim(self) -> None:
        name = str(uuid.uuid4())

        @self.direct.once("INDEX_BUILD", key=lambda *args: {"index_hash": name})
        def build(claim: Claim, size: int) -> Done:
            return Done("never")

        with self.assertRaisesRegex(TypeError, "size"):
            build()
        self.assertIsNone(self.direct.scope("INDEX_BUILD").key({"index_hash": name}).lookup())

    def test_a_coroutine_that_nobody_awaited_is_said_to_be_one(self) -> None:
        async def book() -> Done:
            return Done("never")

        with self.assertRaisesRegex(Unsealed, "run_async"):
            self.booking(self.direct).run(lambda claim: book())  # type: ignore[arg-type,return-value]

    def test_a_not_applied_effect_frees_the_key_for_those_who_wait(self) -> None:
        effect, outcomes = self.booking(self.direct), []

        def full(claim: Claim) -> Done:
            thread.start()
            until_waiting(1)
            raise NotApplied("full")

        def other() -> None:
            outcomes.append(effect.run(lambda claim: Done("RSV-26")))
            self.direct.close()

        thread = threading.Thread(target=other)
        with self.assertRaises(NotApplied):
            effect.run(full)
        thread.join()
        self.assertEqual(outcomes, [Outcome("RSV-26", "null", False)])
