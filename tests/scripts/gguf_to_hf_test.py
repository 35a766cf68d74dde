"""Tests of scripts/gguf_to_hf.py that need neither numpy nor a GGUF."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import gguf_to_hf  # noqa: E402
import model_files  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
FILLER = -1000.0


def metadata_270m(**changes):
    values = {
        "embedding_length": 640, "block_count": 18, "feed_forward_length": 2048, "context_length": 32768,
        "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 256,
        "attention.sliding_window": 512, "attention.layer_norm_rms_epsilon": 9.999999974752427e-07,
        "rope.freq_base": 1000000.0,
    }
    values.update(changes)
    return {"general.architecture": "gemma3", **{f"gemma3.{key}": value for key, value in values.items()}}


class Names(unittest.TestCase):
    def test_every_tensor_of_the_model_has_its_own_gguf_name(self):
        config = gguf_to_hf.config_from_metadata(metadata_270m(), 100)
        names = [gguf_to_hf.gguf_name(name) for name in model_files.text_tensor_shapes(config)]
        self.assertEqual(len(names), 236)
        self.assertEqual(len(set(names)), 236)
        self.assertIn("blk.17.post_ffw_norm.weight", names)
        self.assertIn("token_embd.weight", names)

    def test_norms_are_told_from_projections(self):
        self.assertTrue(gguf_to_hf.is_norm("model.norm.weight"))
        self.assertTrue(gguf_to_hf.is_norm("model.layers.3.self_attn.q_norm.weight"))
        self.assertTrue(gguf_to_hf.is_norm("model.layers.3.post_attention_layernorm.weight"))
        self.assertFalse(gguf_to_hf.is_norm("model.layers.3.self_attn.q_proj.weight"))


class Config(unittest.TestCase):
    def test_the_270m_comes_out_as_released(self):
        config = gguf_to_hf.config_from_metadata(metadata_270m(), 262144)
        self.assertEqual(config["model_type"], "gemma3_text")
        self.assertEqual(config["rms_norm_eps"], 1e-6)
        self.assertEqual(config["query_pre_attn_scalar"], 256)
        self.assertEqual(config["rope_parameters"]["full_attention"], {"rope_type": "default", "rope_theta": 1e6})
        self.assertEqual([i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"], [5, 11, 17])

    def test_linear_scaling_reaches_the_global_layers(self):
        changes = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
        rope = gguf_to_hf.config_from_metadata(metadata_270m(**changes), 8)["rope_parameters"]
        self.assertEqual(rope["full_attention"]["factor"], 8.0)
        self.assertNotIn("factor", rope["sliding_attention"])

    def test_the_27b_scales_scores_by_width_over_heads(self):
        changes = {"block_count": 62, "embedding_length": 5376, "attention.head_count": 32,
                   "attention.key_length": 128}
        config = gguf_to_hf.config_from_metadata(metadata_270m(**changes), 8)
        self.assertEqual((config["query_pre_attn_scalar"], config["head_dim"]), (168, 128))

    def test_another_architecture_is_refused(self):
        with self.assertRaisesRegex(gguf_to_hf.ConversionError, "'llama'"):
            gguf_to_hf.config_from_metadata({"general.architecture": "llama"}, 8)

    def test_a_missing_key_is_named(self):
        metadata = metadata_270m()
        del metadata["gemma3.block_count"]
        with self.assertRaisesRegex(gguf_to_hf.ConversionError, "gemma3.block_count"):
            gguf_to_hf.config_from_metadata(metadata, 8)


class Tokenizer(unittest.TestCase):
    vocabulary = [
        ("<pad>", FILLER, CONTROL), ("<eos>", FILLER, CONTROL), ("<bos>", FILLER, CONTROL), ("<unk>", FILLER, UNKNOWN),
        ("  ", FILLER, USER_DEFINED), ("   ", FILLER, USER_DEFINED), ("<start_of_image>", FILLER, USER_DEFINED),
        ("<0x41>", 0.0, BYTE), ("\u2581a", -0.0, NORMAL), ("aa", -1000.0, NORMAL), ("\u2581", -2.0, NORMAL),
        ("a", -3.0, NORMAL),
    ]

    def build(self, vocabulary):
        return gguf_to_hf.tokenizer_from_metadata(*zip(*vocabulary))

    def test_runs_of_spaces_become_the_piece_that_stands_for_a_space(self):
        vocabulary = self.build(self.vocabulary)["model"]["vocab"]
        self.assertEqual((vocabulary["\u2581\u2581"], vocabulary["\u2581" * 3]), (4, 5))

    def test_user_defined_pieces_merge_first_although_their_score_is_a_filler(self):
        merges = self.build(self.vocabulary)["model"]["merges"]
        self.assertEqual(merges, [["\u2581\u2581", "\u2581"], ["\u2581", "\u2581\u2581"], ["\u2581", "\u2581"],
                                  ["\u2581", "a"], ["a", "a"]])

    def test_added_tokens_are_the_control_and_user_defined_pieces_and_the_image_token(self):
        added = {token["content"]: token["id"] for token in self.build(self.vocabulary)["added_tokens"]}
        self.assertEqual(added, {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "\u2581\u2581": 4,
                                 "\u2581" * 3: 5, "<start_of_image>": 6, "<image_soft_token>": 12})

    def test_bytes_and_normal_pieces_are_not_added_tokens(self):
        added = {token["content"] for token in self.build(self.vocabulary)["added_tokens"]}
        self.assertFalse(added & {"<0x41>", "a", "aa"})

    def test_a_vocabulary_without_bos_is_refused(self):
        with self.assertRaisesRegex(gguf_to_hf.ConversionError, "<bos>"):
            self.build([entry for entry in self.vocabulary if entry[0] != "<bos>"])

    def test_a_piece_that_comes_twice_is_refused(self):
        with self.assertRaisesRegex(gguf_to_hf.ConversionError, "twice"):
            self.build(self.vocabulary + [("a", -9.0, NORMAL)])


if __name__ == "__main__":
    unittest.main()
