"""The Python client and reader against a running daemon."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

from harness import BOS, Daemon, DaemonTestCase, gemmactl
from processes import poll
from python_package import environment
from tensors import read_safetensors

from gemmad_client import (AsyncClient, AsyncReader, Client, ConnectError, DeadlineExceeded, Disconnected, LeaseEnded,
                           Reader, RequestFailed, UnknownOperation, requests)

PROMPTS = ["a dog runs over the green hill", "", "ein Hund läuft 犬が走る"]
LONG = [BOS] + [9] * 1023

# Prints a digest of every tensor of a named result, then waits to be killed if told so.
READ_AND_PRINT = """
import hashlib, signal, sys
from gemmad_client import Reader
path, name, then = sys.argv[1:]
with Reader(path, wait_s=30) as reader, reader.acquire(name=name, deadline_s=60) as lease:
    digest = hashlib.sha256()
    for prompt in lease.prompts:
        for tensor in prompt.tensors.values():
            digest.update(tensor.name.encode() + tensor.numpy().tobytes())
    print(reader.rank, digest.hexdigest(), flush=True)
    if then == "wait":
        signal.pause()
"""


class PythonTestCase(DaemonTestCase):
    def make_client(self, **options):
        client = Client(self.daemon.socket, **options)
        self.addCleanup(client.close)
        return client

    def make_reader(self, rank=0, **options):
        reader = Reader(self.daemon.reader_socket(rank), **options)
        self.addCleanup(reader.close)
        return reader

    def leases(self, rank=0):
        return self.daemon.health()["ranks"][rank]["segment"]["leases"]

    def wait_for_leases(self, count, rank=0):
        poll(lambda: self.leases(rank) == count, f"rank {rank} has {count} leases")

    def start_reading(self, name, rank=0, then="end"):
        process = subprocess.Popen([sys.executable, "-c", READ_AND_PRINT, self.daemon.reader_socket(rank), name, then],
                                   stdout=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process


class Requests(PythonTestCase):
    DAEMON = {"ranks": 2, "max_prompts": 8, "heartbeat_ms": 50}

    def test_arrays_are_what_gemmactl_saves(self):
        reply = self.make_client().encode(PROMPTS, outputs=["hidden_states", "last_hidden_state"], return_input_ids=True)
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "out.safetensors"
            done = gemmactl(self.daemon, "encode", *[word for prompt in PROMPTS for word in ("--prompt", prompt)],
                            "--outputs", "hidden_states,last_hidden_state", "--save", saved)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            expected, _ = read_safetensors(saved)
        found = {}
        with self.make_reader(1).acquire(reply.job) as lease:
            for index, (prompt, told) in enumerate(zip(lease.prompts, reply.prompts)):
                self.assertEqual((prompt.num_tokens, prompt.padded_length), (told.tokens, told.padded_length))
                self.assertEqual([(tensor.name, tensor.shape) for tensor in prompt.tensors.values()],
                                 [(tensor.name, tensor.shape) for tensor in told.tensors])
                found[f"prompt.{index}.input_ids"] = np.array(told.input_ids, np.int32)
                for tensor in prompt.tensors.values():
                    self.assertEqual(tensor.numpy().shape, tensor.shape)
                    found[f"prompt.{index}.{tensor.name}"] = tensor.to_float32()
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual(found[name].tobytes(), tensor.data, name)

    def test_every_operation_answers(self):
        client = self.make_client()
        self.assertEqual(client.info()["model"]["num_layers"], 8)
        self.assertEqual(client.health()["status"], "ok")
        self.assertIn("gemmad_clients", client.metrics())
        (text,) = client.tokenize(["a dog"], as_prompts=True)
        self.assertEqual(text.ids[0], BOS)
        self.assertIs(text.truncated, False)
        self.assertEqual(client.switch(mode="sharded", strategy="layer")["mode"], "sharded")
        self.assertEqual(client.switch(mode="batch_parallel")["mode"], "batch_parallel")
        self.assertIs(client.sleep()["asleep"], True)
        self.assertIs(client.wake()["asleep"], False)

    def test_refusals_name_their_code(self):
        client = self.make_client()
        for code, request in (("bad_request", requests.encode(["a"], layers=[99])),
                              ("too_many_prompts", requests.encode(["a"] * 9)),
                              ("not_found", requests.cancel(name="nobody"))):
            with self.assertRaises(RequestFailed) as raised:
                client.call(request)
            self.assertEqual(raised.exception.code, code)
        with self.assertRaises(UnknownOperation):
            client.call(requests.Request("dance", {}, dict))
        with self.assertRaises(ValueError):
            client.encode(["half a \ud800 pair"])
        self.assertEqual(client.health()["status"], "ok")

    def test_a_prompt_fails_alone(self):
        client = self.make_client()
        reply = client.encode(["a", [999999]], layers=[8])
        self.assertIsNone(reply.prompts[0].error)
        self.assertEqual(reply.prompts[1].error.code, "bad_token")
        with self.make_reader().acquire(reply.job) as lease:
            self.assertEqual(lease.prompts[0]["hidden_states.8"].numpy().shape, (2, 96))
            with self.assertRaises(RequestFailed) as raised:
                lease.prompts[1]["hidden_states.8"]
        self.assertEqual(raised.exception.code, "bad_token")

    def test_many_requests_are_under_way_on_one_connection(self):
        client = self.make_client()
        pending = [client.submit(requests.encode([f"prompt {index}"], layers=[8])) for index in range(20)]
        self.assertEqual(client.health()["status"], "ok")
        jobs = [one.result().job for one in reversed(pending)]
        self.assertEqual(len(set(jobs)), 20)
        self.assertTrue(all(one.done for one in pending))

    def test_threads_share_a_client_and_a_reader(self):
        client, reader = self.make_client(), self.make_reader()
        failures = []

        def work(number):
            try:
                for turn in range(5):
                    name = f"thread-{number}-{turn}"
                    pending = client.submit(requests.encode([f"{number} {turn}"], layers=[8], name=name))
                    with reader.acquire(name=name) as lease:
                        self.assertEqual(lease.job, pending.result().job)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.wait_for_leases(0)

    def test_cancels_what_waits(self):
        client = self.make_client()
        with self.daemon.held_still():
            running = client.submit(requests.encode(["a"], layers=[8]))
            waiting = client.submit(requests.encode(["b"], layers=[8], name="unwanted"))
            self.assertTrue(client.cancel(request=waiting.id))
            with self.assertRaises(RequestFailed) as raised:
                waiting.result()
            self.assertEqual(raised.exception.code, "cancelled")
            with self.assertRaises(DeadlineExceeded):
                client.encode(["c"], layers=[8], deadline_s=0.2)
        self.assertGreater(running.result().job, 0)
        with self.assertRaises(RequestFailed) as raised:
            self.make_reader().acquire(name="unwanted")
        self.assertEqual(raised.exception.code, "cancelled")

    def test_two_processes_on_two_ranks_get_the_same(self):
        processes = [self.start_reading("both", rank) for rank in (0, 1)]
        self.make_client().encode(PROMPTS, name="both")
        lines = [process.communicate()[0].split() for process in processes]
        self.assertEqual([line[0] for line in lines], ["0", "1"])
        self.assertEqual(lines[0][1], lines[1][1])


class Leases(PythonTestCase):
    DAEMON = {"ranks": 1, "segment_mib": 1, "heartbeat_ms": 50}

    def encode(self, **fields):
        return self.make_client().encode([LONG], layers=[8], **fields).job

    def test_arrays_cannot_be_written(self):
        with self.make_reader().acquire(self.encode()) as lease:
            array = lease.prompts[0]["hidden_states.8"].numpy()
            with self.assertRaises(ValueError):
                array[0, 0] = 1
            with self.assertRaises(ValueError):
                array.flags.writeable = True

    def test_a_released_lease_makes_no_more_views(self):
        lease = self.make_reader().acquire(self.encode())
        tensor = lease.prompts[0]["hidden_states.8"]
        lease.release()
        lease.release()
        for use in (tensor.numpy, tensor.to_float32):
            with self.assertRaises(LeaseEnded):
                use()
        self.wait_for_leases(0)

    def test_a_lease_lasts_as_long_as_a_view_of_it(self):
        with self.make_reader().acquire(self.encode()) as lease:
            part = lease.prompts[0]["hidden_states.8"].numpy()[5:, ::2]
            expected = part.copy()
        self.assertFalse(lease.ended)
        # What else fits in the segment comes and goes; this stays.
        for _ in range(4):
            self.make_reader().acquire(self.encode()).release()
        np.testing.assert_array_equal(part, expected)
        self.wait_for_leases(1)
        del part
        self.assertTrue(lease.ended)
        self.wait_for_leases(0)

    def test_a_lease_that_was_forgotten_ends(self):
        tensor = self.make_reader().acquire(self.encode()).prompts[0]["hidden_states.8"]
        self.assertEqual(tensor.numpy().shape, (1024, 96))
        self.wait_for_leases(1)
        del tensor
        self.wait_for_leases(0)

    def test_a_killed_process_gives_its_space_back(self):
        self.encode(name="held")
        process = self.start_reading("held", then="wait")
        self.assertTrue(process.stdout.readline().startswith("0 "))
        self.wait_for_leases(1)
        process.send_signal(signal.SIGKILL)
        self.wait_for_leases(0)
        for _ in range(3):
            self.make_reader().acquire(self.encode()).release()

    def test_an_acquire_waits_no_longer_than_its_deadline(self):
        with self.assertRaises(DeadlineExceeded):
            self.make_reader().acquire(name="never", deadline_s=0.1)
        with self.assertRaises(ValueError):
            self.make_reader().acquire(1, name="both")

    def test_bytes_stay_readable_when_the_reader_has_closed(self):
        reader = self.make_reader()
        lease = reader.acquire(self.encode())
        array = lease.prompts[0]["hidden_states.8"].numpy()
        expected = array.copy()
        reader.close()
        del reader
        np.testing.assert_array_equal(array, expected)
        lease.release()

    def test_a_forked_child_is_refused_and_disturbs_nobody(self):
        client, reader = self.make_client(), self.make_reader()
        lease = reader.acquire(self.encode())
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                for use in (client.health, lambda: reader.acquire(1)):
                    try:
                        use()
                        os._exit(2)
                    except Disconnected:
                        pass
                lease.release()
                client.close()
                reader.close()
                reader.reconnect()
                reader.close()
                status = 0
            os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(client.health()["status"], "ok")
        self.wait_for_leases(1)
        lease.release()
        self.wait_for_leases(0)


class AsyncSide(PythonTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50}

    def connect_async(self):
        return AsyncClient(self.daemon.socket), AsyncReader(self.daemon.reader_socket(1))

    def test_many_requests_at_once(self):
        async def encode_and_read(client, reader, index):
            name = f"async-{index}"
            reply, lease = await asyncio.gather(client.encode([f"prompt {index}"], layers=[0, 8], name=name),
                                                reader.acquire(name=name))
            with lease:
                self.assertEqual(lease.job, reply.job)
                return lease.prompts[0]["hidden_states.8"].to_float32()

        async def run():
            client, reader = self.connect_async()
            async with client, reader:
                found = await asyncio.gather(*(encode_and_read(client, reader, index) for index in range(50)))
                self.assertEqual((await client.health())["status"], "ok")
            return found

        found = asyncio.run(run())
        with self.make_reader().acquire(self.make_client().encode(["prompt 17"]).job) as lease:
            np.testing.assert_allclose(found[17], lease.prompts[0]["hidden_states.8"].numpy(), rtol=1e-4, atol=1e-5)

    def test_a_cancelled_acquire_keeps_no_lease(self):
        async def run():
            client, reader = self.connect_async()
            async with client, reader:
                waiting = asyncio.ensure_future(reader.acquire(name="dropped"))
                await asyncio.sleep(0.05)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await client.encode(["a"], layers=[8], name="dropped")
                with await reader.acquire((await client.encode(["b"], layers=[8])).job):
                    pass
                await asyncio.to_thread(self.wait_for_leases, 0, 1)

        asyncio.run(run())

    def test_refusals_and_threads_that_end_leases(self):
        async def run():
            client, reader = self.connect_async()
            async with client, reader:
                with self.assertRaises(UnknownOperation):
                    await client.call(requests.Request("dance", {}, dict))
                with self.assertRaises(DeadlineExceeded):
                    await reader.acquire(name="never", deadline_s=0.05)
                lease = await reader.acquire((await client.encode(["a"], layers=[8])).job)
                await asyncio.to_thread(lease.release)
                await asyncio.to_thread(self.wait_for_leases, 0, 1)

        asyncio.run(run())


class Restart(unittest.TestCase):
    def test_a_daemon_that_goes_and_comes_again(self):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            with Daemon(folder=folder) as daemon:
                client, reader = Client(daemon.socket), Reader(daemon.reader_socket(0))
                self.addCleanup(client.close)
                self.addCleanup(reader.close)
                first = reader.acquire(client.encode(["a dog"], layers=[8]).job)
                array = first.prompts[0]["hidden_states.8"].numpy()
                expected = array.copy()
                waiting = threading.Thread(target=self.expect_disconnected, args=(reader,))
                waiting.start()
            waiting.join()
            with self.assertRaises(ConnectError):
                client.health()
            with self.assertRaises(ConnectError):
                reader.acquire(1)
            np.testing.assert_array_equal(array, expected)
            with Daemon(folder=folder):
                with reader.acquire(client.encode(["a dog"], layers=[8]).job) as again:
                    np.testing.assert_array_equal(again.prompts[0]["hidden_states.8"].numpy(), expected)
                first.release()
                client.close()
                with self.assertRaises(Disconnected):
                    client.health()
                client.reconnect(wait_s=1)
                self.assertEqual(client.health()["status"], "ok")

    def expect_disconnected(self, reader):
        with self.assertRaises(Disconnected):
            reader.acquire(name="never", deadline_s=60)

    def test_waits_for_a_daemon_that_comes_up(self):
        with tempfile.TemporaryDirectory(prefix="gemmad-e2e-") as folder:
            daemon = Daemon(folder=folder)
            with self.assertRaises(ConnectError):
                Client(daemon.socket)
            with daemon.start_only():
                with Client(daemon.socket, wait_s=60) as client, Reader(daemon.reader_socket(), wait_s=60) as reader:
                    reader.acquire(client.encode(["a"], layers=[8]).job).release()
                    client.shutdown()
                self.assertEqual(daemon.wait_exit(), 0)


if __name__ == "__main__":
    unittest.main()
