"""A rank that dies or hangs, in every mode and between two: all end soon, say who it was, and leave nothing behind."""

import contextlib
import itertools
import signal
import tempfile
import threading
import time
import unittest

from harness import BOS, Client, Daemon
from modes import BATCH_PARALLEL, LAYER, MODES, TENSOR
from processes import cpu_seconds, poll, process_stat

FATAL_S = 10  # all ranks have left by then
TIMEOUT_MS = 2000
RANKS = 3
# Seconds of computing on any machine.
LARGE = {"prompts": [{"input_ids": [BOS] + [9] * 1023}] * 16, "layers": [8]}


class FailureTestCase(unittest.TestCase):
    def start(self, ranks=RANKS, **options):
        """A ready daemon that the test ends."""
        daemon = Daemon(ranks=ranks, **options)
        self.addCleanup(daemon.destroy)
        try:
            return daemon.start().wait_ready()
        except BaseException:
            daemon.show_log()
            raise

    def begin(self, daemon):
        """A client whose large encode is being computed on every rank."""
        before = [cpu_seconds(pid) for pid in daemon.pids]
        client = daemon.client()
        self.addCleanup(client.close)
        client.send_request("encode", **LARGE)
        poll(lambda: all(cpu_seconds(pid) > used + 0.05 for pid, used in zip(daemon.pids, before)), "all ranks compute")
        return client

    def assert_ended(self, daemon, since):
        """With a status that is not 0, in time, and without remains."""
        try:
            self.assertNotEqual(daemon.wait_exit(FATAL_S - (time.monotonic() - since)), 0)
            poll(lambda: not daemon.processes(), "no process is left", 5)
        except AssertionError:
            daemon.show_log()
            raise

    def assert_nobody_listens(self, daemon):
        """Files of sockets may stay where a rank was killed; the next start replaces them."""
        def is_refused(name):
            try:
                Client(str(daemon.folder / name)).close()
            except ConnectionRefusedError:
                return True
            return False  # a killed rank's last threads may still be on their way out

        for name in daemon.sockets():
            poll(lambda: is_refused(name), f"nobody listens on {name}", 2)

    def assert_unanswered(self, client):
        with self.assertRaises((EOFError, ConnectionError)):
            client.read_line()

    def assert_serves(self, daemon):
        with daemon.client() as client:
            self.assertTrue(client.call("encode", prompts=["a"], layers=[8])["ok"])


class Killed(FailureTestCase):
    """SIGKILL. Then a new daemon starts on the same sockets."""

    def check(self, rank, make_busy, **settings):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            daemon = self.start(folder=folder, **settings)
            client = make_busy(daemon)
            since = time.monotonic()
            daemon.signal_rank(rank, signal.SIGKILL)
            self.assert_ended(daemon, since)
            self.assert_unanswered(client)
            self.assert_nobody_listens(daemon)
            again = self.start(folder=folder, **settings)
            self.assertEqual(len(again.sockets()), 1 + RANKS)
            self.assert_serves(again)
            self.assertEqual(again.stop(), 0, again.log())
            self.assertEqual(again.sockets(), [])

    def test_in_an_all_reduce(self):
        self.check(1, self.begin, **TENSOR)

    def test_at_either_end_of_a_pipeline(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                self.check(rank, self.begin, **LAYER)

    def test_between_modes(self):
        """Switch upon switch, and encodes in between."""
        def make_busy(daemon):
            client = daemon.client()
            self.addCleanup(client.close)
            thread = threading.Thread(target=self.switch_on_and_on, args=(daemon,))
            thread.start()
            self.addCleanup(thread.join)
            self.addCleanup(daemon.destroy)  # before it: then the thread ends
            poll(lambda: daemon.log().count("new settings in force") >= 5, "it has switched a few times")
            client.send_request("encode", **LARGE)
            return client

        for rank in (0, 1):
            with self.subTest(rank=rank):
                self.check(rank, make_busy)

    def switch_on_and_on(self, daemon):
        with contextlib.suppress(EOFError, ConnectionError, FileNotFoundError), daemon.client() as client:
            for settings in itertools.cycle(MODES.values()):
                client.call("switch", **settings)
                client.call("encode", prompts=["a"], layers=[8])

    def test_a_rank_that_only_receives(self):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            daemon = self.start(folder=folder, **LAYER, encoder_ranks="0,1")
            since = time.monotonic()
            daemon.signal_rank(2, signal.SIGKILL)
            self.assert_ended(daemon, since)
            self.assertEqual(self.start(folder=folder).stop(), 0)


class Hanging(FailureTestCase):
    """SIGSTOP, with time limits of two seconds."""

    def start(self, **settings):
        limits = {"collective_timeout_ms": TIMEOUT_MS, "compute_timeout_ms": TIMEOUT_MS, "heartbeat_ms": 50}
        return super().start(**{**limits, **settings})

    def check(self, daemon, rank, client=None):
        since = self.stop(daemon, rank)
        self.assert_ended(daemon, since)
        self.assertGreater(time.monotonic() - since, TIMEOUT_MS / 1000 * 0.9)
        self.assert_blames(daemon, rank)
        if client:
            self.assert_unanswered(client)

    def stop(self, daemon, rank):
        """Returns when that was."""
        since = time.monotonic()
        daemon.signal_rank(rank, signal.SIGSTOP)
        poll(lambda: process_stat(daemon.pids[rank])[0] == "T", f"rank {rank} has stopped")
        return since

    def assert_blames(self, daemon, rank):
        self.assertRegex(daemon.log(), rf"no answer from ranks? ([0-9]+, )*{rank}\b")

    def test_in_an_all_reduce(self):
        daemon = self.start(**TENSOR)
        self.check(daemon, 1, self.begin(daemon))

    def test_at_every_place_of_a_pipeline(self):
        for rank in range(RANKS):
            with self.subTest(rank=rank):
                daemon = self.start(**LAYER)
                self.check(daemon, rank, self.begin(daemon))

    def test_while_each_computes_its_own(self):
        daemon = self.start(**BATCH_PARALLEL)
        self.check(daemon, 2, self.begin(daemon))

    def test_while_idle(self):
        self.check(self.start(**TENSOR), 1)

    def test_rank_0_while_idle(self):
        self.check(self.start(**TENSOR), 0)

    def test_while_the_others_wake(self):
        daemon = self.start(**TENSOR, heartbeat_ms=60000)
        with daemon.client() as client:
            self.assertTrue(client.call("sleep")["asleep"])
            since = self.stop(daemon, 1)
            client.send_request("encode", prompts=["a"], layers=[8])
            self.assert_ended(daemon, since)
        self.assert_blames(daemon, 1)


if __name__ == "__main__":
    unittest.main()
