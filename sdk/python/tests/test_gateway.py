"""An API behind the gateway: one request is one call."""

import threading
import uuid
from dataclasses import replace
from typing import List

from fencepost import Answer, Conflict, InFlight

from .stage import HASTY, StageTest, stage


class Gateway(StageTest):
    def test_one_request_is_one_call_however_often_it_is_sent(self) -> None:
        requests, calls = int(stage("requests")), int(stage("calls"))
        # Two tries meet a busy server, the third is carried out and its answer lost, the fourth gets that answer.
        stage("faults", "503:0,429:0,lose")
        first = self.road.request("POST", "/charges", json_body={"amount": 5})
        self.assertEqual((first.status, first.replayed), (201, True))
        self.assertEqual(first.body, b'{"charge": %d, "asked": 12}' % (calls + 1))
        self.assertEqual(first.json(), {"charge": calls + 1, "asked": 12})
        self.assertEqual((int(stage("requests")) - requests, int(stage("calls")) - calls), (4, 1))
        self.assertEqual(uuid.UUID(first.idempotency_key).version, 7)
        second = self.road.request("POST", "/charges", json_body={"amount": 5})
        self.assertNotEqual(second.idempotency_key, first.idempotency_key)
        self.assertEqual((second.status, second.replayed, int(stage("calls")) - calls), (201, False, 2))

    def test_another_body_under_the_callers_own_key_is_a_conflict(self) -> None:
        key = str(uuid.uuid4())
        first = self.direct.request("POST", "/charges", json_body={"amount": 5}, idempotency_key=key)
        second = self.direct.request("POST", "/charges", json_body={"amount": 5}, idempotency_key=key)
        self.assertEqual((first.replayed, second.replayed, first.body), (False, True, second.body))
        with self.assertRaises(Conflict) as refused:
            self.direct.request("POST", "/charges", json_body={"amount": 6}, idempotency_key=key)
        problem = refused.exception.problem
        assert problem is not None
        self.assertEqual(problem.diff, [{"op": "replace", "path": "/amount", "value": 6}])

    def test_a_key_among_the_headers_is_the_callers_own_and_an_empty_one_is_refused(self) -> None:
        key, calls = str(uuid.uuid4()), int(stage("calls"))
        for replayed in (False, True):
            answer = self.direct.request("POST", "/charges", json_body={"amount": 5}, headers={"idempotency-key": key})
            self.assertEqual((answer.replayed, answer.idempotency_key), (replayed, key))
        self.assertEqual(int(stage("calls")) - calls, 1)
        for wrong in ({"idempotency_key": ""}, {"idempotency_key": "a", "headers": {"Idempotency-Key": "b"}}):
            with self.assertRaises(ValueError):
                self.direct.request("POST", "/charges", json_body={}, **wrong)  # type: ignore[arg-type]

    def test_a_header_of_the_callers_takes_the_place_of_ours_in_any_case(self) -> None:
        stranger = self.client("FENCEPOST_URL", "nobody")
        headers = {"AUTHORIZATION": "Bearer dev-partner", "content-type": "application/json; charset=utf-8"}
        self.assertEqual(stranger.request("POST", "/charges", json_body={"amount": 5}, headers=headers).status, 201)

    def test_of_two_at_once_both_get_the_one_answer(self) -> None:
        key, calls = str(uuid.uuid4()), int(stage("calls"))
        answers: List[Answer] = []

        def one() -> None:
            answers.append(self.direct.request("POST", "/charges", json_body="hold", idempotency_key=key))
            self.direct.close()

        first, second = threading.Thread(target=one), threading.Thread(target=one)
        first.start()
        while int(stage("calls")) == calls:
            pass
        # A client without time to wait hears that the request is in flight; after a 503, that it may be its own.
        stage("faults", "503:0")
        hasty = self.client("FENCEPOST_ROAD", retry=replace(HASTY, deadline_s=1))
        with self.assertRaises(InFlight) as held:
            hasty.request("POST", "/charges", json_body="hold", idempotency_key=key)
        self.assertTrue(held.exception.perhaps_own)
        self.assertIn("deadline_s", str(held.exception))
        self.assertNotIn("wait_ms", str(held.exception))
        second.start()
        stage("let-go")
        for thread in (first, second):
            thread.join()
        self.assertEqual(sorted(answer.replayed for answer in answers), [False, True])
        self.assertEqual((answers[0].body, int(stage("calls")) - calls), (answers[1].body, 1))
