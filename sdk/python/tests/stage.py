"""The server under test, and the road to it on which answers get lost. Both are started by the test of the command line:
`cargo nextest run -p fencepost-cli sdk`."""

import os
import unittest
import urllib.request
import uuid

from fencepost import Effect, Fencepost, Retry

HASTY = Retry(pause_s=0.02, deadline_s=20)


def need(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError("%s is not set: run these with cargo nextest run -p fencepost-cli sdk" % name)
    return value


def stage(path: str, body: str = "") -> str:
    data = body.encode() if path in ("faults", "crash", "let-go") else None
    with urllib.request.urlopen("%s/_stage/%s" % (need("FENCEPOST_ROAD"), path), data) as answer:
        return str(answer.read(), "utf-8")


class StageTest(unittest.TestCase):
    def setUp(self) -> None:
        self.direct = self.client("FENCEPOST_URL")
        self.road = self.client("FENCEPOST_ROAD")

    def client(self, where: str, token: str = "dev-partner", retry: Retry = HASTY) -> Fencepost:
        client = Fencepost(need(where), token, retry)
        self.addCleanup(client.close)
        return client

    def booking(self, client: Fencepost, group: str = "") -> Effect:
        group = group or str(uuid.uuid4())
        return client.scope("BOOKING").key(caseUrn="urn:case:7", waveUrn="urn:wave:1", groupId=group)
