"""Parts that need no server."""

import contextlib
import socket
import threading
import time
import unittest
import uuid
from email.utils import formatdate

from fencepost import Done, Fencepost, Retry, Unavailable, uuid7
from fencepost._done import sealable
from fencepost._http import Reply
from fencepost._json import raw_members
from fencepost._retry import retry_after_s

IMPATIENT = Retry(attempt_timeout_s=0.3, deadline_s=0.3)


def drip(listener: socket.socket, begin: bytes, left: threading.Event) -> None:
    """Says `begin`, and then a byte now and again for 6 s."""
    with contextlib.suppress(OSError), listener.accept()[0] as stream:
        stream.sendall(begin)
        for _ in range(120):
            if left.wait(0.05):
                return
            stream.sendall(b"x")


class Parts(unittest.TestCase):
    def test_a_member_keeps_its_exact_text(self) -> None:
        text = ' { "a" : {"b" : 1.0, "c":"\\u00e9}"} , "d":[1, 2],"e":null } '
        self.assertEqual(raw_members(text), {"a": '{"b" : 1.0, "c":"\\u00e9}"}', "d": "[1, 2]", "e": "null"})
        self.assertEqual(raw_members("{}"), {})

    def test_a_receipt_cannot_end_the_document_it_is_put_into(self) -> None:
        for wrong in (Done("x", receipt_json='{},"token":1'), Done("x", float("nan"))):
            with self.assertRaisesRegex(TypeError, "is not JSON"):
                sealable(wrong)

    def test_keys_are_uuids_of_version_7_that_sort_by_time(self) -> None:
        before = int(time.time() * 1000)
        made = [uuid7() for _ in range(1000)]
        after = int(time.time() * 1000)
        self.assertEqual(len(set(made)), 1000)
        for key in made:
            known = uuid.UUID(key)
            self.assertEqual((known.version, known.variant), (7, uuid.RFC_4122))
            self.assertTrue(before <= known.int >> 80 <= after)

    def test_pauses_are_random_below_a_ceiling_that_doubles_to_its_maximum(self) -> None:
        retry = Retry()
        for number, ceiling_s in ((1, 0.1), (2, 0.2), (5, 1.6), (7, 5.0), (4_000_000_000, 5.0)):
            pauses = [retry.pause_before(number) for _ in range(2000)]
            self.assertTrue(ceiling_s * 0.9 < max(pauses) <= ceiling_s, number)
            self.assertLess(min(pauses), ceiling_s * 0.1)

    def test_retry_after_is_seconds_or_a_date(self) -> None:
        def read(text: str) -> object:
            return retry_after_s(Reply(503, [("Retry-After", text)], b""))

        self.assertEqual(read("3"), 3)
        self.assertEqual(read("Sun, 06 Nov 1994 08:49:37 GMT"), 0)
        soon = read(formatdate(time.time() + 100, usegmt=True))
        self.assertTrue(isinstance(soon, float) and 90 < soon <= 100)
        self.assertIsNone(read("soon"))
        self.assertIsNone(read("-1"))
        self.assertIsNone(retry_after_s(Reply(503, [], b"")))

    def test_an_address_that_is_none_is_refused_at_once(self) -> None:
        for address in ("127.0.0.1:7411", "ftp://x", "http://", "http://u:p@x", "http://x/a b"):
            with self.assertRaises(ValueError):
                Fencepost(address, "token")

    def test_a_path_that_is_none_is_refused_at_once(self) -> None:
        for path in ("", "cases", "/a b", "/a\n", "/\x7f", "/é"):
            with self.assertRaises(ValueError):
                Fencepost("http://127.0.0.1:1", "token", IMPATIENT).request("POST", path)

    def test_an_answer_that_comes_byte_by_byte_is_given_up_when_its_time_is_over(self) -> None:
        for begin in (b"HTTP/1.1 200 OK\r\nslow: ", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"):
            left = threading.Event()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                thread = threading.Thread(target=drip, args=(listener, begin, left))
                thread.start()
                client = Fencepost("http://127.0.0.1:%d" % listener.getsockname()[1], "token", IMPATIENT)
                begun = time.monotonic()
                with self.assertRaises(Unavailable) as late:
                    client.request("POST", "/charges")
                self.assertLess(time.monotonic() - begun, 3)
                self.assertTrue(late.exception.unanswered)
                left.set()
                thread.join()
