"""One model encodes, another rewrites: it is awake while there is something to rewrite, and tells what it holds."""

import shutil
import tempfile
import unittest
from pathlib import Path

from enhancing import (ENDLESS, GOLDEN, GREEDY, EnhanceTestCase, enhance, make_endless, raw_image, read_events, read_replies)
from goldens import LIMIT
from harness import TEXT_TINY, TINY, Daemon
from modes import MODES, TENSOR, check_same, one_rank_results, switch, take_everywhere
from processes import poll
from random_model import copy_model

FIELDS = {"system_prompt": GOLDEN["system_prompt"], "greedy": True, "max_new_tokens": 32}
CANNOT_START = 1


def generation_bytes(daemon):
    return [rank["bytes"]["generation"] for rank in daemon.ask("info")["ranks"]]


class Separate(EnhanceTestCase):
    DAEMON = {"ranks": 2, "model": TEXT_TINY, "enhancer.model": TINY}

    def check_golden(self):
        reply = self.enhance(GOLDEN["prompt"], **FIELDS)
        self.assertEqual(reply["raw_text"], GOLDEN["greedy_text"])
        self.assertEqual(reply["tokens_in"], len(GOLDEN["input_ids"]))

    def test_its_text_is_that_of_the_enhancer(self):
        self.check_golden()

    def test_info_and_health_tell_of_it(self):
        info = self.daemon.ask("info")
        self.assertEqual((info["model"]["path"], info["model"]["type"]), (str(TEXT_TINY), "gemma3_text"))
        enhancer = info["enhance"]
        self.assertEqual((enhancer["model"], enhancer["type"], enhancer["vision"]), (str(TINY), "gemma3", True))
        self.assertEqual(info["config"]["enhancer"]["model"], str(TINY))
        self.assertEqual(self.enhancements(), {"running": 0, "waiting": 0})

    def test_it_sees_images_though_the_encoder_does_not(self):
        black, white = (self.enhance("a", image=raw_image(4, 4, value * 48), **GREEDY, max_new_tokens=16)["raw_text"]
                        for value in (b"\0", b"\xff"))
        self.assertNotEqual(black, white)

    def test_encodes_are_those_of_the_encoder_while_it_rewrites(self):
        request = {"prompts": [{"input_ids": [2, 77, 5, 301]}, {"input_ids": [2] * 90}], "layers": [0, 8]}
        (expected,) = one_rank_results(TEXT_TINY, [request])
        client = self.connect()
        numbers = [client.send_request("enhance_t2v", prompt=GOLDEN["prompt"], **FIELDS) for _ in range(6)]
        for _ in range(4):
            reply = self.connect().call("encode", **request)
            check_same(take_everywhere(self.daemon, reply["job"]), expected, "an encode meanwhile", LIMIT)
        replies = read_replies(client, len(numbers))
        self.assertEqual({replies[number]["raw_text"] for number in numbers}, {GOLDEN["greedy_text"]})

    def test_an_encode_is_rewritten_by_the_one_and_encoded_by_the_other(self):
        reply = self.connect().call("encode", prompts=["a dog runs"], layers=[8], enhance=FIELDS, return_input_ids=True)
        self.assertTrue(reply["ok"], reply)
        direct = self.connect().call("encode", prompts=[reply["enhanced"]["text"]], layers=[8], return_input_ids=True)
        self.assertEqual(reply["prompts"][0]["input_ids"], direct["prompts"][0]["input_ids"])
        self.assertEqual(take_everywhere(self.daemon, reply["job"]), take_everywhere(self.daemon, direct["job"]))

    def test_it_follows_the_encoder_from_mode_to_mode(self):
        for name, settings in {**MODES, "one of two": {**TENSOR, "encoder_ranks": [1]}}.items():
            with self.subTest(name):
                switch(self.connect(), **settings)
                self.check_golden()

    def test_it_rewrites_while_the_encoder_sleeps(self):
        self.assertTrue(self.connect().call("sleep")["asleep"])
        self.assertEqual(generation_bytes(self.daemon), [0, 0])
        self.check_golden()
        self.assertTrue(self.daemon.ask("info")["asleep"], "nothing is to be encoded")
        reply = self.connect().call("encode", prompts=["a"], layers=[8])
        self.assertTrue(reply["ok"], reply)
        self.check_golden()


class Resting(EnhanceTestCase):
    """Soon after its last prompt the enhancer sleeps; its files may go once the daemon is there."""

    DAEMON = {"ranks": 2, "model": TEXT_TINY, "enhance.idle_ms": 100, "heartbeat_ms": 50}

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enter(tempfile.TemporaryDirectory()))
        cls.DAEMON = {**cls.DAEMON, "enhancer.model": make_endless(TINY, cls.folder / "enhancer")}
        super().setUpClass()
        shutil.rmtree(cls.folder / "enhancer")
        with cls.daemon.client() as client:
            cls.before = [cls.say(client, **fields) for fields in cls.requests()]

    @staticmethod
    def requests():
        return [{"prompt": "a dog", **GREEDY, "max_new_tokens": 20},
                {"prompt": "a dog", **GREEDY, "max_new_tokens": 20, "image": raw_image(2, 2, bytes(range(12)))}]

    @staticmethod
    def say(client, **fields):
        reply = enhance(client, **fields)
        if not reply["ok"]:
            raise AssertionError(reply)
        return reply["raw_text"]

    def test_gives_its_memory_back_and_wakes_again(self):
        for _ in range(3):
            with self.daemon.client() as client:
                client.send_request("enhance_t2v", prompt="a", **ENDLESS)
                client.read_reply()
                poll(lambda: min(generation_bytes(self.daemon)) > 0, "it holds memory")
            poll(lambda: generation_bytes(self.daemon) == [0, 0], "the memory is given back")
            with self.daemon.client() as client:
                self.assertEqual([self.say(client, **fields) for fields in self.requests()], self.before)
        self.assertFalse(self.daemon.ask("info")["asleep"], "the encoder does not sleep")

    def test_a_switch_while_it_rests_and_while_it_rewrites(self):
        long = {**GREEDY, "no_repeat_ngram": 3, "max_new_tokens": 400}
        expected = self.enhance("a dog", **long)["raw_text"]
        orders = self.connect()
        for settings in MODES.values():
            poll(lambda: generation_bytes(self.daemon) == [0, 0], "it rests")
            switch(orders, **settings)
            self.assertEqual(self.enhance("a dog", **long)["raw_text"], expected)
        client = self.connect()
        client.send_request("enhance_t2v", prompt="a dog", **long, stream=True)
        client.read_reply()
        for settings in MODES.values():
            switch(orders, **settings)
        self.assertEqual(read_events(client)[1]["raw_text"], expected)

    def test_sleep_waits_for_it(self):
        client = self.connect()
        client.send_request("enhance_t2v", prompt="a dog", **{**ENDLESS, "max_new_tokens": 500})
        client.read_reply()
        sleeper = self.connect()
        sleeper.send_request("sleep")
        _, reply = read_events(client)
        self.assertEqual((reply["ok"], reply["tokens_out"]), (True, 500), reply)
        self.assertTrue(sleeper.read_reply()["asleep"])


class OfOtherSizes(EnhanceTestCase):
    """The enhancer has nothing in common with the encoder but the daemon."""

    DAEMON = {"ranks": 2, "weights": "random", "enhancer.model": TINY}

    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enter(tempfile.TemporaryDirectory())) / "encoder"
        folder.mkdir()
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(TEXT_TINY / name, folder)
        cls.DAEMON = {**cls.DAEMON, "model": folder}
        super().setUpClass()

    def test_rewrites_for_an_encoder_of_random_weights(self):
        self.assertEqual(self.enhance(GOLDEN["prompt"], **FIELDS)["raw_text"], GOLDEN["greedy_text"])
        reply = self.connect().call("encode", prompts=["a"], layers=[8], enhance=FIELDS)
        self.assertTrue(reply["ok"], reply)


class BadEnhancers(unittest.TestCase):
    def refused(self, path, *words):
        """Starts gemmad: it must end by itself, and name what is wrong."""
        daemon = Daemon(ranks=2, model=TEXT_TINY, no_patience=True, **{"enhancer.model": path})
        try:
            self.assertEqual(daemon.start().wait_exit(), CANNOT_START, daemon.log())
            said = [line for line in daemon.log().splitlines() if "cannot start" in line]
            self.assertEqual(len(said), 1, daemon.log())
            for word in (str(path), *words):
                self.assertIn(word, said[0])
            self.assertEqual(daemon.sockets(), [])
            poll(lambda: not daemon.processes(), "no process is left", 5)
        finally:
            daemon.destroy()

    def test_are_named_at_the_start(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.refused(folder / "nowhere", "not a directory")
            self.refused(folder, "config.json")
            self.refused(TINY / "config.json", "not a directory")
            cut = copy_model(TINY, folder / "cut")
            content = (TINY / "model.safetensors").read_bytes()
            (cut / "model.safetensors").write_bytes(content[:len(content) // 2])
            self.refused(cut, "model.safetensors", "cut short")
            wordless = copy_model(TINY, folder / "wordless")
            (wordless / "tokenizer.json").unlink()
            self.refused(wordless, "tokenizer")


if __name__ == "__main__":
    unittest.main()
