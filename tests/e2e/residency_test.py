"""Where the weights are: read once, then the files may go. Sleeping, waking, and those who wait meanwhile."""

import os
import random
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

from harness import TEXT_TINY, TINY, Daemon
from modes import (BATCH_PARALLEL, MODES, WAYS, ModeTestCase, check_same, encode_everywhere, hybrids, one_rank_results,
                   random_prompt, switch)
from processes import poll
from random_model import copy_model, text_tensor_bytes

SEED = 20260714
# Adaptive mode without a preference may choose otherwise after a switch: it measures anew.
ALL_WAYS = tuple(way for way in WAYS if way.name != "adaptive") + hybrids(2)
PROMPT = {"input_ids": [2, 77, 5, 301]}
LONG = {"input_ids": [2] * 400}


class WithoutFiles(ModeTestCase):
    """Sees every mode with the model's files, then without."""

    MODEL = TINY
    DAEMON = {"ranks": 4}

    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enter(tempfile.TemporaryDirectory()))
        model = copy_model(cls.MODEL, folder / "model")
        cls.text_bytes = text_tensor_bytes(model)
        cls.DAEMON = {**cls.DAEMON, "model": model}
        super().setUpClass()
        generator = random.Random(SEED)
        cls.request = {"prompts": [random_prompt(generator, length) for length in (1, 90, 40, 13, 160)], "layers": [0, 3, 8]}
        (expected,) = one_rank_results(cls.MODEL, [cls.request])
        cls.read_at_start = cls.read_bytes()
        cls.before = {}
        with cls.daemon.client() as client:
            for way in ALL_WAYS:
                switch(client, **way.settings)
                _, cls.before[way.name] = encode_everywhere(cls.daemon, client, cls.request, **way.fields())
                check_same(cls.before[way.name], expected, way.name)
        model.rename(folder / "elsewhere")
        shutil.rmtree(folder / "elsewhere")

    @classmethod
    def read_bytes(cls):
        return [rank["bytes"]["read_from_disk"] for rank in cls.daemon.ask("info")["ranks"]]

    def check_same_bytes_as_before(self, way):
        _, tensors = self.encode(self.request, **way.fields())
        self.assertEqual(tensors, self.before[way.name], way.name)


class NodeCache(WithoutFiles):
    def test_every_text_tensor_was_read_once_by_all_ranks_together(self):
        self.assertEqual(sum(self.read_at_start), self.text_bytes)
        self.assertLess(max(self.read_at_start), self.text_bytes / 4 * 1.1, "each rank reads its part")

    def test_a_switch_reads_nothing_and_gives_the_same_bytes(self):
        for way in ALL_WAYS[::-1]:
            with self.subTest(way.name):
                self.switch(**way.settings)
                self.check_same_bytes_as_before(way)
        self.assertEqual(self.read_bytes(), self.read_at_start)

    def test_sleeping_and_waking_reads_nothing_and_gives_the_same_bytes(self):
        client = self.connect()
        for way in ALL_WAYS:
            with self.subTest(way.name):
                self.switch(**way.settings)
                self.assertTrue(client.call("sleep")["asleep"])
                self.assertFalse(client.call("wake")["asleep"])
                self.check_same_bytes_as_before(way)
                self.assertTrue(client.call("sleep")["asleep"])
                self.check_same_bytes_as_before(way)
        self.assertEqual(self.read_bytes(), self.read_at_start)


class NodeCacheOfShardedFiles(NodeCache):
    MODEL = TEXT_TINY


class NoCache(WithoutFiles):
    """The files are read again for every switch. An open file outlives its name."""

    DAEMON = {"ranks": 4, "weights_cache": "none"}

    def test_a_switch_reads_what_each_rank_needs(self):
        for settings, replicas in ((MODES["layer"], 1), (BATCH_PARALLEL, 4), ({**MODES["layer"], "ranks_per_replica": 2}, 2)):
            with self.subTest(settings):
                self.switch(**MODES["tensor"])
                before = self.read_bytes()
                self.switch(**settings)
                read = [now - then for now, then in zip(self.read_bytes(), before)]
                self.assertGreater(min(read), 0)
                self.assertEqual(sum(read), replicas * self.text_bytes)

    def test_every_mode_gives_the_same_bytes_as_before(self):
        for way in ALL_WAYS:
            with self.subTest(way.name):
                self.switch(**way.settings)
                self.check_same_bytes_as_before(way)


class FilesChangedMeanwhile(unittest.TestCase):
    """Without a copy of the weights: what cannot be read again is told, and the daemon goes on as it was."""

    def test_a_switch_is_refused_by_the_files_name(self):
        with tempfile.TemporaryDirectory() as folder:
            model = copy_model(TINY, Path(folder) / "model")
            with Daemon(ranks=2, model=model, weights_cache="none", **BATCH_PARALLEL) as daemon, daemon.client() as client:
                before = os.stat(model / "model.safetensors")
                os.utime(model / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
                reply = client.call("switch", **MODES["layer"])
                self.assertFalse(reply["ok"], reply)
                self.assertIn("model.safetensors: it was written to", reply["error"]["message"])
                self.assertTrue(client.call("encode", prompts=[PROMPT])["ok"])


class Asleep(ModeTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50, "mode": "sharded"}

    def setUp(self):
        self.client = self.connect()
        self.sleep()

    def sleep(self):
        reply = self.client.call("sleep")
        self.assertTrue(reply["ok"] and reply["asleep"], reply)

    def states(self):
        return {rank["state"] for rank in self.daemon.health()["ranks"]}

    def test_info_and_health_say_so(self):
        info = self.info()
        self.assertIs(info["asleep"], True)
        self.assertEqual([rank["shard"] for rank in info["ranks"]], [None, None])
        self.assertIsNone(info["costs"])
        self.assertEqual(self.states(), {"asleep"})
        self.assertEqual(self.daemon.health()["status"], "ok")
        self.client.call("wake")
        self.assertIs(self.info()["asleep"], False)
        self.assertEqual(self.states(), {"idle"})

    def test_a_request_wakes_it(self):
        reply, tensors = self.encode({"prompts": [PROMPT]})
        self.assertFalse(self.info()["asleep"])
        self.sleep()
        self.assertEqual(self.encode({"prompts": [PROMPT]})[1], tensors)

    def test_many_requests_at_once_wake_it_once(self):
        clients = [self.connect() for _ in range(8)]
        for client in clients:
            client.send_request("encode", prompts=[PROMPT], layers=[8])
        replies = [client.read_reply() for client in clients]
        self.assertEqual([reply for reply in replies if not reply["ok"]], [])

    def test_what_needs_no_weights_does_not_wake_it(self):
        self.assertTrue(self.client.call("tokenize", texts=["a dog"])["ok"])
        for op in ("info", "health", "metrics"):
            self.assertTrue(self.client.call(op)["ok"])
        self.assertFalse(self.client.call("cancel", job=10**9)["ok"])
        self.assertTrue(self.info()["asleep"])

    def test_twice_is_as_once(self):
        self.sleep()
        for _ in range(2):
            reply = self.client.call("wake")
            self.assertTrue(reply["ok"] and not reply["asleep"], reply)

    def test_a_switch_is_remembered_and_does_not_wake_it(self):
        for name, settings in MODES.items():
            with self.subTest(name):
                self.switch(**settings)
                self.assertTrue(self.info()["asleep"])
                self.encode({"prompts": [PROMPT]})
                info = self.info()
                self.assertEqual((info["asleep"], info["mode"]), (False, settings["mode"]))
                self.assertIsNotNone(info["ranks"][1]["shard"])
                self.sleep()

    def test_an_impossible_switch_is_refused_all_the_same(self):
        reply = self.client.call("switch", mode="sharded", encoder_ranks=[7])
        self.assert_refused(reply, "cannot_switch", "rank 7")
        self.assertTrue(self.info()["asleep"])
        self.encode({"prompts": [PROMPT]})

    def test_a_request_whose_deadline_passes_does_not_wake_it(self):
        with self.daemon.held_still():
            reply = self.client.call("encode", prompts=[PROMPT], deadline_ms=100)
            self.assert_refused(reply, "deadline")
        poll(lambda: self.daemon.health()["ranks"][0]["heard_ms_ago"] < 1000, "all ranks beat again")
        self.assertTrue(self.info()["asleep"])
        self.encode({"prompts": [PROMPT]})

    def test_a_request_that_is_cancelled_does_not_wake_it(self):
        with self.daemon.held_still():
            number = self.client.send_request("encode", prompts=[PROMPT])
            self.client.send_request("cancel", request=number)
            replies = [self.client.read_reply() for _ in range(2)]
            self.assertEqual(sorted(reply["ok"] for reply in replies), [False, True], replies)
        poll(lambda: self.daemon.health()["ranks"][0]["heard_ms_ago"] < 1000, "all ranks beat again")
        self.assertTrue(self.info()["asleep"])

    def test_sleep_between_encodes_that_wait_fails_none(self):
        others = [self.connect() for _ in range(4)]
        for _ in range(3):
            for client in others:
                client.send_request("encode", prompts=[PROMPT] * 3, layers=[8])
            self.client.send_request("sleep")
            self.client.send_request("wake")
        replies = [client.read_reply() for client in others for _ in range(3)]
        replies += [self.client.read_reply() for _ in range(6)]
        self.assertEqual([reply for reply in replies if not reply["ok"]], [])


class IdleSleep(ModeTestCase):
    DAEMON = {"ranks": 2, "heartbeat_ms": 50, "idle_sleep_ms": 300}

    def is_asleep(self):
        return self.info()["asleep"]

    def test_falls_asleep_by_itself_again_and_again(self):
        for _ in range(3):
            poll(self.is_asleep, "it falls asleep")
            before = self.daemon.log().count("(idle_sleep_ms)")
            self.encode({"prompts": [PROMPT]})
            poll(lambda: self.daemon.log().count("(idle_sleep_ms)") > before, "it was awake, and falls asleep")

    def test_does_not_fall_asleep_while_there_is_work(self):
        client = self.connect()
        self.encode({"prompts": [PROMPT]})
        before = self.daemon.log().count("(idle_sleep_ms)")
        used_ms = 0
        client.send_request("encode", prompts=[LONG] * 2, layers=[8])
        while used_ms < 1000:  # several times its patience, and another always waits
            client.send_request("encode", prompts=[LONG] * 2, layers=[8])
            used_ms += client.read_reply()["ms"]["compute"]
        self.assertTrue(client.read_reply()["ok"])
        self.assertEqual(self.daemon.log().count("(idle_sleep_ms)"), before)


class StopAsleep(unittest.TestCase):
    def test_a_sleeping_daemon_stops_as_asked(self):
        for rank in (0, 1):
            with Daemon(ranks=2, heartbeat_ms=50) as daemon:
                self.assertTrue(daemon.ask("sleep")["ok"])
                daemon.signal_rank(rank, signal.SIGTERM)
                self.assertEqual(daemon.wait_exit(), 0, daemon.log())
                self.assertEqual(daemon.sockets(), [])


if __name__ == "__main__":
    unittest.main()
