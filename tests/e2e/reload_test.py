"""New settings for a running daemon: by `switch`, or by editing its config file and SIGHUP. What cannot be changes nothing."""

import json
import random
import signal
import tempfile
import time
import unittest
from pathlib import Path

from harness import TINY, gemmactl
from modes import ADAPTIVE, BATCH_PARALLEL, LAYER, MODES, TENSOR, ModeTestCase, check_same, one_rank_results, random_prompt
from processes import poll

SEED = 20260715
MAX_ORDERS = 16  # that may wait
PROMPT = {"input_ids": [2, 77, 5, 301]}


def layout(info):
    """What a refused change must leave alone."""
    return {**{key: info[key] for key in ("mode", "strategy", "ranks_per_replica", "encoder_ranks", "asleep", "config")},
            "shards": [rank["shard"] for rank in info["ranks"]]}


class Switch(ModeTestCase):
    DAEMON = {"ranks": 4, "model": TINY, "heartbeat_ms": 50}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(SEED)
        cls.request = {"prompts": [random_prompt(generator, length) for length in (50, 3, 20, 110)], "layers": [2, 8]}
        (cls.expected,) = one_rank_results(TINY, [cls.request])

    def test_what_cannot_be_is_refused_with_the_numbers_and_encodes_go_on(self):
        client = self.connect()
        for code, words, fields in (
                ("cannot_switch", ["ranks_per_replica", "3", "4 ranks"], {**TENSOR, "ranks_per_replica": 3}),
                ("cannot_switch", ["ranks_per_replica", "3", "4 ranks"], {**LAYER, "ranks_per_replica": 3}),
                ("cannot_switch", ["ranks_per_replica", "8", "4 ranks"], {**TENSOR, "ranks_per_replica": 8}),
                ("cannot_switch", ["ranks_per_replica", "2", "3 ranks"],
                 {**TENSOR, "ranks_per_replica": 2, "encoder_ranks": [0, 1, 2]}),
                ("cannot_switch", ["rank 9", "0 to 3"], {**ADAPTIVE, "encoder_ranks": [0, 9]}),
                ("bad_request", ["rank", "1 twice"], {**ADAPTIVE, "encoder_ranks": [1, 1]}),
                ("bad_request", ["mode", "sharded", "batch_parallel", "adaptive"], {"mode": "tensor"}),
                ("bad_request", ["strategy", "'tensor', 'layer'"], {"strategy": "sharded"}),
                ("bad_request", ["mode", "strategy", "ranks_per_replica", "encoder_ranks"], {}),
                ("bad_request", ["ranks_per_replica"], {"ranks_per_replica": -1}),
                ("bad_request", ["encoder_ranks"], {"encoder_ranks": [-1]}),
                ("bad_request", ["encoder_ranks"], {"encoder_ranks": 1}),
                ("bad_request", ["model"], {"mode": "sharded", "model": "elsewhere"})):
            with self.subTest(fields):
                self.switch(**LAYER, ranks_per_replica=2)
                _, tensors = self.encode(self.request)
                before = layout(self.info())
                self.assert_refused(client.call("switch", **fields), code, *words)
                self.assertEqual(layout(self.info()), before)
                self.assertEqual(self.encode(self.request)[1], tensors)

    def test_what_a_switch_leaves_out_stays(self):
        client = self.connect()
        self.switch(**LAYER, ranks_per_replica=2, encoder_ranks=[0, 1])
        for change in ({"mode": "adaptive"}, {"mode": "sharded"}, {"strategy": "tensor"}, {"encoder_ranks": []}):
            before = layout(self.info())
            reply = client.call("switch", **change)
            self.assertTrue(reply["ok"], reply)
            after = layout(self.info())
            for key in ("mode", "strategy", "ranks_per_replica", "encoder_ranks"):
                self.assertEqual(after[key], change.get(key, before[key]))
                self.assertEqual(reply[key], after[key])

    def test_encodes_that_wait_are_all_answered(self):
        clients = [self.connect() for _ in range(4)]
        switcher = self.connect()
        with self.daemon.held_still():
            for settings in (LAYER, ADAPTIVE, BATCH_PARALLEL, TENSOR):
                for client in clients:
                    client.send_request("encode", **self.request)
                switcher.send_request("switch", **settings)
            poll(lambda: self.daemon.health()["queue"]["waiting"] >= 16, "all wait")
        replies = [client.read_reply() for client in clients for _ in range(4)]
        replies += [switcher.read_reply() for _ in range(4)]
        self.assertEqual([reply for reply in replies if not reply["ok"]], [])
        reader = self.connect_reader(3)
        for reply in replies[:16]:
            check_same(reader.take(reply["job"]), self.expected, f"job {reply['job']}")

    def test_encodes_and_switches_that_meet_give_what_one_rank_gives(self):
        clients = [self.connect() for _ in range(3)]
        switcher = self.connect()
        reader = self.connect_reader(2)
        generator = random.Random(SEED)
        for _ in range(12):
            for client in clients:
                client.send_request("encode", **self.request)
            switcher.send_request("switch", **MODES[generator.choice(list(MODES))])
            for client in clients:
                check_same(reader.take(client.read_reply()["job"]), self.expected, "while switching")
            self.assertTrue(switcher.read_reply()["ok"])

    def test_more_switches_than_may_wait_are_refused(self):
        client = self.connect()
        with self.daemon.held_still():
            sent = [client.send_request("switch", **settings) for _ in range(8) for settings in (LAYER, TENSOR, ADAPTIVE)]
            self.assertTrue(self.connect().call("health")["ok"])
        replies = {reply["id"]: reply for reply in (client.read_reply() for _ in sent)}
        self.assertEqual(sorted(replies), sorted(sent))
        self.assertTrue(all(replies[number]["ok"] for number in sent[:MAX_ORDERS]), replies)
        for number in sent[MAX_ORDERS:]:
            self.assert_refused(replies[number], "queue_full", "switches")

    def test_a_client_that_leaves_before_its_switch_is_done_harms_nobody(self):
        with self.daemon.held_still():
            with self.daemon.client() as client:
                client.send_request("switch", **LAYER)
                self.assertTrue(client.call("health")["ok"])
        self.assertTrue(self.connect().call("switch", **TENSOR)["ok"])
        check_same(self.encode(self.request)[1], self.expected, "afterwards")

    def test_gemmactl_switches_sleeps_and_wakes(self):
        for arguments, expected in ((["switch", "--mode", "sharded", "--strategy", "layer"], ("sharded", False)),
                                    (["sleep"], ("sharded", True)), (["wake"], ("sharded", False)),
                                    (["switch", "--mode", "batch_parallel"], ("batch_parallel", False))):
            done = gemmactl(self.daemon, *arguments)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            info = self.info()
            self.assertEqual((info["mode"], info["asleep"]), expected)
        self.assertNotEqual(gemmactl(self.daemon, "switch", "--mode", "sharded", "--ranks-per-replica", "3").returncode, 0)


class EditedSettings(ModeTestCase):
    """The config file, edited, and SIGHUP."""

    SETTINGS = {"mode": "batch_parallel", "heartbeat_ms": 50}

    @classmethod
    def setUpClass(cls):
        folder = cls.enter(tempfile.TemporaryDirectory())
        cls.file = Path(folder) / "gemmad.json"
        cls.file.write_text(json.dumps(cls.SETTINGS))
        cls.DAEMON = {"ranks": 4, "model": TINY, "arguments": ["--config", str(cls.file)]}
        super().setUpClass()

    def setUp(self):
        self.edit()
        poll(lambda: self.info()["config"] == self.first_config(), "all is as at the start")

    def first_config(self):
        if not hasattr(type(self), "config_at_start"):
            type(self).config_at_start = self.info()["config"]
        return self.config_at_start

    def hang_up(self, text, said):
        """Writes the file and waits until the log tells what came of it."""
        before = self.daemon.log().count(said)
        self.file.write_text(text)
        self.daemon.signal_rank(0, signal.SIGHUP)
        poll(lambda: self.daemon.log().count(said) > before, f"'{said}' in the log", 20)

    def edit(self, **settings):
        self.hang_up(json.dumps({**self.SETTINGS, **settings}), "new settings in force")
        # The engine says so before it tells who answers.
        poll(lambda: all(self.info()["config"][key] == value for key, value in settings.items()), "all know of it")

    def encode_last(self, **fields):
        return self.connect().call("encode", prompts=[PROMPT], layers=[8], **fields)

    def test_the_mode_changes(self):
        for settings in (*MODES.values(), {**LAYER, "ranks_per_replica": 2}, {**TENSOR, "encoder_ranks": [3]}):
            with self.subTest(settings):
                self.edit(**settings)
                info = self.info()
                for key, value in settings.items():
                    self.assertEqual(info[key], value)
                    self.assertEqual(info["config"][key], value)
                self.assertTrue(self.encode_last()["ok"])

    def test_the_command_line_still_has_the_last_word(self):
        self.hang_up(json.dumps({**self.SETTINGS, "segment_mib": 7}), "new settings in force")
        self.assertEqual(self.info()["config"]["segment_mib"], 64)

    def test_a_switch_holds_until_the_settings_are_read_again(self):
        self.switch(**LAYER)
        self.assertEqual(self.info()["strategy"], "layer")
        self.edit()
        self.assertEqual(self.info()["mode"], "batch_parallel")

    def test_a_shorter_time_to_live_holds_for_all_results(self):
        jobs = [self.encode_last()["job"]]
        self.edit(result_ttl_ms=100)
        jobs.append(self.encode_last()["job"])
        for rank in range(4):
            for job in jobs:
                poll(lambda: self.is_gone(rank, job), f"it expires on rank {rank}", 10)

    def test_a_longer_time_to_live_holds_for_results_from_then_on(self):
        self.edit(result_ttl_ms=100)
        old = self.encode_last()["job"]
        self.edit(result_ttl_ms=30000)
        new = self.encode_last()["job"]
        for rank in range(4):
            poll(lambda: self.is_gone(rank, old), f"it expires on rank {rank}", 10)
            self.connect_reader(rank).take(new)

    def is_gone(self, rank, job):
        with self.daemon.reader(rank) as reader:
            reply = reader.acquire(job, deadline_ms=0)
            return not reply["ok"] and reply["error"]["code"] == "gone"

    def test_the_deadline_changes(self):
        self.edit(deadline_ms=200)
        with self.daemon.held_still():
            started = time.monotonic()
            self.assert_refused(self.encode_last(), "deadline")
            self.assertGreater(time.monotonic() - started, 0.19)

    def test_the_heartbeat_and_the_log_level_change(self):
        self.edit(heartbeat_ms=5000, log_level="debug")
        self.encode_last()
        poll(lambda: "debug: batch of" in self.daemon.log(), "it says more")
        poll(lambda: self.daemon.health()["ranks"][0]["heard_ms_ago"] > 1000, "the heart beats more slowly")

    def test_idle_sleep_changes(self):
        self.edit(idle_sleep_ms=100)
        poll(lambda: self.info()["asleep"], "it falls asleep")
        self.edit()
        self.assertTrue(self.encode_last()["ok"])
        self.assertFalse(self.info()["asleep"])

    def test_what_cannot_be_leaves_all_as_it_was(self):
        good = {**self.SETTINGS, **LAYER, "result_ttl_ms": 30000}
        before = layout(self.info())
        for said, words, text in (
                ("stay as they were", ["'weights_cache'", "'none'", "restart"], json.dumps({**good, "weights_cache": "none"})),
                ("stay as they were", ["'queue_length'", "7", "restart"], json.dumps({**good, "queue_length": 7})),
                ("stay as they were", ["line 1"], json.dumps(good)[:-1]),
                ("stay as they were", ["'strateggy'", "'strategy'"], json.dumps({**good, "strateggy": "layer"})),
                ("stay as they were", ["'mode'"], json.dumps({**good, "mode": "tensor"})),
                ("stay as they were", ["'mode'", "repeated"], '{"mode": "sharded", "mode": "adaptive"}'),
                ("stays as it was", ["ranks_per_replica", "3", "4 ranks"], json.dumps({**good, "ranks_per_replica": 3})),
                ("stays as it was", ["rank 4", "0 to 3"], json.dumps({**good, "encoder_ranks": [4]}))):
            with self.subTest(text):
                self.hang_up(text, said)
                last = [line for line in self.daemon.log().splitlines() if said in line][-1]
                for word in words:
                    self.assertIn(word, last)
                self.assertEqual(layout(self.info()), before)
                self.assertTrue(self.encode_last()["ok"])

    def test_a_file_that_is_gone_leaves_all_as_it_was(self):
        before = layout(self.info())
        self.file.unlink()
        said = "stay as they were"
        count = self.daemon.log().count(said)
        self.daemon.signal_rank(0, signal.SIGHUP)
        poll(lambda: self.daemon.log().count(said) > count, "it says so")
        self.assertIn(self.file.name, self.daemon.log().splitlines()[-1])
        self.assertEqual(layout(self.info()), before)

    def test_another_rank_takes_no_notice(self):
        before = layout(self.info())
        self.file.write_text(json.dumps({**self.SETTINGS, **LAYER}))
        for rank in (1, 2, 3):
            self.daemon.signal_rank(rank, signal.SIGHUP)
        for _ in range(3):
            self.assertTrue(self.encode_last()["ok"])
        self.assertEqual(layout(self.info()), before)


if __name__ == "__main__":
    unittest.main()
