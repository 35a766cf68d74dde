"""Tests of scripts/make_tiny_model.py."""

import array
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import make_tiny_model  # noqa: E402
import model_files  # noqa: E402


class TinyModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = Path(holder.name)
        make_tiny_model.make(cls.folder / "one", 1)

    def load(self, name):
        return json.loads((self.folder / "one" / name).read_text(encoding="utf-8"))

    def test_the_same_seed_gives_the_same_bytes(self):
        make_tiny_model.make(self.folder / "again", 1)
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            self.assertEqual((self.folder / "one" / name).read_bytes(), (self.folder / "again" / name).read_bytes())

    def test_another_seed_gives_other_weights(self):
        make_tiny_model.make(self.folder / "other", 2)
        self.assertNotEqual((self.folder / "one" / "model.safetensors").read_bytes(),
                            (self.folder / "other" / "model.safetensors").read_bytes())

    def test_it_stays_small(self):
        self.assertLess((self.folder / "one" / "model.safetensors").stat().st_size, 4 << 20)

    def test_the_file_holds_the_tensors_that_the_config_asks_for(self):
        raw = (self.folder / "one" / "model.safetensors").read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        header.pop("__metadata__")
        shapes = {name: tuple(entry["shape"]) for name, entry in header.items()}
        self.assertEqual(shapes, model_files.text_tensor_shapes(self.load("config.json")))
        self.assertEqual(max(entry["data_offsets"][1] for entry in header.values()), len(raw) - 8 - size)

    def test_weights_are_finite_and_not_zero(self):
        raw = (self.folder / "one" / "model.safetensors").read_bytes()
        halves = array.array("H", raw[8 + int.from_bytes(raw[:8], "little"):])
        self.assertTrue(all(half & 0x7F80 != 0x7F80 for half in halves))
        self.assertGreater(len(set(halves)), 1000)

    def test_every_id_of_the_tokenizer_has_an_embedding(self):
        tokenizer, config = self.load("tokenizer.json"), self.load("config.json")
        ids = list(tokenizer["model"]["vocab"].values()) + [token["id"] for token in tokenizer["added_tokens"]]
        self.assertEqual(max(ids) + 1, config["vocab_size"])

    def test_all_bytes_and_the_pieces_of_every_merge_are_known(self):
        model = self.load("tokenizer.json")["model"]
        self.assertTrue(all(f"<0x{value:02X}>" in model["vocab"] for value in range(256)))
        self.assertTrue(model["merges"])
        for left, right in model["merges"]:
            self.assertTrue({left, right, left + right} <= set(model["vocab"]))

    def test_both_kinds_of_attention_occur(self):
        self.assertEqual(set(self.load("config.json")["layer_types"]), {"full_attention", "sliding_attention"})

    def test_rounding_to_bf16_is_to_nearest_even(self):
        values = [1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-16, -0.0]
        halves = array.array("H", make_tiny_model.bf16_bytes(values)).tolist()
        self.assertEqual(halves, [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x8000])

    def test_a_folder_that_is_there_is_refused_in_one_line(self):
        done = subprocess.run([sys.executable, SCRIPTS / "make_tiny_model.py", self.folder / "one"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))
        self.assertIn("exists already", done.stderr)


if __name__ == "__main__":
    unittest.main()
