"""A long mix of everything: requests, switches, sleep, clients and readers that are killed, slow readers.

GEMMAD_SOAK_S says how many seconds. Every request is answered once, every result is right, and nothing grows: memory and
descriptors are looked at after a first part of the time and in the end, each time at rest in the same mode.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
import unittest
from unittest import mock

from harness import TINY, Client, DaemonTestCase, Reader
from modes import MODES, TENSOR, check_same, one_rank_results, random_prompt, switch
from processes import open_descriptors, poll, resident_bytes

SEED = int(os.environ.get("GEMMAD_SOAK_SEED", "20260719"))
SOAK_S = float(os.environ.get("GEMMAD_SOAK_S", "40"))
WARM_UP_S = min(60.0, SOAK_S / 3)
RANKS = 4
LENGTHS = (1, 3, 8, 20, 33, 64, 100, 180, 400, 1024)
NAMES = 6
# Of requests that are as they should be: the segments are small, names collide, cancels strike, readers are slow.
USUAL_CODES = {"queue_full", "name_in_use", "cancelled", "deadline", "buffers_exhausted", "duplicate_id", "gone",
               "too_many_clients", "result_too_large"}
# How much a rank may have grown, asleep. All that it remembers is bounded and was as much before: failures and results
# for their time to live, buffers of connections, scratch memory. The allocator is told to give back what is free, so that
# only what is in use counts: over twelve snapshots in five minutes a rank then had the same to the KiB, but for steps of
# 0.3 to 0.7 MiB up and down. Two deployments that stay are more, and in 300 s so are 500 bytes a request.
MAX_GROWTH = 2 << 20
GIVE_BACK = mock.patch.dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536", MALLOC_ARENA_MAX="1")


def victim(path, reader_path, seed):
    """A process to be killed: a client with much under way, and a reader with leases."""
    chance = random.Random(seed)
    with Client(path) as client, Reader(reader_path) as reader:
        for number in range(chance.randint(1, 6)):
            client.send_request("encode", id=number, prompts=["a dog runs"] * chance.randint(1, 20), layers=[8])
        reader.client.send_request("acquire", name="name 0", deadline_ms=60000)
        while True:
            reply = client.read_reply()
            if reply["ok"]:
                reader.client.send_request("acquire", job=reply["job"])


class Mix:
    """What goes on until it is told to stop."""

    def __init__(self, daemon, prompts, expected, seed):
        self.daemon, self.prompts, self.expected = daemon, prompts, expected
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts, self.surprises = {}, []
        acts = [self.submit] * 3 + [self.read] * 2 + [self.read_slowly, self.reconfigure, self.kill]
        self.threads = [threading.Thread(target=self.repeat, args=(act, random.Random(seed + i))) for i, act in enumerate(acts)]

    def run(self, seconds):
        for thread in self.threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def repeat(self, act, chance):
        try:
            while not self.stop.is_set():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    act(chance)
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.surprises.append(f"{act.__name__}: {error!r}")
            self.stop.set()

    def note(self, reply, what):
        self.count(f"{what} {'ok' if reply['ok'] else reply['error']['code']}")
        if not reply["ok"] and reply["error"]["code"] not in USUAL_CODES:
            raise AssertionError(f"{what}: {reply}")

    def submit(self, chance):
        """A client with several requests under way: each is answered once, and right."""
        with self.daemon.client() as client, self.daemon.reader(chance.randrange(RANKS)) as reader:
            for _ in range(chance.randint(1, 20)):
                asked = {}
                for number in range(chance.randint(1, 6)):
                    asked[number] = chance.choices(range(len(LENGTHS)), weights=range(len(LENGTHS), 0, -1),
                                                   k=chance.randint(1, 5))
                    fields = {"name": f"name {chance.randrange(NAMES)}"} if chance.random() < 0.3 else {}
                    if chance.random() < 0.3:
                        fields["prefer"] = chance.choice(["deal", "split"])
                    client.send_request("encode", id=number, prompts=[self.prompts[i] for i in asked[number]], layers=[3, 8],
                                        deadline_ms=chance.choice([20, 500, 20000]), **fields)
                if chance.random() < 0.2:
                    client.send_request("cancel", id="cancel", request=chance.choice(list(asked)))
                    asked["cancel"] = None
                while asked:
                    self.take_reply(client.read_reply(), asked, reader)
                if client.call("health", id="last")["status"] != "ok" or self.stop.is_set():
                    return

    def take_reply(self, reply, asked, reader):
        if reply["id"] not in asked:
            raise AssertionError(f"a second answer: {reply}")
        prompts = asked.pop(reply["id"])
        if reply["id"] == "cancel":
            return
        self.note(reply, "encode")
        if not reply["ok"]:
            return
        lease = reader.acquire(reply["job"], deadline_ms=0)
        self.note(lease, "acquire")
        if lease["ok"]:
            expected = {f"prompt.{place}.hidden_states.{layer}": self.expected[f"prompt.{number}.hidden_states.{layer}"]
                        for place, number in enumerate(prompts) for layer in (3, 8)}
            check_same(reader.tensors(lease), expected, f"job {reply['job']}")
            reader.release(lease)

    def read(self, chance):
        """Waits for names; often leaves without a release."""
        with self.daemon.reader(chance.randrange(RANKS)) as reader:
            for _ in range(chance.randint(1, 8)):
                lease = reader.acquire(name=f"name {chance.randrange(NAMES)}", deadline_ms=chance.choice([0, 50, 200]))
                self.note(lease, "named")
                if lease["ok"] and chance.random() < 0.7:
                    reader.release(lease)

    def read_slowly(self, chance):
        """Holds a lease for long; what it holds must not change."""
        with self.daemon.reader(chance.randrange(RANKS)) as reader, self.daemon.client() as client:
            reply = client.call("encode", prompts=self.prompts[-2:], layers=[8], deadline_ms=20000)
            self.note(reply, "slow encode")
            if not reply["ok"]:
                return
            lease = reader.acquire(reply["job"], deadline_ms=0)
            if lease["ok"]:
                content = reader.tensors(lease)
                self.stop.wait(chance.uniform(0.2, 1.0))
                if reader.tensors(lease) != content:
                    raise AssertionError("leased bytes have changed")

    def reconfigure(self, chance):
        with self.daemon.client() as client:
            kind = chance.random()
            if kind < 0.15:
                self.note(client.call("sleep"), "sleep")
                if chance.random() < 0.5:
                    self.note(client.call("wake"), "wake")
            elif kind < 0.25:
                reply = client.call("switch", mode="sharded", ranks_per_replica=3, encoder_ranks=[])
                if reply["ok"] or reply["error"]["code"] != "cannot_switch":
                    raise AssertionError(f"an impossible switch: {reply}")
                self.count("switch refused")
            else:
                settings = dict(chance.choice(list(MODES.values())))
                settings["encoder_ranks"] = chance.choice([[], [], [0, 1], [1, 2, 3], [2]])
                if settings["encoder_ranks"] in ([], [0, 1]) and chance.random() < 0.3:
                    settings["ranks_per_replica"] = 2
                switch(client, **settings)
                self.count("switch ok")
        self.stop.wait(chance.uniform(0, 0.3))

    def kill(self, chance):
        rank = chance.randrange(RANKS)
        process = subprocess.Popen([sys.executable, __file__, "victim", self.daemon.socket, self.daemon.reader_socket(rank),
                                    str(chance.random())], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.stop.wait(chance.uniform(0.1, 0.5))
        self.count("killed" if process.poll() is None else "left before it was killed")
        process.kill()
        process.wait()


class Soak(DaemonTestCase):
    DAEMON = {"ranks": RANKS, "model": TINY, "segment_mib": 4, "result_ttl_ms": 500, "heartbeat_ms": 50, "queue_length": 24,
              "idle_sleep_ms": 2000, "max_clients": 24, "max_readers": 24}

    @classmethod
    def setUpClass(cls):
        cls.enter(GIVE_BACK)
        super().setUpClass()

    def rest(self):
        """Waits until nobody is there and nothing is left, then makes the state that memory is compared in."""
        poll(lambda: self.daemon.health()["queue"] == {"running": 0, "waiting": 0}, "all work ends")
        poll(lambda: self.daemon.health()["clients"] <= 1, "every client goes")
        poll(lambda: all(rank["segment"][key] == 0 for rank in self.daemon.health()["ranks"]
                         for key in ("used_bytes", "leases", "results")), "every result goes")
        with self.daemon.client() as client:
            for settings in (*MODES.values(), TENSOR):  # with a long prompt for each: scratch memory is as large as it gets
                switch(client, **settings)
                reply = client.call("encode", prompts=self.prompts[-1:] * RANKS, layers=[8], deadline_ms=20000)
                self.assertTrue(reply["ok"], reply)
            self.assertTrue(client.call("sleep")["ok"])
        poll(lambda: all(rank["segment"]["used_bytes"] == 0 for rank in self.daemon.health()["ranks"]), "the last goes")

    def snapshot(self):
        """Of each rank, asleep: bytes of its own, descriptors. Weights and workspace may lie on large pages or not, so
        that they take more or less each time."""
        self.rest()
        return [(resident_bytes(pid, "RssAnon"), open_descriptors(pid)) for pid in self.daemon.pids]

    def run_mix(self, seconds, seed):
        mix = Mix(self.daemon, self.prompts, self.expected, seed)
        mix.run(seconds)
        self.assertEqual(mix.surprises[:3], [])
        return mix.counts

    def test_nothing_is_lost_and_nothing_grows(self):
        generator = random.Random(SEED)
        self.prompts = [random_prompt(generator, length) for length in LENGTHS]
        (self.expected,) = one_rank_results(TINY, [{"prompts": self.prompts, "layers": [3, 8]}])
        self.run_mix(WARM_UP_S, SEED)
        before = self.snapshot()
        counts = self.run_mix(SOAK_S - WARM_UP_S, SEED + 100)
        after = self.snapshot()
        growth = [now - then for (now, _), (then, _) in zip(after, before)]
        descriptors = [now - then for (_, now), (_, then) in zip(after, before)]
        print(f"soak of {SOAK_S:.0f} s, the first {WARM_UP_S:.0f} s to warm up: "
              f"{dict(sorted(counts.items()))}; KiB grown by rank {[size // 1024 for size in growth]} from "
              f"{[size // 1024 for size, _ in before]}; descriptors {[number for _, number in after]}, more {descriptors}")
        self.assertLess(max(growth), MAX_GROWTH)
        # The connection that asked last may still be on its way out.
        poll(lambda: all(open_descriptors(pid) <= then for pid, (_, then) in zip(self.daemon.pids, before)),
             f"as few descriptors as before: {descriptors} more")
        self.assertGreater(counts.get("encode ok", 0), SOAK_S)
        self.assertGreater(counts.get("killed", 0), SOAK_S / 10)
        self.assertGreater(counts.get("switch ok", 0), SOAK_S / 10)


if __name__ == "__main__":
    if sys.argv[1:2] == ["victim"]:
        victim(*sys.argv[2:])
    else:
        unittest.main()
