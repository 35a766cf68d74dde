"""A rank that dies or hangs while a prompt is rewritten: all end soon, and leave nothing behind."""

import signal
import tempfile
import time
import unittest
from pathlib import Path

from enhancing import ENDLESS, make_endless
from failure_modes_test import FATAL_S, TIMEOUT_MS, FailureTestCase
from harness import TEXT_TINY, TINY
from modes import BATCH_PARALLEL, LAYER, TENSOR

RANKS = 2


class Death(FailureTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = make_endless(TINY, Path(cls.folder.name) / "endless")

    def start(self, **options):
        return super().start(**{"ranks": RANKS, "model": self.model, **options})

    def begin(self, daemon):
        """A client whose enhancement runs."""
        client = daemon.client()
        self.addCleanup(client.close)
        client.send_request("enhance_t2v", prompt="a dog", **ENDLESS)
        self.assertEqual(client.read_reply()["event"], "token")
        return client

    def assert_unanswered(self, client):
        """What had come by then may be read still."""
        with self.assertRaises((EOFError, ConnectionError)):
            while client.read_reply()["event"] == "token":
                pass

    def check_killed(self, rank, starts_again=False, **settings):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            daemon = self.start(folder=folder, **settings)
            client = self.begin(daemon)
            since = time.monotonic()
            daemon.signal_rank(rank, signal.SIGKILL)
            self.assert_ended(daemon, since)
            self.assert_unanswered(client)
            self.assert_nobody_listens(daemon)
            if not starts_again:
                return
            again = self.start(folder=folder, **settings)
            self.assertEqual(len(again.sockets()), 1 + RANKS)
            self.begin(again).close()
            self.assert_serves(again)
            self.assertEqual(again.stop(), 0, again.log())
            self.assertEqual(again.sockets(), [])

    def test_either_rank_is_killed(self):
        for rank in range(RANKS):
            with self.subTest(rank=rank):
                self.check_killed(rank, starts_again=rank == 0, **BATCH_PARALLEL)

    def test_a_rank_is_killed_in_an_all_reduce(self):
        self.check_killed(1, **TENSOR)

    def test_a_rank_is_killed_in_a_pipeline(self):
        self.check_killed(1, **LAYER)

    def test_a_rank_of_a_separate_enhancer_is_killed(self):
        self.check_killed(1, **{"model": TEXT_TINY, "enhancer.model": self.model})

    def test_a_rank_hangs(self):
        limits = {"collective_timeout_ms": TIMEOUT_MS, "compute_timeout_ms": TIMEOUT_MS, "heartbeat_ms": 50}
        daemon = self.start(**TENSOR, **limits)
        client = self.begin(daemon)
        since = time.monotonic()
        daemon.signal_rank(1, signal.SIGSTOP)
        self.assert_ended(daemon, since)
        self.assertLess(time.monotonic() - since, FATAL_S)
        self.assertRegex(daemon.log(), r"no answer from ranks? 1\b")
        self.assert_unanswered(client)

    def test_a_shutdown_lets_it_end(self):
        """Within drain_ms."""
        daemon = self.start()
        client = daemon.client()
        self.addCleanup(client.close)
        client.send_request("enhance_t2v", prompt="a dog", **{**ENDLESS, "max_new_tokens": 400})
        self.assertEqual(client.read_reply()["event"], "token")
        daemon.signal_rank(0, signal.SIGTERM)
        while "ok" not in (reply := client.read_reply()):
            pass
        self.assertEqual((reply["ok"], reply["tokens_out"]), (True, 400), reply)
        self.assertEqual(daemon.wait_exit(), 0, daemon.log())
        self.assertEqual(daemon.sockets(), [])

    def test_a_shutdown_ends_what_takes_too_long(self):
        daemon = self.start(drain_ms=100)
        client = self.begin(daemon)
        daemon.signal_rank(1, signal.SIGTERM)
        while "ok" not in (reply := client.read_reply()):
            pass
        self.assertEqual(reply["error"]["code"], "shutting_down", reply)
        self.assertEqual(daemon.wait_exit(), 0, daemon.log())
        self.assertEqual(daemon.sockets(), [])


if __name__ == "__main__":
    unittest.main()
