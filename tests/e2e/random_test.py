"""Models without files: the same weights everywhere, in every mode; no text without a tokenizer; clear refusals."""

import random
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from harness import TESTS, TINY, VOCABULARY, Daemon
from modes import BATCH_PARALLEL, MODES, ModeTestCase, check_same, encode_everywhere, one_rank_results, random_prompt, switch
from start_test import CANNOT_START, WRONG_SETTINGS, ScratchModel

sys.path.insert(0, str(TESTS.parent / "scripts"))
from model_files import text_config, write_json  # noqa: E402
from random_weights import write_weights  # noqa: E402

SEED = 20260715
RANDOM = {"weights": "random", "weights_seed": SEED}
CONFIG = text_config(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=160, num_hidden_layers=6,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32,
                     sliding_window=64, max_position_embeddings=4096)
ENCODE = {"prompts": [{"input_ids": [2, 77, 5, 301]}]}


def some_request():
    generator = random.Random(SEED)
    return {"prompts": [random_prompt(generator, length) for length in (1, 90, 40, 13, 160)]}


class WithoutFiles(ModeTestCase):
    """One daemon of two ranks, from a folder with a config.json and nothing else."""

    DAEMON = {"ranks": 2, **RANDOM}

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enter(tempfile.TemporaryDirectory()))
        write_json(cls.folder / "config.json", CONFIG)
        cls.DAEMON = {**cls.DAEMON, "model": cls.folder}
        super().setUpClass()

    def test_every_mode_gives_the_states_of_one_rank(self):
        (expected,) = one_rank_results(self.folder, [some_request()], **RANDOM)
        for name, settings in MODES.items():
            with self.subTest(name):
                self.switch(**settings)
                check_same(self.encode(some_request())[1], expected, name)

    def test_sleeping_and_waking_keep_the_weights(self):
        self.switch(**BATCH_PARALLEL)
        before = self.encode(ENCODE)[1]
        client = self.connect()
        self.assertTrue(client.call("sleep")["ok"])
        self.assertTrue(client.call("wake")["ok"])
        self.assertEqual(self.encode(ENCODE)[1], before)

    def test_text_is_refused_and_ids_are_not(self):
        client = self.connect()
        for request in ({"op": "encode", "prompts": ["a dog runs"]}, {"op": "encode", "prompts": [*ENCODE["prompts"], ""]},
                        {"op": "tokenize", "texts": ["a dog runs"]}):
            self.assert_refused(client.call(**request), "no_tokenizer", "no tokenizer", "input_ids")
        self.assertTrue(client.call("encode", **ENCODE)["ok"])

    def test_info_tells_what_makes_the_same_model(self):
        info = self.info()
        for key, value in {**RANDOM, "preset": "none", "path": str(self.folder), "tokenizer": False}.items():
            self.assertEqual(info["model"][key], value, key)
        self.assertEqual([rank["bytes"]["read_from_disk"] for rank in info["ranks"]], [0, 0])


class WithoutCache(WithoutFiles):
    """Makes the weights anew at every change."""

    DAEMON = {**WithoutFiles.DAEMON, "weights_cache": "none"}


class SameAsFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_files_that_a_script_wrote_give_the_same_bytes(self):
        made, written = self.folder / "made", self.folder / "written"
        for folder in (made, written):
            folder.mkdir()
            write_json(folder / "config.json", CONFIG)
        shutil.copy(TINY / "tokenizer.json", written)
        write_weights(written / "model.safetensors", CONFIG, SEED)
        found = self.states(model=made, **RANDOM)
        self.assertEqual(found, self.states(model=written))
        other = self.states(model=made, weights="random", weights_seed=SEED + 1)
        self.assertNotEqual(found["tensor"], other["tensor"])

    def states(self, **settings):
        found = {}
        with Daemon(ranks=2, **settings) as daemon, daemon.client() as client:
            for name in ("tensor", "batch_parallel"):
                switch(client, **MODES[name])
                found[name] = encode_everywhere(daemon, client, some_request())[1]
        return found

    def test_a_tokenizer_in_the_folder_is_used(self):
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(TINY / name, self.folder)
        with Daemon(model=self.folder, **RANDOM) as daemon, daemon.client() as client:
            self.assertTrue(client.call("encode", prompts=["a"])["ok"])
            self.assertTrue(client.call("tokenize", texts=["a"])["ok"])
            self.assertTrue(daemon.ask("info")["model"]["tokenizer"])


class Presets(unittest.TestCase):
    def test_the_smallest_one_encodes(self):
        settings = {"preset": "gemma-3-270m", "batch_tokens": 1024}
        with Daemon(model=None, **RANDOM, **settings) as daemon, daemon.client() as client:
            model = daemon.ask("info")["model"]
            self.assertEqual((model["preset"], model["num_layers"], model["hidden_size"]), ("gemma-3-270m", 18, 640))
            reply = client.call("encode", **ENCODE, outputs=["last_hidden_state"])
            self.assertEqual(reply["prompts"][0]["tensors"][0]["shape"], [4, 640])


class Refusals(ScratchModel):
    def refused_with(self, *words, status=WRONG_SETTINGS, model=None, **settings):
        self.refused(*words, status=status, daemon=Daemon(2, model, no_patience=True, **settings))

    def test_neither_model_nor_preset(self):
        self.refused_with("key 'model'", "preset", weights="random")

    def test_both(self):
        self.refused_with("key 'preset'", "gemma-3-1b", "leave one", model=TINY, weights="random", preset="gemma-3-1b")

    def test_a_preset_beside_files(self):
        self.refused_with("key 'preset'", "random weights alone", model=TINY, preset="gemma-3-1b")

    def test_no_such_preset(self):
        self.refused_with("key 'preset'", "gemma-9", "'gemma-3-270m'", weights="random", preset="gemma-9")

    def test_a_folder_without_a_config(self):
        self.model.mkdir()
        self.refused_with(r"config\.json", "missing", status=CANNOT_START, model=self.model, weights="random")

    def test_a_tokenizer_that_is_none(self):
        self.copy()
        self.write("tokenizer.json", b"<html></html>")
        self.refused_with(r"tokenizer\.json", "HTML", status=CANNOT_START, model=self.model, weights="random")


if __name__ == "__main__":
    unittest.main()
