"""A random mix of clients and readers, good and bad, in parallel: afterwards nothing is left and all is well."""

import contextlib
import random
import threading
import time
import unittest

from harness import BOS, DaemonTestCase
from processes import DEADLINE_S, poll

SEED = 20240611
MIX_S = 4.0
ENOUGH = 20  # encodes that went well, for a mix
# What may come back for a good request here: the segment is small, names collide, cancels strike.
USUAL_CODES = {"queue_full", "name_in_use", "cancelled", "deadline", "buffers_exhausted", "result_too_large", "duplicate_id",
               "gone", "too_many_clients"}


class Mix(DaemonTestCase):
    DAEMON = {"ranks": 2, "segment_mib": 1, "result_ttl_ms": 300, "heartbeat_ms": 50, "queue_length": 16, "deadline_ms": 500,
              "max_clients": 64, "max_readers": 64}

    def setUp(self):
        self.until = time.monotonic() + MIX_S
        self.surprises = []
        self.codes = {}

    def note(self, reply):
        code = "ok" if reply["ok"] else reply["error"]["code"]
        self.codes[code] = self.codes.get(code, 0) + 1
        if code != "ok" and code not in USUAL_CODES:
            self.surprises.append(reply)

    def submit(self, chance):
        """A client that encodes, and often does not stay for the answer."""
        with self.daemon.client() as client:
            for number in range(chance.randint(1, 4)):
                prompts = [{"input_ids": [BOS] * chance.choice([1, 7, 100, 700])} for _ in range(chance.randint(0, 4))]
                fields = {"name": f"name {chance.randint(0, 5)}"} if chance.random() < 0.5 else {}
                client.send_request("encode", id=number, prompts=prompts, layers=[chance.randint(0, 8)],
                                    deadline_ms=chance.choice([1, 50, 1000]), **fields)
                if chance.random() < 0.3:
                    client.send_request("cancel", id="cancel", request=number)
                    while client.read_reply()["id"] != "cancel":
                        pass
                elif chance.random() < 0.7:
                    self.note(client.read_reply())

    def read(self, chance):
        """A reader that waits for names, and often leaves without a release."""
        with self.daemon.reader(chance.randint(0, 1)) as reader:
            for _ in range(chance.randint(1, 5)):
                lease = reader.acquire(name=f"name {chance.randint(0, 5)}", deadline_ms=chance.choice([0, 20, 200]))
                self.note(lease)
                if lease["ok"] and chance.random() < 0.6:
                    reader.tensors(lease)
                    reader.release(lease)

    def disturb(self, chance):
        """A client that sends nonsense."""
        with self.daemon.client() as client:
            line = bytearray(b'{"id":1,"op":"encode","prompts":["a dog"],"layers":[8],"deadline_ms":100}')
            for _ in range(chance.randint(1, 5)):
                line[chance.randrange(len(line))] = chance.choice(b'{}[]",:0\0\xff\\')
            client.send(bytes(line) + (b"\n" if chance.random() < 0.7 else b""))

    def repeat(self, act, seed):
        chance = random.Random(seed)
        try:
            while time.monotonic() < self.until or self.is_short():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
                    act(chance)
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.surprises.append(repr(error))

    def is_short(self):
        """Of encodes that went well: a slow machine has more time for them."""
        return self.codes.get("ok", 0) <= ENOUGH and time.monotonic() < self.until + DEADLINE_S

    def test_leaves_nothing_behind(self):
        acts = [self.submit] * 4 + [self.read] * 4 + [self.disturb]
        threads = [threading.Thread(target=self.repeat, args=(act, SEED + i)) for i, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("answers by code:", dict(sorted(self.codes.items())))
        self.assertEqual(self.surprises[:3], [])
        self.assertGreater(self.codes.get("ok", 0), ENOUGH)
        poll(lambda: self.daemon.health()["queue"] == {"running": 0, "waiting": 0}, "all work ends")

        def is_empty():
            return all((rank["segment"][key] == 0) for rank in self.daemon.health()["ranks"]
                       for key in ("used_bytes", "leases", "results"))

        poll(is_empty, "every result goes")
        poll(lambda: self.daemon.health()["clients"] <= 1, "every client goes")
        self.assertTrue(self.connect().call("encode", prompts=["a dog"], layers=[8])["ok"])


if __name__ == "__main__":
    unittest.main()
