"""Tests of scripts/model_files.py: the writer of safetensors, the merges, the folder that appears at once."""

import json
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import model_files  # noqa: E402


def read_safetensors(path):
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:], size


class Scratch(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)


class RankedMerges(unittest.TestCase):
    def test_every_split_of_a_piece_becomes_a_merge(self):
        merges = model_files.ranked_merges(["a", "b", "ab", "abb", "bb"], [-9, -9, -2, -1, -3])
        self.assertEqual(merges, [("ab", "b"), ("a", "bb"), ("a", "b"), ("b", "b")])

    def test_a_split_into_an_unknown_piece_is_left_out(self):
        self.assertEqual(model_files.ranked_merges(["a", "abc", "bc"], [0, -1, -2]), [("a", "bc")])

    def test_equal_scores_order_by_longer_left_then_longer_right_then_id(self):
        pieces = ["x", "y", "xx", "yy", "xxx", "yyy"]
        self.assertEqual(model_files.ranked_merges(pieces, [0] * 6),
                         [("xx", "x"), ("yy", "y"), ("x", "xx"), ("y", "yy"), ("x", "x"), ("y", "y")])

    def test_a_character_outside_the_basic_plane_counts_as_one(self):
        self.assertEqual(model_files.ranked_merges(["\U0001F600", "a", "\U0001F600a"], [0, 0, -1]),
                         [("\U0001F600", "a")])

    def test_no_pieces_give_no_merges(self):
        self.assertEqual(model_files.ranked_merges([], []), [])


class TokenizerJson(unittest.TestCase):
    def test_special_is_true_only_for_the_known_control_tokens(self):
        pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\n"]
        tokenizer = model_files.tokenizer_json(pieces, [], {4: "<mask>", 0: "<pad>", 5: "\n"})
        self.assertEqual([(token["id"], token["special"]) for token in tokenizer["added_tokens"]],
                         [(0, True), (4, False), (5, False)])

    def test_the_post_processor_prepends_the_id_of_bos(self):
        tokenizer = model_files.tokenizer_json(["<unk>", "a", "<bos>"], [], {})
        self.assertEqual(tokenizer["post_processor"]["special_tokens"]["<bos>"]["ids"], [2])


class TextConfig(unittest.TestCase):
    def config(self, **changes):
        values = dict(vocab_size=8, hidden_size=4, intermediate_size=6, num_hidden_layers=7, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=3, query_pre_attn_scalar=3, sliding_window=5,
                      max_position_embeddings=64)
        return model_files.text_config(**{**values, **changes})

    def test_each_sixth_layer_attends_globally(self):
        kinds = self.config()["layer_types"]
        self.assertEqual([index for index, kind in enumerate(kinds) if kind == "full_attention"], [5])

    def test_a_rope_factor_reaches_the_global_layers_only(self):
        rope = self.config(rope_factor=8.0)["rope_parameters"]
        self.assertEqual(rope["full_attention"], {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6})
        self.assertEqual(rope["sliding_attention"], {"rope_type": "default", "rope_theta": 1e4})

    def test_tensor_shapes_follow_heads_and_head_size(self):
        shapes = model_files.text_tensor_shapes(self.config())
        self.assertEqual(len(shapes), 2 + 13 * 7)
        self.assertEqual(shapes["model.layers.0.self_attn.q_proj.weight"], (6, 4))
        self.assertEqual(shapes["model.layers.6.self_attn.o_proj.weight"], (4, 6))
        self.assertEqual(shapes["model.layers.6.self_attn.k_norm.weight"], (3,))


class SafetensorsWriter(Scratch):
    def test_a_tensor_in_pieces_lies_where_the_header_says(self):
        path = self.folder / "m.safetensors"
        writer = model_files.SafetensorsWriter(path, {"a": (2, 3), "b": (1,)})
        writer.write("a", b"012345")
        writer.write("a", b"6789AB")
        writer.write("b", b"zz")
        writer.close()
        header, data, _ = read_safetensors(path)
        self.assertEqual(header["a"], {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]})
        self.assertEqual(header["b"]["data_offsets"], [12, 14])
        self.assertEqual(data, b"0123456789ABzz")

    def test_the_data_begins_at_a_multiple_of_eight(self):
        for length in range(1, 10):
            path = self.folder / f"{length}.safetensors"
            writer = model_files.SafetensorsWriter(path, {"n" * length: (1,)})
            writer.write("n" * length, b"xx")
            writer.close()
            self.assertEqual(read_safetensors(path)[2] % 8, 0)

    def writer(self):
        return model_files.SafetensorsWriter(self.folder / "w.safetensors", {"a": (2,), "b": (2,)})

    def test_a_short_tensor_is_refused(self):
        writer = self.writer()
        writer.write("a", b"12")
        with self.assertRaisesRegex(ValueError, "a lacks 2 bytes"):
            writer.write("b", b"1234")
        with self.assertRaises(ValueError):
            writer.close()

    def test_a_long_tensor_is_refused(self):
        writer = self.writer()
        with self.assertRaisesRegex(ValueError, "a gets 6 bytes"):
            writer.write("a", b"123456")
        with self.assertRaises(ValueError):
            writer.close()

    def test_a_tensor_out_of_order_is_refused(self):
        writer = self.writer()
        with self.assertRaisesRegex(ValueError, "out of order"):
            writer.write("b", b"1234")
        writer._file.close()

    def test_a_tensor_never_written_is_refused(self):
        writer = self.writer()
        writer.write("a", b"1234")
        with self.assertRaisesRegex(ValueError, "b was never written"):
            writer.close()


class PublishedDirectory(Scratch):
    def test_the_folder_appears_whole_at_the_end(self):
        target = self.folder / "deep" / "model"
        with model_files.published_directory(target) as partial:
            (partial / "file").write_text("x")
            self.assertFalse(target.exists())
        self.assertEqual([path.name for path in target.parent.iterdir()], ["model"])
        self.assertEqual((target / "file").read_text(), "x")

    def test_nothing_is_left_when_the_work_is_interrupted(self):
        with self.assertRaises(KeyboardInterrupt):
            with model_files.published_directory(self.folder / "model") as partial:
                (partial / "file").write_text("x")
                raise KeyboardInterrupt
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder_that_is_there_is_not_touched(self):
        (self.folder / "model").mkdir()
        with self.assertRaisesRegex(FileExistsError, "remove it"):
            with model_files.published_directory(self.folder / "model"):
                self.fail("the block must not run")


if __name__ == "__main__":
    unittest.main()
