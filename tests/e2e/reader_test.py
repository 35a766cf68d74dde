"""Readers of the segment: what they may do to it, how they die, and what happens when it is full."""

import ctypes
import errno
import mmap
import os
import signal
import time
import unittest

from harness import BOS, DaemonTestCase
from processes import LIBC, poll

# Results of these take 96 pages each (1024 tokens of 96 floats): a segment of 1 MiB holds two of them.
PROMPT = {"input_ids": [BOS] + [9] * 1023}
RESULT_BYTES = 1024 * 96 * 4


class ReaderTestCase(DaemonTestCase):
    def encode(self, prompts=None, **fields):
        """The reply's job."""
        reply = self.connect().call("encode", prompts=prompts or [PROMPT], **{"layers": [8], **fields})
        self.assertTrue(reply["ok"], reply)
        return reply["job"]

    def segment(self, rank=0):
        return self.daemon.health()["ranks"][rank]["segment"]

    def acquire(self, reader, **key):
        lease = reader.acquire(**key)
        self.assertTrue(lease["ok"], lease)
        return lease


class Segment(ReaderTestCase):
    DAEMON = {"ranks": 2}

    def assert_denied(self, action, *numbers):
        with self.assertRaises(OSError) as raised:
            action()
        self.assertIn(raised.exception.errno, numbers)

    def test_the_kernel_refuses_every_way_to_write(self):
        reader = self.connect_reader()
        job = self.encode(["a dog"])
        before = self.acquire(reader, job=job)
        content = reader.tensors(before)
        size = reader.greeting["segment_bytes"]
        self.assert_denied(lambda: mmap.mmap(reader.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
                           errno.EPERM, errno.EACCES)
        self.assert_denied(lambda: mmap.mmap(reader.fd, size, mmap.MAP_SHARED, mmap.PROT_WRITE), errno.EPERM, errno.EACCES)
        self.assert_denied(lambda: os.pwrite(reader.fd, b"x", 4096), errno.EPERM, errno.EBADF)
        self.assert_denied(lambda: os.ftruncate(reader.fd, 4096), errno.EPERM, errno.EINVAL)
        self.assert_denied(lambda: os.ftruncate(reader.fd, size * 2), errno.EPERM, errno.EINVAL)
        self.assert_denied(lambda: os.posix_fallocate(reader.fd, size, 4096), errno.EPERM, errno.EBADF)
        self.assertEqual(reader.tensors(before), content)

    def test_a_read_only_mapping_cannot_be_made_writable(self):
        reader = self.connect_reader()
        size = reader.greeting["segment_bytes"]
        LIBC.mmap.restype = ctypes.c_void_p
        LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, reader.fd, 0)
        self.assertNotEqual(address, ctypes.c_void_p(-1).value)
        self.addCleanup(LIBC.munmap, address, size)
        self.assertEqual(LIBC.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE), -1)
        self.assertIn(ctypes.get_errno(), (errno.EACCES, errno.EPERM))

    def test_to_open_it_anew_gives_no_right_to_write(self):
        reader = self.connect_reader()
        try:
            again = os.open(f"/proc/self/fd/{reader.fd}", os.O_RDWR)
        except OSError as error:
            return self.assertIn(error.errno, (errno.EPERM, errno.EACCES))
        self.addCleanup(os.close, again)
        self.assert_denied(lambda: mmap.mmap(again, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE), errno.EPERM,
                           errno.EACCES)
        self.assert_denied(lambda: os.pwrite(again, b"x", 4096), errno.EPERM)
        self.assert_denied(lambda: os.open(f"/proc/self/fd/{reader.fd}", os.O_RDWR | os.O_TRUNC), errno.EPERM, errno.EINVAL)

    def test_begins_with_a_header_that_names_its_version_and_size(self):
        reader = self.connect_reader(1)
        header = reader.segment[:32]
        self.assertEqual(header[:8], b"GEMMADSG")
        self.assertEqual(int.from_bytes(header[8:12], "little"), 1)
        self.assertEqual(int.from_bytes(header[16:24], "little"), reader.greeting["segment_bytes"])
        self.assertEqual(int.from_bytes(header[24:28], "little"), 1)

    def test_a_name_is_awaited_before_its_request_arrives_on_every_rank(self):
        readers = [self.connect_reader(rank) for rank in (0, 1)]
        for reader in readers:
            reader.client.send_request("acquire", name="clip-17", deadline_ms=60000)
        self.assertEqual(readers[0].client.call("ping", id=99)["id"], 99, "nothing is answered yet")
        job = self.encode(["a dog"], name="clip-17")
        leases = [reader.client.read_reply() for reader in readers]
        self.assertEqual([lease.get("job") for lease in leases], [job, job], leases)
        first, second = (reader.tensors(lease) for reader, lease in zip(readers, leases))
        self.assertEqual(first, second)
        self.assertEqual(list(first), ["prompt.0.hidden_states.8"])

    def test_a_name_still_owed_to_its_readers_is_refused_and_free_after_them(self):
        client = self.connect()
        self.encode(["a"], name="frame")
        refused = client.call("encode", prompts=["b"], name="frame", layers=[8])
        self.assert_refused(refused, "name_in_use", "frame")
        lease = []
        for rank in (0, 1):
            reader = self.connect_reader(rank)
            lease.append((reader, self.acquire(reader, name="frame")))
        self.assert_refused(client.call("encode", prompts=["b"], name="frame", layers=[8]), "name_in_use", "frame")
        for reader, held in lease:
            reader.release(held)
        self.encode(["b"], name="frame")
        for rank in (0, 1):
            reader = self.connect_reader(rank)
            reader.release(self.acquire(reader, name="frame"))

    def test_waits_no_longer_than_its_deadline(self):
        reader = self.connect_reader()
        started = time.monotonic()
        self.assert_refused(reader.acquire(name="never", deadline_ms=200), "deadline", "never")
        self.assertGreaterEqual(time.monotonic() - started, 0.19)
        self.assert_refused(reader.acquire(job=2**40, deadline_ms=0), "deadline")

    def test_a_bad_line_is_answered_and_the_reader_is_served_on(self):
        reader = self.connect_reader()
        for line in (b"x", b"[]", b'{"id":1}', b'{"id":1,"op":"acquire"}', b'{"id":1,"op":"acquire","job":-1}',
                     b'{"id":1,"op":"release","lease":123456}', b"\xff", b'{"id":1,"op":"acquire","name":"a","job":1}',
                     b"[" * 60000, b"x" * 100000):
            with self.subTest(line[:60]):
                self.assert_refused(reader.client.ask(line), "bad_request")
        self.assertTrue(reader.client.call("ping")["ok"])

    def test_a_lease_of_another_connection_cannot_be_released(self):
        holder, other = self.connect_reader(), self.connect_reader()
        lease = self.acquire(holder, job=self.encode(["a"]))
        self.assert_refused(other.client.call("release", lease=lease["lease"]), "bad_request")
        holder.release(lease)


class SmallSegment(ReaderTestCase):
    DAEMON = {"ranks": 1, "segment_mib": 1, "heartbeat_ms": 50}

    def tearDown(self):
        self.doCleanups()
        self.daemon.wait_for_no_leases()
        self.assert_alive()

    def take_and_leave(self):
        """Encodes and reads one result: it may be evicted from then on."""
        reader = self.connect_reader()
        reader.take(self.encode())
        reader.close()

    def fill(self):
        """A reader that holds both results which fit."""
        reader = self.connect_reader()
        return reader, [self.acquire(reader, job=self.encode()) for _ in range(2)]

    def test_results_that_were_read_make_room_for_more(self):
        for _ in range(6):
            reader = self.connect_reader()
            reader.take(self.encode())
            reader.close()

    def test_a_result_larger_than_the_segment_is_refused_at_once(self):
        reply = self.connect().call("encode", prompts=[PROMPT] * 3, layers=[8])
        self.assert_refused(reply, "result_too_large", str(1 << 20), "segment_mib")

    def test_a_full_segment_fails_the_encode_at_its_deadline(self):
        reader, leases = self.fill()
        contents = [reader.tensors(lease) for lease in leases]
        started = time.monotonic()
        reply = self.connect().call("encode", prompts=[PROMPT], layers=[8], deadline_ms=700, name="unlucky")
        self.assert_refused(reply, "buffers_exhausted", str(RESULT_BYTES), "segment_mib")
        self.assertGreaterEqual(time.monotonic() - started, 0.69)
        self.assert_refused(self.connect_reader().acquire(name="unlucky"), "buffers_exhausted")
        self.assertEqual([reader.tensors(lease) for lease in leases], contents, "leased bytes have changed")

    def test_a_lease_that_ends_lets_the_waiting_encode_through(self):
        reader, leases = self.fill()
        client = self.connect()
        client.send_request("encode", prompts=[PROMPT], layers=[8])
        poll(lambda: self.daemon.health()["queue"]["waiting"] == 1, "it waits")
        reader.release(leases[0])
        reply = client.read_reply()
        self.assertTrue(reply["ok"], reply)
        reader.take(reply["job"])

    def test_a_small_result_does_not_pass_one_that_waits_for_space(self):
        reader, leases = self.fill()
        client = self.connect()
        large = client.send_request("encode", prompts=[PROMPT], layers=[8])
        poll(lambda: self.daemon.health()["queue"]["waiting"] == 1, "it waits")
        small = client.send_request("encode", prompts=["a"], layers=[8])
        poll(lambda: self.daemon.health()["queue"]["waiting"] == 2, "both wait")
        reader.release(leases[0])
        replies = [client.read_reply() for _ in range(2)]
        self.assertEqual([reply["id"] for reply in replies], [large, small])
        for reply in replies:
            reader.take(reply["job"])

    def test_a_killed_reader_gives_its_space_back(self):
        jobs = [self.encode() for _ in range(2)]
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                reader = self.daemon.reader()
                held = all(reader.acquire(job)["ok"] for job in jobs)
                os.write(tell, b"y" if held else b"n")
                signal.pause()
            finally:
                os._exit(1)
        os.close(tell)
        self.assertEqual(os.read(ready, 1), b"y")
        os.close(ready)
        poll(lambda: self.segment()["leases"] == 2, "rank 0 knows of both leases")
        self.assertEqual(self.segment()["leased_bytes"], 2 * RESULT_BYTES)
        self.assert_refused(self.connect().call("encode", prompts=[PROMPT], layers=[8], deadline_ms=700), "buffers_exhausted")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.take_and_leave()
        self.daemon.wait_for_no_leases()

    def test_a_mapping_outlives_the_readers_connection(self):
        reader = self.connect_reader()
        lease = self.acquire(reader, job=self.encode())
        content = reader.tensors(lease)
        reader.client.close()
        self.daemon.wait_for_no_leases()
        self.assertEqual(reader.tensors(lease), content)


class UnreadResults(ReaderTestCase):
    DAEMON = {"ranks": 2, "segment_mib": 1, "heartbeat_ms": 50, "result_ttl_ms": 400}

    def test_results_that_nobody_reads_expire_on_every_rank(self):
        job = self.encode(name="unread")
        poll(lambda: all(rank["segment"]["used_bytes"] == 0 for rank in self.daemon.health()["ranks"]), "it expires")
        for rank in (0, 1):
            self.assert_refused(self.connect_reader(rank).acquire(job, deadline_ms=0), "gone")
        self.assertEqual(self.connect_reader().acquire(name="unread", deadline_ms=0)["error"]["code"], "deadline")

    def test_a_leased_result_outlives_its_time(self):
        reader = self.connect_reader()
        reader.client.send_request("acquire", name="held", deadline_ms=60000)  # before it is there: it expires soon
        self.encode(name="held")
        lease = reader.client.read_reply()
        self.assertTrue(lease["ok"], lease)
        content = reader.tensors(lease)
        poll(lambda: self.segment(1)["used_bytes"] == 0, "it expires where nobody reads")
        self.assertEqual(self.segment(0)["used_bytes"], RESULT_BYTES)
        self.assertEqual(reader.tensors(lease), content)
        reader.release(lease)
        poll(lambda: self.segment(0)["used_bytes"] == 0, "it goes once released")

    def test_more_unread_results_than_fit_wait_for_the_first_to_expire(self):
        jobs = [self.encode() for _ in range(5)]
        self.assertEqual(len(set(jobs)), 5)


if __name__ == "__main__":
    unittest.main()
