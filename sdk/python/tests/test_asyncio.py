"""The asyncio form, against the real binary."""

import asyncio
import threading
import uuid
from typing import Any, Coroutine, List

from fencepost import Claim, Done, InFlight, NotApplied, Unsealed

from .stage import HASTY, StageTest
from .test_mistakes import until_waiting


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def until_waiting_beside_the_loop(number: int) -> None:
    await asyncio.get_running_loop().run_in_executor(None, until_waiting, number)


class Asyncio(StageTest):
    def test_of_many_at_once_one_runs_and_all_get_its_receipt(self) -> None:
        runs: List[str] = []

        @self.direct.once_async("INDEX_BUILD", key=lambda name: {"index_hash": name})
        async def build(claim: Claim, name: str) -> Done:
            """Builds."""
            runs.append(name)
            # More than the default executor of a small machine has threads.
            await until_waiting_beside_the_loop(39)
            return Done(name, {"size": 1})

        async def all_at_once() -> Any:
            name = uuid.uuid4()
            return name, await asyncio.gather(*(build(name) for _ in range(40)))

        name, outcomes = finish(all_at_once())
        self.assertEqual((len(runs), build.__name__, build.__doc__), (1, "build", "Builds."))
        self.assertEqual(sum(outcome.replayed for outcome in outcomes), 39)
        self.assertEqual({(outcome.effect_id, outcome.receipt_json) for outcome in outcomes}, {(str(name), '{"size":1}')})

    def test_an_effect_that_is_slower_than_its_lease_keeps_its_claim(self) -> None:
        effect = self.booking(self.direct).options(lease_s=0.6)

        async def slow(claim: Claim) -> Done:
            await asyncio.sleep(1.8)
            return Done("RSV-30")

        self.assertFalse(finish(effect.run_async(slow)).replayed)

    def test_a_failure_that_changed_nothing_frees_the_key_and_any_other_keeps_it(self) -> None:
        effect = self.booking(self.direct)

        async def full(claim: Claim) -> Done:
            raise NotApplied("full")

        async def reset(claim: Claim) -> Done:
            self.assertEqual((claim.attempt, claim.recovering), (2, False))
            raise OSError("reset")

        with self.assertRaises(NotApplied):
            finish(effect.run_async(full))
        with self.assertRaises(OSError):
            finish(effect.run_async(reset))
        with self.assertRaises(InFlight):
            effect.claim()

    def test_an_outcome_that_cannot_be_sealed_is_kept_for_the_caller(self) -> None:
        async def nothing(claim: Claim) -> None:
            return None

        with self.assertRaisesRegex(Unsealed, "the effect returned None"):
            finish(self.booking(self.direct).run_async(nothing))  # type: ignore[arg-type]

    def test_a_task_that_is_cancelled_before_its_effect_gives_its_claim_back(self) -> None:
        effect = self.booking(self.direct)
        holder = effect.claim()

        async def cancel_while_waiting() -> None:
            task = asyncio.ensure_future(effect.run_async(self.fail))
            await until_waiting_beside_the_loop(1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        finish(cancel_while_waiting())
        calls = [thread for thread in threading.enumerate() if thread.name == "fencepost-call"]
        # The waiting thread is let in now, and finds that nobody wants it.
        holder.release()
        for thread in calls:
            thread.join(HASTY.deadline_s)
        self.assertEqual(len(calls), 1)
        self.assertEqual((effect.options(wait_s=10).claim().attempt), 3)

    def test_a_request_does_not_hold_up_the_loop(self) -> None:
        answer = finish(self.direct.request_async("POST", "/charges", json_body={"amount": 5}))
        self.assertEqual((answer.status, answer.json()["asked"]), (201, 12))
