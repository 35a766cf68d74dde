"""Tests of scripts/random_weights.py. Those of its numpy half are skipped, and say so, where numpy is missing."""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import random_weights  # noqa: E402
from model_files import text_config  # noqa: E402

UP = "layers.0.mlp.up_proj.weight"
# (seed, name, first element): values that tests/daemon/model/random_weights_test.cpp holds too.
KNOWN = {(1, UP, 0): [0x3ca0, 0x3c26, 0x3b6b, 0xbce4],
         (9007199254740991, "embed_tokens.weight", 10**12): [0x3c94, 0x3c20, 0xbcb1, 0xbc97]}


def small_config(**changes):
    return text_config(**{"vocab_size": 40, "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 2,
                          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
                          "query_pre_attn_scalar": 16, "sliding_window": 8, "max_position_embeddings": 64, **changes})


class Values(unittest.TestCase):
    make = staticmethod(random_weights.values_plain)

    def test_are_those_of_the_daemon(self):
        for (seed, name, first), bits in KNOWN.items():
            self.assertEqual(self.make(seed, name, first, len(bits)), struct.pack("<4H", *bits))

    def test_do_not_depend_on_where_a_range_begins(self):
        whole = self.make(7, UP, 0, 1001)
        for first in (1, 2, 500, 1000):
            self.assertEqual(self.make(7, UP, first, 1001 - first), whole[2 * first:])
        self.assertEqual(self.make(7, UP, 3, 0), b"")


@unittest.skipIf(random_weights.numpy is None, "numpy is not installed: its half of random_weights.py is not tested")
class NumpyValues(Values):
    make = staticmethod(random_weights.values_numpy)

    def test_are_the_plain_ones(self):
        for seed, name, first, count in ((0, "", 0, 70000), (1 << 40, UP, 1 << 33, 1001)):
            self.assertEqual(self.make(seed, name, first, count), random_weights.values_plain(seed, name, first, count))


class File(unittest.TestCase):
    def write(self, config):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config))
            command = [sys.executable, random_weights.__file__, "--seed", "5", f"{folder}/config.json", f"{folder}/out"]
            subprocess.run(command, check=True)
            content = (Path(folder) / "out").read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        header.pop("__metadata__")
        return {name: content[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items()}

    def test_holds_every_tensor_norms_being_zeros(self):
        tensors = self.write(small_config())
        self.assertEqual(len(tensors), 2 * 13 + 2)
        self.assertEqual(tensors["model.layers.0.mlp.up_proj.weight"], random_weights.values_plain(5, UP, 0, 24 * 56))
        self.assertEqual(tensors["model.layers.1.self_attn.q_norm.weight"], bytes(2 * 16))
        self.assertEqual(tensors["model.norm.weight"], bytes(2 * 24))

    def test_of_a_multimodal_config_that_leaves_defaults_out(self):
        config = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 1}
        tensors = self.write({"model_type": "gemma3", "text_config": config})
        self.assertEqual(len(tensors["model.layers.0.self_attn.q_proj.weight"]), 2 * 8 * 256 * 24)


if __name__ == "__main__":
    unittest.main()
