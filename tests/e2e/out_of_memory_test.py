"""One rank that cannot hold or cannot read its part: named once, and nobody waits for it. The others are as they were."""

import contextlib
import random
import resource
import tempfile
import time
import unittest
from pathlib import Path

from harness import GEMMAD, TINY, Daemon
from modes import BATCH_PARALLEL, TENSOR, ModeTestCase, random_prompt
from processes import poll, resident_bytes
from random_model import copy_model, write_random_model

CANNOT_START, FAILED = 1, 3
SOON_S = 10
MEBIBYTE = 1 << 20
SETTINGS = {"max_tokens": 64, "batch_tokens": 64, "segment_mib": 4, "compute_threads": 1, "heartbeat_ms": 50}


def set_address_space(pid, size_bytes):
    _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size_bytes, hard))


def with_other_last_rank(daemon, program, model=None):
    """Changes the command so that the last rank is started by `program`, or on another model."""
    at = daemon.command.index("-n")
    arguments = list(daemon.arguments)
    if model:
        arguments[arguments.index("--model") + 1] = str(model)
    daemon.command[at + 1] = str(daemon.ranks - 1)
    daemon.command += [":", "-n", "1", *program, str(GEMMAD), *arguments]


class StartWithOneBadRank(unittest.TestCase):
    """In mpirun's MPMD form."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refused(self, daemon, *words):
        """Ends soon with one line that has all words. Returns that line."""
        self.addCleanup(daemon.destroy)
        daemon.start()
        self.assertEqual(daemon.wait_exit(SOON_S), CANNOT_START, daemon.log())
        said = [line for line in daemon.log().splitlines() if "critical" in line]
        self.assertEqual(len(said), 1, daemon.log())
        for word in words:
            self.assertIn(word, said[0])
        self.assertEqual(daemon.sockets(), [])
        poll(lambda: not daemon.processes(), "no process is left", 5)

    def test_whose_model_is_cut_short(self):
        bad = copy_model(TINY, self.folder / "bad")
        file = bad / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1000])
        daemon = Daemon(ranks=3, no_patience=True, **TENSOR)
        with_other_last_rank(daemon, [], bad)
        self.refused(daemon, "rank 2", str(file), "cut short")

    def test_whose_model_is_missing(self):
        daemon = Daemon(ranks=2, no_patience=True)
        with_other_last_rank(daemon, [], self.folder / "nowhere")
        self.refused(daemon, "rank 1", "nowhere", "not a directory")

    def test_whose_model_is_another_one(self):
        daemon = Daemon(ranks=2, no_patience=True, **SETTINGS)
        with_other_last_rank(daemon, [], write_random_model(self.folder / "other", layers=1))
        self.refused(daemon, "rank 1", "different models")

    def test_that_has_too_little_memory(self):
        model = write_random_model(self.folder / "model")
        with Daemon(ranks=2, model=model, **BATCH_PARALLEL, **SETTINGS) as daemon:
            needed = resident_bytes(daemon.pids[1], "VmPeak")
        daemon = Daemon(ranks=2, model=model, no_patience=True, **BATCH_PARALLEL, **SETTINGS)
        with_other_last_rank(daemon, ["prlimit", f"--as={needed - 60 * MEBIBYTE}"])
        self.refused(daemon, "rank 1", "memory")


class LimitedAtRunTime(ModeTestCase):
    """Rank 1 gets no more memory than it has, and some."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enter(tempfile.TemporaryDirectory())
        cls.DAEMON = {"ranks": 2, "model": write_random_model(Path(folder) / "model"), **TENSOR, **SETTINGS}
        super().setUpClass()
        generator = random.Random(1)
        cls.request = {"prompts": [random_prompt(generator, 20) for _ in range(2)], "layers": [8]}

    def setUp(self):
        self.client = self.connect()
        self.switch(**TENSOR)
        _, self.tensors = self.encode(self.request)

    @contextlib.contextmanager
    def limited(self, more_bytes):
        pid = self.daemon.pids[1]
        set_address_space(pid, resident_bytes(pid, "VmSize") + more_bytes)
        try:
            yield
        finally:
            set_address_space(pid, resource.RLIM_INFINITY)

    def check_as_before(self):
        info = self.info()
        self.assertEqual((info["mode"], info["strategy"], info["asleep"]), ("sharded", "tensor", False))
        self.assertEqual(self.encode(self.request)[1], self.tensors)

    def test_a_switch_that_does_not_fit_is_refused_and_undone(self):
        with self.limited(30 * MEBIBYTE):  # a replica is 60 MiB more than a half
            for _ in range(3):
                self.assert_refused(self.client.call("switch", **BATCH_PARALLEL), "cannot_switch", "rank 1", "memory")
                self.check_as_before()
        self.assertTrue(self.client.call("switch", **BATCH_PARALLEL)["ok"])

    def test_a_wake_that_does_not_fit_is_refused_until_it_fits(self):
        self.assertTrue(self.client.call("sleep")["ok"])
        with self.limited(20 * MEBIBYTE):  # a half is 60 MiB
            for _ in range(2):
                self.assert_refused(self.client.call("wake"), "cannot_wake", "rank 1", "memory")
                self.assert_refused(self.client.call("encode", **self.request, name="unlucky"), "cannot_wake", "rank 1")
                for rank in (0, 1):
                    self.assert_refused(self.connect_reader(rank).acquire(name="unlucky", deadline_ms=0), "cannot_wake")
                self.assertTrue(self.info()["asleep"])
                self.assertEqual({rank["bytes"]["weights"] for rank in self.info()["ranks"]}, {0})
        self.assertEqual(self.encode(self.request)[1], self.tensors)
        self.check_as_before()


class FirstEncode(unittest.TestCase):
    def test_needs_no_more_memory_than_the_start(self):
        """A rank that was ready has what it computes with."""
        with Daemon(ranks=2, **TENSOR, **SETTINGS, collective_timeout_ms=3000, compute_timeout_ms=3000) as daemon:
            pid = daemon.pids[1]
            set_address_space(pid, resident_bytes(pid, "VmSize") + 8 * MEBIBYTE)
            with daemon.client() as client:
                self.assertTrue(client.call("encode", prompts=["a dog"], layers=[8])["ok"])


class NoWayBack(unittest.TestCase):
    def test_a_switch_that_cannot_be_undone_ends_all_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            daemon = Daemon(ranks=2, model=write_random_model(Path(folder) / "model"), **TENSOR, **SETTINGS)
            self.addCleanup(daemon.destroy)
            daemon.start().wait_ready()
            with daemon.client() as client:
                self.assertTrue(client.call("encode", prompts=["a dog"], layers=[8])["ok"])
                pid = daemon.pids[1]
                set_address_space(pid, resident_bytes(pid, "VmSize") - 30 * MEBIBYTE)
                since = time.monotonic()
                client.send_request("switch", **BATCH_PARALLEL)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.read_line()
            self.assertEqual(daemon.wait_exit(SOON_S), FAILED, daemon.log())
            self.assertLess(time.monotonic() - since, SOON_S)
            self.assertIn("could not be taken up again: rank 1", daemon.log())
            self.assertEqual(daemon.sockets(), [])


if __name__ == "__main__":
    unittest.main()
