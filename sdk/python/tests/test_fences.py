"""The behaviours that every client has, against the real binary."""

import socket
import threading
import time
from dataclasses import replace

from fencepost import (
    Claim,
    Conflict,
    Done,
    FencedOff,
    Fencepost,
    InFlight,
    NotApplied,
    Refused,
    SequenceGap,
    Unavailable,
    Unsealed,
)

from .stage import HASTY, StageTest, stage


def never(claim: Claim) -> Done:
    raise AssertionError("it ran twice")


class Fences(StageTest):
    def test_the_first_runs_and_the_second_gets_its_receipt_byte_for_byte(self) -> None:
        effect = self.booking(self.direct, 'G "é"\n&=').body({"nights": 2})
        receipt = '{"b" : 1.0, "a":"\\u00e9", "big":123456789012345678901}'

        def book(claim: Claim) -> Done:
            self.assertEqual((claim.attempt, claim.recovering, len(claim.idempotency_key)), (1, False, 64))
            return Done("RSV-1", receipt_json=receipt)

        first = effect.run(book)
        self.assertEqual((first.replayed, first.receipt_json), (False, receipt))
        second = effect.run(never)
        self.assertEqual((second.effect_id, second.replayed, second.receipt_json), ("RSV-1", True, receipt))
        self.assertEqual(second.receipt["a"], "é")
        known = effect.lookup()
        assert known is not None
        self.assertEqual((known["state"], known["resultUrn"]), ("sealed", "RSV-1"))
        self.assertIsNone(self.booking(self.direct).lookup())

    def test_a_decorated_function_runs_once_for_each_key(self) -> None:
        runs = []

        @self.direct.once("INDEX_BUILD", key=lambda name, size: {"index_hash": name}, wait_s=5)
        def build(claim: Claim, name: str, size: int) -> Done:
            """Builds."""
            runs.append(name)
            return Done("idx-" + name, {"size": size})

        self.assertEqual(build("a", size=1).receipt, {"size": 1})
        self.assertEqual(build("a", size=2).receipt, {"size": 1})
        self.assertEqual(build("b", 3).receipt, {"size": 3})
        self.assertEqual(runs, ["a", "b"])
        self.assertEqual((build.__name__, build.__doc__), ("build", "Builds."))

    def test_of_two_at_once_one_runs_and_the_other_waits_for_its_receipt(self) -> None:
        effect = self.booking(self.direct).options(wait_s=15)
        runs, outcomes = [], []

        def slow(claim: Claim) -> Done:
            runs.append(claim)
            # Long enough for the other one to be there, and to be told that somebody is acting.
            with self.assertRaises(InFlight):
                effect.options(wait_s=0.2).claim()
            return Done("RSV-2", [1])

        def one() -> None:
            outcomes.append(effect.run(slow))
            self.direct.close()

        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(runs), 1)
        self.assertEqual(sorted(outcome.replayed for outcome in outcomes), [False, True])
        self.assertEqual({outcome.receipt_json for outcome in outcomes}, {"[1]"})

    def test_another_body_is_a_conflict_with_its_diff(self) -> None:
        effect = self.booking(self.direct)
        effect.body({"nights": 2}).run(lambda claim: Done("RSV-3"))
        with self.assertRaises(Conflict) as refused:
            effect.body({"nights": 3}).claim()
        problem = refused.exception.problem
        assert problem is not None and problem.trace_id is not None
        self.assertEqual(problem.diff, [{"op": "replace", "path": "/nights", "value": 3}])
        self.assertEqual((problem.status, problem.code, len(problem.trace_id)), (409, "conflict", 32))

    def test_a_failure_that_changed_nothing_frees_the_key_and_any_other_keeps_it(self) -> None:
        effect = self.booking(self.direct)

        def full(claim: Claim) -> Done:
            raise NotApplied("full")

        def reset(claim: Claim) -> Done:
            self.assertEqual((claim.attempt, claim.recovering), (2, False))
            raise OSError("reset")

        with self.assertRaisesRegex(NotApplied, "full"):
            effect.run(full)
        with self.assertRaisesRegex(OSError, "reset"):
            effect.run(reset)
        with self.assertRaises(InFlight) as held:
            effect.claim()
        self.assertFalse(held.exception.perhaps_own)
        # Waits at the server, as long as was said and no longer.
        begun = time.monotonic()
        with self.assertRaises(InFlight):
            effect.options(wait_s=1).claim()
        self.assertTrue(1 <= time.monotonic() - begun < 4)

    def test_a_wait_that_the_server_cuts_short_goes_on_and_ends_in_time(self) -> None:
        group = "python-brief"
        holder = self.booking(self.direct, group).options(lease_s=4).claim()
        waiting = self.booking(self.road, group)
        # Not held at all, and told to come back in 4 s: there is one more question, when the wait is over.
        stage("faults", "brief:0,brief:0,brief:0,brief:0,brief:0")
        before, begun = int(stage("requests")), time.monotonic()
        with self.assertRaises(InFlight):
            waiting.options(wait_s=1).claim()
        self.assertTrue(1 <= time.monotonic() - begun < 3)
        self.assertLessEqual(int(stage("requests")) - before, 3)
        # Held for as long as the time in which it is told to come back: it comes back at once.
        holder.renew()
        stage("faults", "brief:2000")
        before, begun = int(stage("requests")), time.monotonic()
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.append(waiting.options(wait_s=15).claim().outcome))
        thread.start()
        while int(stage("requests")) < before + 2:
            pass
        holder.seal(Done("RSV-4b"))
        thread.join()
        self.assertLess(time.monotonic() - begun, 4)
        self.assertIsNotNone(outcomes[0])

    def test_an_effect_that_is_slower_than_its_lease_keeps_its_claim(self) -> None:
        effect = self.booking(self.direct).options(lease_s=0.6)
        with effect.claim() as claim:
            begun = time.monotonic()
            while time.monotonic() - begun < 1.8:
                with self.assertRaises(InFlight):
                    effect.claim()
            self.assertFalse(claim.lost)
            claim.seal(Done("RSV-5"))
        self.assertEqual(effect.run(never).effect_id, "RSV-5")

    def test_a_holder_silent_for_too_long_is_fenced_off(self) -> None:
        effect = self.booking(self.direct).options(lease_s=0.001)
        zombie = effect.claim()
        after = effect.options(lease_s=30, wait_s=10).claim()
        self.assertEqual((after.attempt, after.recovering), (2, True))
        assert after.earlier is not None
        self.assertEqual(after.earlier["token"], zombie.token)
        for late in (zombie.renew, zombie.release, lambda: zombie.seal(Done("late"))):
            with self.assertRaises(FencedOff):
                late()
        self.assertTrue(zombie.lost)
        after.renew()
        after.seal(Done("RSV-6"))

        def given_up(claim: Claim) -> Done:
            claim.release()
            return Done("RSV-6b")

        with self.assertRaises(Unsealed) as unsealed:
            self.booking(self.direct).run(given_up)
        self.assertEqual(unsealed.exception.done.effect_id, "RSV-6b")

    def test_deliberate_repetitions_have_their_own_sequence(self) -> None:
        effect = self.booking(self.direct)
        effect.run(lambda claim: Done("RSV-7"))
        with self.assertRaises(SequenceGap):
            effect.again(2).claim()
        self.assertFalse(effect.again(1).run(lambda claim: Done("RSV-7b")).replayed)
        self.assertEqual(effect.again(1).run(never).effect_id, "RSV-7b")
        self.assertEqual(effect.run(never).effect_id, "RSV-7")
        self.assertIsNotNone(effect.again(1).lookup())

    def test_a_run_outlives_the_server_it_began_on(self) -> None:
        effect = self.booking(self.road)

        def crash(claim: Claim) -> Done:
            stage("crash")
            return Done("RSV-8", {"hotel": "Astoria"})

        self.assertFalse(effect.run(crash).replayed)
        stage("crash")
        self.assertEqual(effect.run(never).receipt, {"hotel": "Astoria"})

    def test_a_server_that_is_busy_is_asked_again_when_it_said(self) -> None:
        effect = self.booking(self.road)
        before, begun = int(stage("requests")), time.monotonic()
        stage("faults", "503:1,429:0,408:0,504:0")
        claim = effect.claim()
        self.assertGreaterEqual(time.monotonic() - begun, 1)
        self.assertEqual((int(stage("requests")) - before, claim.attempt), (5, 1))
        stage("faults", "503:3600")
        with self.assertRaises(Unavailable) as busy:
            claim.seal(Done("RSV-9"))
        problem = busy.exception.problem
        assert problem is not None
        self.assertEqual((busy.exception.attempts, busy.exception.unanswered), (1, True))
        self.assertEqual((problem.status, problem.retry_after_s), (503, 3600))

    def test_a_refused_request_is_not_repeated(self) -> None:
        stranger = self.client("FENCEPOST_ROAD", "nobody")
        for effect in (self.booking(stranger), self.road.scope("BOOKING").key(groupId="G")):
            before = int(stage("requests"))
            with self.assertRaises(Refused):
                effect.claim()
            self.assertEqual(int(stage("requests")), before + 1)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            closed = listener.getsockname()[1]
        nobody = Fencepost("http://127.0.0.1:%d" % closed, "dev-partner", replace(HASTY, deadline_s=0.3))
        with self.assertRaises(Unavailable) as gone:
            self.booking(nobody).claim()
        self.assertGreater(gone.exception.attempts, 1)
        self.assertFalse(gone.exception.unanswered)

    def test_answers_that_are_lost_cost_time_and_nothing_else(self) -> None:
        group = "python-lost-answers"
        effect = self.booking(self.road, group).options(lease_s=0.5)
        stage("faults", "lose")
        claim = effect.claim()
        # The lost answer had let this very caller in. The client cannot know that: it reports an earlier attempt.
        self.assertEqual((claim.attempt, claim.recovering), (2, True))
        stage("faults", "lose")
        claim.renew()
        # Lost, and somebody else is let in before it is asked again: it was given up all the same.
        stage("faults", "lose,503:1")
        straight, others = self.booking(self.direct, group).options(wait_s=10), []
        thread = threading.Thread(target=lambda: others.append(straight.claim()))
        thread.start()
        claim.release()
        thread.join()
        others[0].seal(Done("RSV-11"))
        self.assertEqual(effect.run(never).effect_id, "RSV-11")
        claim = self.booking(self.road).claim()
        stage("faults", "lose")
        claim.seal(Done("RSV-11a"))
        hasty = self.client("FENCEPOST_ROAD", retry=replace(HASTY, deadline_s=2))
        stage("faults", "lose")
        with self.assertRaises(InFlight) as held:
            self.booking(hasty).claim()
        self.assertTrue(held.exception.perhaps_own)

    def test_a_batch_is_asked_in_its_order(self) -> None:
        effects = [self.booking(self.direct), self.booking(self.direct)]
        results = self.direct.batch([effect.command() for effect in effects] + [{"op": "dance"}])
        self.assertEqual([result["status"] for result in results], [201, 201, 400])
        self.assertGreater(results[0]["body"]["token"], 0)
