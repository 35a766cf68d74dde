"""Clients that misbehave, many clients, clients that leave, and a queue that is full: the others are served."""

import contextlib
import json
import socket
import time
import unittest

from harness import BOS, DaemonTestCase
from processes import is_running, poll, resident_bytes

MEBIBYTE = 1 << 20
# Long enough to be seen running: a second and more of computing.
LARGE = {"prompts": [{"input_ids": [BOS] + [9] * 1023}] * 32, "layers": [8]}


class ClientTestCase(DaemonTestCase):
    def tearDown(self):
        self.assert_alive()

    def wait_until_used(self, used_bytes):
        poll(lambda: all(rank["segment"]["used_bytes"] == used_bytes for rank in self.daemon.health()["ranks"]),
             f"{used_bytes} bytes used on every rank")

    def wait_until_running(self):
        poll(lambda: self.daemon.health()["queue"]["running"], "a job runs")


class BrokenLines(ClientTestCase):
    DAEMON = {"ranks": 1, "max_unsent_bytes": MEBIBYTE, "client_stall_ms": 1000}

    def test_half_a_line_then_gone(self):
        for half in (b"{", b'{"id":1,"op":"encode","prompts":["a', b"x" * 100_000):
            with self.daemon.client() as client:
                client.send(half)
            self.assert_alive()

    def test_half_a_line_then_shut_down_is_closed_without_a_reply(self):
        client = self.connect()
        client.send(b'{"id":1,"op":"health"}')
        client.socket.shutdown(socket.SHUT_WR)
        with self.assertRaises(EOFError):
            client.read_line()

    def test_a_line_without_end_is_dropped_in_time(self):
        client = self.connect()
        client.send(b'{"id":1')
        with self.assertRaises(EOFError):
            client.read_line()

    def test_a_client_that_is_silent_between_lines_is_kept(self):
        client = self.connect()
        self.assertTrue(client.call("health")["ok"])
        poll(lambda: self.daemon.health()["uptime_s"] > 2.5, "longer than a stalled client would be kept")
        self.assertTrue(client.call("health")["ok"])

    def test_a_line_of_a_gigabyte_is_refused_in_bounded_memory(self):
        pid, client = self.daemon.pids[0], self.connect()
        before, most = resident_bytes(pid), 0
        piece = b"x" * MEBIBYTE
        for _ in range(1024):
            client.send(piece)
            most = max(most, resident_bytes(pid))
        client.send(b"\n")
        reply = client.read_reply()
        self.assert_refused(reply, "line_too_long", "max_line_bytes")
        self.assertLess(most - before, 64 * MEBIBYTE)
        self.assertTrue(client.call("health")["ok"])

    def test_a_client_that_never_reads_is_dropped_and_others_are_served(self):
        client = self.connect()
        client.socket.settimeout(0.05)
        line = json.dumps({"id": 1, "op": "tokenize", "texts": ["word " * 2000]}).encode() + b"\n"

        def is_dropped():
            try:
                client.socket.send(line * 10)
            except TimeoutError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                return True
            self.assert_alive()
            return False

        poll(is_dropped, "the daemon drops the client")
        poll(lambda: "does not read" in self.daemon.log(), "it says so")

    def test_replies_of_many_megabytes_reach_a_client_that_reads(self):
        client = self.connect()
        texts = ["Q" * 20_000] * 10
        for _ in range(20):
            reply = client.call("tokenize", texts=texts)
            self.assertEqual([text["count"] for text in reply["texts"]], [20_001] * 10)

    def test_two_hundred_clients_at_once_are_all_served(self):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(self.daemon.client()) for _ in range(200)]
            for index, client in enumerate(clients):
                client.send_request("encode", id=f"client {index}", prompts=[{"input_ids": [BOS] * (index % 50 + 1)}],
                                    layers=[8], return_input_ids=True)
            jobs = set()
            for index, client in enumerate(clients):
                reply = client.read_reply()
                self.assertTrue(reply["ok"], reply)
                self.assertEqual(reply["id"], f"client {index}")
                self.assertEqual(reply["prompts"][0]["tokens"], index % 50 + 1)
                jobs.add(reply["job"])
            self.assertEqual(len(jobs), 200)

    def test_connections_that_come_and_go_leave_nothing(self):
        for _ in range(500):
            with self.daemon.client():
                pass
        poll(lambda: self.daemon.health()["clients"] == 1, "all but the one that asks have gone")


class LeavingClients(ClientTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50, "result_ttl_ms": 500}

    def test_a_job_whose_client_left_while_it_ran_expires(self):
        with self.daemon.client() as client:
            client.send_request("encode", **LARGE)
            self.wait_until_running()
        poll(lambda: self.daemon.health()["queue"] == {"running": 0, "waiting": 0}, "the job ends")
        self.wait_until_used(0)

    def test_a_job_whose_client_left_while_it_waited_is_given_up(self):
        with self.connect_reader() as reader:
            with self.daemon.held_still():
                reader.client.send_request("acquire", name="left", deadline_ms=60000)
                with self.daemon.client() as client:
                    client.send_request("encode", prompts=["a"], name="left")
                    poll(lambda: self.daemon.health()["queue"]["waiting"] == 1, "it waits")
                poll(lambda: self.daemon.health()["queue"]["waiting"] == 0, "it is given up")
            self.assert_refused(reader.client.read_reply(), "cancelled", "gone")
        self.wait_until_used(0)


class TooManyClients(ClientTestCase):
    DAEMON = {"ranks": 1, "max_clients": 3}

    def test_one_client_too_many_is_told_so_and_later_ones_are_served(self):
        def served():
            client = self.connect()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.send_request("health")
                return client if client.read_reply()["ok"] else None

        clients = [poll(served, "those that were here before have left") for _ in range(3)]
        refused = self.connect()
        self.assert_refused(refused.read_reply(), "too_many_clients", "3", "max_clients")
        with self.assertRaises(EOFError):
            refused.read_line()
        clients[0].close()
        self.assertEqual(self.daemon.health()["clients"], 3)
        for client in clients[1:]:
            self.assertTrue(client.call("health")["ok"])
        self.doCleanups()


class FullQueue(ClientTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50, "queue_length": 1}

    def test_one_request_too_many_is_refused_and_the_waiting_one_is_served(self):
        with self.daemon.held_still():
            client = self.connect()
            waiting = client.send_request("encode", prompts=["a"], layers=[8])
            refused = client.send_request("encode", prompts=["b"], layers=[8])
            reply = client.read_reply()
            self.assertEqual(reply["id"], refused)
            self.assert_refused(reply, "queue_full", "1", "queue_length")
            self.assertTrue(self.connect().call("tokenize", texts=["a"])["ok"])
        reply = client.read_reply()
        self.assertEqual((reply["id"], reply["ok"]), (waiting, True), reply)


class BusyDaemon(ClientTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50}

    def test_an_id_still_owed_a_reply_is_refused(self):
        client = self.connect()
        with self.daemon.held_still():
            client.send_request("encode", id="mine", prompts=["a"], layers=[8])
            client.send_request("encode", id="mine", prompts=["b"], layers=[8])
            self.assert_refused(client.read_reply(), "duplicate_id", "id")
            other = self.connect()
            other.send_request("encode", id="mine", prompts=["c"], layers=[8])
        for asked in (client, other):
            reply = asked.read_reply()
            self.assertEqual((reply["id"], reply["ok"]), ("mine", True), reply)
        self.assertTrue(client.call("encode", id="mine", prompts=["a"], layers=[8])["ok"])

    def test_a_deadline_passes_while_the_daemon_is_busy(self):
        client = self.connect()
        with self.daemon.held_still():
            started = time.monotonic()
            self.assert_refused(client.call("encode", prompts=["a"], deadline_ms=1, name="late"), "deadline")
            self.assertLess(time.monotonic() - started, 10)
        self.assert_refused(self.connect_reader(1).acquire(name="late"), "deadline")

    def test_a_waiting_encode_is_cancelled_by_job_name_or_request(self):
        job_before = self.connect().call("encode", prompts=[])["job"]
        client = self.connect()
        with self.daemon.held_still():
            for request, target in (("by job", {"job": job_before + 1}), ("by name", {"name": "by name"}),
                                    ("by request", {"request": "by request"})):
                client.send_request("encode", id=request, prompts=["a"], name=request)
                client.send_request("cancel", id="cancel", **target)
                self.assert_refused(client.read_reply(), "cancelled")
                reply = client.read_reply()
                self.assertEqual((reply["id"], reply["ok"], reply["cancelled"]), ("cancel", True, True), reply)
            self.assertEqual(self.daemon.health()["queue"], {"running": 0, "waiting": 0})
        for name in ("by job", "by name", "by request"):
            self.assert_refused(self.connect_reader().acquire(name=name), "cancelled")

    def test_anybody_may_cancel_by_name_but_only_the_asker_by_request(self):
        client = self.connect()
        with self.daemon.held_still():
            client.send_request("encode", id=5, prompts=["a"], name="theirs")
            poll(lambda: self.daemon.health()["queue"]["waiting"] == 1, "it waits")
            other = self.connect()
            self.assert_refused(other.call("cancel", id=1, request=5), "not_found")
            self.assertTrue(other.call("cancel", id=2, name="theirs")["cancelled"])
            self.assert_refused(client.read_reply(), "cancelled")

    def test_a_running_encode_goes_on_when_it_is_cancelled(self):
        client = self.connect()
        number = client.send_request("encode", name="running", **LARGE)
        self.wait_until_running()
        reply = self.connect().call("cancel", name="running")
        self.assertEqual((reply["cancelled"], reply["state"]), (False, "running"), reply)
        reply = client.read_reply()
        self.assertEqual((reply["id"], reply["ok"]), (number, True))
        self.assert_refused(self.connect().call("cancel", name="running"), "not_found")
        self.connect_reader().take(reply["job"])

    def test_a_name_that_waits_already_is_refused(self):
        client = self.connect()
        with self.daemon.held_still():
            first = client.send_request("encode", prompts=["a"], name="twice", layers=[8])
            self.assert_refused(client.call("encode", prompts=["b"], name="twice"), "name_in_use", "twice")
        reply = client.read_reply()
        self.assertEqual((reply["id"], reply["ok"]), (first, True), reply)

    def test_a_client_that_shut_down_its_side_still_gets_its_reply(self):
        client = self.connect()
        client.send_request("encode", prompts=["a"], layers=[8])
        client.socket.shutdown(socket.SHUT_WR)
        self.assertTrue(client.read_reply()["ok"])
        with self.assertRaises(EOFError):
            client.read_line()

    def test_the_ranks_live_through_all_this(self):
        self.assertTrue(all(is_running(pid) for pid in self.daemon.pids))


if __name__ == "__main__":
    unittest.main()
