"""How the daemon ends: asked to, told twice, or killed. Nothing is left that the next start would trip over."""

import contextlib
import os
import signal
import tempfile
import time
import unittest
from pathlib import Path

from harness import BOS, GEMMAD, TESTS, Daemon, gemmactl
from processes import is_running, pending, poll

LARGE = {"prompts": [{"input_ids": [BOS] + [9] * 1023}] * 32, "layers": [8]}
LAUNCH = TESTS.parent / "scripts" / "launch.sh"
FATAL_S = 10  # all ranks have left by then


class StopTestCase(unittest.TestCase):
    def start(self, ranks=2, **options):
        """A ready daemon that the test ends."""
        daemon = Daemon(ranks=ranks, **options)
        self.addCleanup(daemon.destroy)
        try:
            return daemon.start().wait_ready()
        except BaseException:
            daemon.show_log()
            raise

    def begin(self, daemon, request=None):
        """A client whose large encode runs."""
        client = daemon.client()
        self.addCleanup(client.close)
        client.send_request("encode", **(request or LARGE))
        poll(lambda: daemon.health()["queue"]["running"], "the job runs")
        return client

    def assert_ended(self, daemon, status, deadline_s=60):
        found = daemon.wait_exit(deadline_s)
        if status is None:
            self.assertNotEqual(found, 0, daemon.log())
        else:
            self.assertEqual(found, status, daemon.log())
        poll(lambda: not daemon.processes(), "no process is left", 5)

    def assert_clean_stop(self, daemon):
        self.assert_ended(daemon, 0)
        self.assertEqual(daemon.sockets(), [])
        self.assertIn("stopped", daemon.log())


class AskedToStop(StopTestCase):
    def test_sigterm_to_any_rank_stops_an_idle_daemon(self):
        for ranks, rank, number in ((1, 0, signal.SIGTERM), (2, 0, signal.SIGINT), (2, 1, signal.SIGTERM)):
            with self.subTest(ranks=ranks, rank=rank):
                daemon = self.start(ranks)
                daemon.signal_rank(rank, number)
                self.assert_clean_stop(daemon)

    def test_running_and_waiting_work_is_finished_and_answered(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                daemon = self.start()
                client = self.begin(daemon)
                waiting = client.send_request("encode", prompts=["a"], layers=[8])
                poll(lambda: sum(daemon.health()["queue"].values()) == 2, "the other waits")
                daemon.signal_rank(rank, signal.SIGTERM)
                replies = [client.read_reply() for _ in range(2)]
                self.assertEqual([reply["ok"] for reply in replies], [True, True], replies)
                self.assertEqual(replies[1]["id"], waiting)
                self.assert_clean_stop(daemon)

    def test_new_work_is_refused_while_it_drains(self):
        daemon = self.start()
        client = self.begin(daemon)
        other = daemon.client()
        self.addCleanup(other.close)
        self.assertTrue(other.call("health")["ok"])
        daemon.signal_rank(0, signal.SIGTERM)
        poll(lambda: other.call("health")["status"] == "draining", "it drains")
        refused = other.call("encode", prompts=["a"])
        self.assertEqual(refused["error"]["code"], "shutting_down", refused)
        self.assertTrue(client.read_reply()["ok"])
        self.assert_clean_stop(daemon)

    def test_work_that_cannot_finish_in_time_is_refused(self):
        daemon = self.start(drain_ms=100, heartbeat_ms=50)
        with daemon.held_still():
            client = daemon.client()
            self.addCleanup(client.close)
            client.send_request("encode", prompts=["a"])
            poll(lambda: daemon.health()["queue"]["waiting"], "it waits")
            daemon.signal_rank(0, signal.SIGTERM)
            reply = client.read_reply()
        self.assertEqual(reply["error"]["code"], "shutting_down", reply)
        self.assert_clean_stop(daemon)

    def test_work_that_waits_for_space_is_refused_when_the_time_is_over(self):
        daemon = self.start(ranks=1, segment_mib=1, drain_ms=300, heartbeat_ms=50)
        request = {"prompts": LARGE["prompts"][:2], "layers": [8]}
        with daemon.client() as client, daemon.reader() as reader:
            self.assertTrue(reader.acquire(client.call("encode", **request)["job"])["ok"])
            client.send_request("encode", **request)
            poll(lambda: daemon.health()["queue"]["waiting"], "it waits for space")
            daemon.signal_rank(0, signal.SIGTERM)
            reply = client.read_reply()
            self.assertEqual(reply["error"]["code"], "shutting_down", reply)
            self.assert_clean_stop(daemon)

    def test_gemmactl_shutdown_returns_when_it_has_stopped(self):
        daemon = self.start()
        client = self.begin(daemon)
        done = gemmactl(daemon, "shutdown")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertFalse(os.path.exists(daemon.socket))
        self.assertTrue(client.read_reply()["ok"])
        self.assert_clean_stop(daemon)

    def test_a_reader_that_holds_a_lease_does_not_keep_it_from_stopping(self):
        daemon = self.start()
        with daemon.client() as client, daemon.reader(1) as reader:
            lease = reader.acquire(client.call("encode", prompts=["a"])["job"])
            content = reader.tensors(lease)
            daemon.signal_rank(0, signal.SIGTERM)
            self.assert_clean_stop(daemon)
            self.assertEqual(reader.tensors(lease), content)

    def test_a_client_that_does_not_read_does_not_keep_it_from_stopping(self):
        daemon = self.start()
        client = daemon.client()
        self.addCleanup(client.close)
        client.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            for number in range(1000):
                client.send_request("tokenize", id=number, texts=["word " * 2000])
        daemon.signal_rank(0, signal.SIGTERM)
        self.assert_clean_stop(daemon)

    def test_the_same_socket_serves_again_and_again(self):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            for _ in range(3):
                daemon = self.start(ranks=1, folder=folder)
                self.assertEqual(daemon.stop(), 0)
                self.assertEqual(daemon.sockets(), [])


class ToldTwice(StopTestCase):
    def test_a_second_signal_ends_a_drain_at_once(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                daemon = self.start(heartbeat_ms=50)
                client = self.begin(daemon)
                other = daemon.client()
                self.addCleanup(other.close)
                self.assertTrue(other.call("health")["ok"])
                daemon.signal_rank(1 - rank, signal.SIGSTOP)  # the drain would take for ever
                if rank == 0:
                    daemon.signal_rank(0, signal.SIGTERM)
                    poll(lambda: other.call("health")["status"] == "draining", "it drains")
                else:
                    daemon.signal_rank(1, signal.SIGTERM)
                    poll(lambda: not pending(daemon.pids[1], signal.SIGTERM), "rank 1 has taken the first signal")
                started = time.monotonic()
                daemon.signal_rank(rank, signal.SIGTERM)
                self.assert_ended(daemon, None, FATAL_S)
                self.assertLess(time.monotonic() - started, FATAL_S)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.read_line()

    def test_a_second_signal_ends_a_stop_that_hangs(self):
        daemon = self.start(heartbeat_ms=60000)
        with daemon.client() as client:
            self.assertTrue(client.call("encode", prompts=["a"])["ok"])  # from now on rank 0 asks rank 1 nothing
        daemon.signal_rank(1, signal.SIGSTOP)  # rank 0 is done and waits for it to leave too
        daemon.signal_rank(0, signal.SIGTERM)
        poll(lambda: "stopped" in daemon.log(), "rank 0 has stopped serving")
        daemon.signal_rank(0, signal.SIGTERM)
        self.assert_ended(daemon, None, FATAL_S)

    def test_sigterm_to_mpirun_ends_all(self):
        daemon = self.start()
        daemon.process.send_signal(signal.SIGTERM)
        self.assert_ended(daemon, None, FATAL_S)


class Launcher(StopTestCase):
    """scripts/launch.sh stays in front of mpirun."""

    def start(self, ranks=2, **options):
        daemon = Daemon(ranks, **options)
        daemon.command = [str(LAUNCH), "-n", str(ranks), "--oversubscribe", "--build", str(Path(GEMMAD).parents[1]),
                          *daemon.arguments]
        self.addCleanup(daemon.destroy)
        self.addCleanup(self.kill_ranks, daemon)
        return daemon.start().wait_ready()

    def kill_ranks(self, daemon):
        for pid in daemon.pids:  # they have a session of their own
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)

    def test_passes_a_signal_on_and_ends_as_the_daemon_does(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                daemon = self.start()
                client = self.begin(daemon)
                daemon.process.send_signal(number)
                self.assertTrue(client.read_reply()["ok"])
                self.assert_clean_stop(daemon)
                self.assertFalse([pid for pid in daemon.pids if is_running(pid)])

    def test_a_second_signal_ends_all_at_once(self):
        daemon = self.start()
        self.begin(daemon)
        daemon.signal_rank(1, signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        poll(lambda: "stopping" in daemon.log(), "it drains")
        daemon.process.send_signal(signal.SIGTERM)
        self.assert_ended(daemon, 128 + signal.SIGTERM, FATAL_S)
        poll(lambda: not any(map(is_running, daemon.pids)), "no rank is left", 5)


class Killed(StopTestCase):
    def check(self, rank, busy):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            daemon = self.start(folder=folder)
            client = self.begin(daemon) if busy else None
            started = time.monotonic()
            daemon.signal_rank(rank, signal.SIGKILL)
            self.assert_ended(daemon, None, FATAL_S)
            self.assertLess(time.monotonic() - started, FATAL_S)
            if client:
                with self.assertRaises((EOFError, ConnectionError)):
                    client.read_line()
            again = self.start(folder=folder)
            with again.client() as fresh:
                self.assertTrue(fresh.call("encode", prompts=["a"], layers=[8])["ok"])
            self.assertEqual(again.stop(), 0, again.log())

    def test_rank_0_while_idle(self):
        self.check(0, busy=False)

    def test_another_rank_while_idle(self):
        self.check(1, busy=False)

    def test_rank_0_while_encoding(self):
        self.check(0, busy=True)

    def test_another_rank_while_encoding(self):
        self.check(1, busy=True)

    def test_a_rank_that_hangs_ends_all_at_the_time_limit(self):
        daemon = self.start(collective_timeout_ms=1000, compute_timeout_ms=1000, heartbeat_ms=50)
        started = time.monotonic()
        daemon.signal_rank(1, signal.SIGSTOP)
        self.assert_ended(daemon, None, FATAL_S)
        self.assertLess(time.monotonic() - started, FATAL_S)
        self.assertIn("no answer from rank 1", daemon.log())


if __name__ == "__main__":
    unittest.main()
