"""LTX-2's features and embeddings: what the formulas in float64 give, and just what a request asks for."""

import tempfile
import unittest
from pathlib import Path

from harness import BOS, NUM_LAYERS, TINY, VOCABULARY, Daemon
from ltx_cases import (EVERYTHING, MODALITIES, PROCESSED, ROWS, V1, V1_INTERLEAVED, V2, V2_NO_FF_BIAS, check_processed,
                       check_same_bytes, names, random_prompts)
from ltx_reference import make_checkpoint
from modes import ModeTestCase, encode_everywhere

SHORT = "a dog runs"
MIDDLE = "An old man walks along the shore at dusk; waves break, and gulls cry over the harbour. " * 3
# A power in float32 may be off by an ulp in the last place: see ltx_reference.
INTERLEAVED = {"limit": 5e-6, "row_limit": 2e-5}


class Formulas(unittest.TestCase):
    """Every checkpoint, over one rank, on prompts so short and so long that registers fill almost all rows or hardly any."""

    def encode(self, prompts, checkpoint, **settings):
        with Daemon(embeddings_processor=checkpoint, **settings) as daemon, daemon.client() as client:
            return encode_everywhere(daemon, client, {"prompts": prompts, **EVERYTHING})

    def check(self, prompts, checkpoint, limits=None, projections=None, **settings):
        """Returns how many tokens each prompt has."""
        if projections:
            settings["projections"] = projections
        reply, tensors = self.encode(prompts, checkpoint, **settings)
        self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["ok"] * len(prompts))
        errors = [check_processed(tensors, prompt, checkpoint, projections, **(limits or {})) for prompt in range(len(prompts))]
        whole, row = (max(kind) for kind in zip(*errors))
        print(f"{checkpoint.name}: largest relative error {whole:.1e}, of a row {row:.1e}")
        return [prompt["tokens"] for prompt in reply["prompts"]]

    def check_from_text(self, checkpoint, limits=None):
        short, middle, long = self.check([SHORT, MIDDLE, *random_prompts(1000)], checkpoint, limits)
        self.assertLess(short, 20)
        self.assertGreater(middle, 128)
        self.assertLess(middle, 512)
        self.assertEqual(long, 1000)

    def test_v1(self):
        self.check_from_text(V1)

    def test_v1_with_interleaved_positions(self):
        self.check_from_text(V1_INTERLEAVED, INTERLEAVED)

    def test_v2(self):
        self.check_from_text(V2)

    def test_v2_without_feed_forward_biases(self):
        self.check_from_text(V2_NO_FF_BIAS)

    def test_other_sizes(self):
        """On one token, and on as many as there are rows."""
        with tempfile.TemporaryDirectory() as folder:
            for number, options in enumerate((
                    {"video": (2, 128, 1), "audio": (1, 64, 2), "gated": False},
                    {"video": (3, 64, 2), "audio": (1, 32, 1), "ff_bias": False, "rope_type": "interleaved"},
                    {"video": (1, 64, 1), "audio": (5, 20, 1), "is_double": False},
                    {"video": (1, 96, 1), "audio": (6, 16, 2), "is_v2": False, "gated": True},
            )):
                with self.subTest(**options):
                    checkpoint = Path(folder) / f"sizes-{number}.safetensors"
                    make_checkpoint(checkpoint, hidden_size=96, num_states=NUM_LAYERS + 1, seed=number, **options)
                    self.check(random_prompts(1, 1024), checkpoint)

    def test_a_gemma_of_random_weights(self):
        self.check([SHORT], V2, model=TINY, weights="random")


class Outputs(ModeTestCase):
    """One rank, so that the same work gives the same bytes."""

    DAEMON = {"embeddings_processor": V2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prompts = random_prompts(3, 140)
        with cls.daemon.client() as client:
            _, cls.all = encode_everywhere(cls.daemon, client, {"prompts": cls.prompts, **EVERYTHING})

    def assert_gives(self, expected, **fields):
        """Just these tensors, with the bytes that they have where everything is asked for."""
        reply, tensors = self.encode({"prompts": self.prompts, **fields})
        check_same_bytes(tensors, {name: self.all[name] for name in expected}, f"{fields}")
        return reply

    def test_everything_is_delivered_where_it_is_asked_for(self):
        states = [f"prompt.{prompt}.hidden_states.{state}" for prompt in (0, 1) for state in range(NUM_LAYERS + 1)]
        self.assertEqual(sorted(self.all), sorted(states + names(*PROCESSED, prompts=(0, 1))))

    def test_embeddings_alone(self):
        reply = self.assert_gives(names("embeddings", prompts=(0, 1)), outputs=["embeddings"])
        for prompt in reply["prompts"]:
            self.assertEqual(prompt["tensors"], [{"name": "embeddings.video", "dtype": "F32", "shape": [ROWS, 128]},
                                                 {"name": "embeddings.audio", "dtype": "F32", "shape": [ROWS, 64]}])

    def test_features_alone(self):
        reply = self.assert_gives(names("features", prompts=(0, 1)), outputs=["features"])
        self.assertEqual([tensor["shape"] for prompt in reply["prompts"] for tensor in prompt["tensors"]],
                         [[3, 128], [3, 64], [140, 128], [140, 64]])

    def test_one_modality(self):
        for modality in MODALITIES:
            for outputs in (["embeddings"], ["features"], ["features", "embeddings"]):
                with self.subTest(modality, outputs=outputs):
                    self.assert_gives(names(*outputs, modalities=[modality], prompts=(0, 1)), outputs=outputs,
                                      modalities=[modality])
        self.assert_gives(names("embeddings", prompts=(0, 1)), outputs=["embeddings"], modalities=["audio", "video"])

    def test_some_hidden_states_beside_embeddings(self):
        states = [f"prompt.{prompt}.hidden_states.{state}" for prompt in (0, 1) for state in (2, 7)]
        self.assert_gives(states + names("embeddings", prompts=(0, 1)), outputs=["embeddings", "hidden_states"], layers=[2, 7])

    def test_the_last_hidden_state_beside_embeddings(self):
        _, tensors = self.encode({"prompts": self.prompts, "outputs": ["embeddings", "last_hidden_state"]})
        expected = {name: self.all[name] for name in names("embeddings", prompts=(0, 1))}
        for prompt in (0, 1):
            expected[f"prompt.{prompt}.last_hidden_state"] = self.all[f"prompt.{prompt}.hidden_states.{NUM_LAYERS}"]
        check_same_bytes(tensors, expected, "result")

    def test_a_bad_prompt_fails_alone(self):
        prompts = [{"input_ids": [BOS, VOCABULARY]}, self.prompts[0], {"input_ids": []}, self.prompts[1]]
        reply, tensors = self.encode({"prompts": prompts, "outputs": ["features", "embeddings"]})
        self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["error", "ok", "error", "ok"])
        check_same_bytes(tensors, {name: self.all[name.replace("prompt.1", "prompt.0").replace("prompt.3", "prompt.1")]
                                   for name in names(*PROCESSED, prompts=(1, 3))}, "the good prompts")
        reply, tensors = self.encode({"prompts": prompts[:1], "outputs": ["embeddings"]})
        self.assertEqual((reply["prompts"][0]["error"]["code"], tensors), ("bad_token", {}))

    def test_no_prompts(self):
        self.assertEqual(self.encode({"prompts": [], "outputs": ["embeddings"]})[1], {})

    def test_what_cannot_be_asked_for(self):
        client = self.connect()
        for fields, words in (
                ({"modalities": ["audio"]}, ["modalities", "features", "embeddings"]),
                ({"outputs": ["last_hidden_state"], "modalities": ["audio"]}, ["modalities"]),
                ({"outputs": ["embeddings"], "modalities": []}, ["modalities", "empty"]),
                ({"outputs": ["embeddings"], "modalities": ["text"]}, ["modalities", "video", "audio"]),
                ({"outputs": ["embeddings"], "modalities": "audio"}, ["modalities", "list"]),
                ({"outputs": ["embeddings"], "layers": [1]}, ["layers", "hidden_states"]),
                ({"outputs": ["embedding"]}, ["'embedding'", "'embeddings'"])):
            with self.subTest(**fields):
                self.assert_refused(client.call("encode", prompts=["a"], **fields), "bad_request", *words)
        self.assert_alive()

    def test_info_tells_of_it(self):
        info = self.info()
        self.assertEqual(info["outputs"], ["hidden_states", "last_hidden_state", "features", "embeddings"])
        self.assertEqual(info["embeddings_processor"], {"path": str(V2), "preset": "none", "variant": "v2", "video_width": 128,
                                                        "audio_width": 64, "sequence_length": ROWS})
        self.assertGreater(info["ranks"][0]["bytes"]["processor"], V2.stat().st_size)

    def test_the_comparison_notices_a_prompt_for_another(self):
        swapped = {name.replace("prompt.0", "prompt.9").replace("prompt.1", "prompt.0").replace("prompt.9", "prompt.1"): tensor
                   for name, tensor in self.all.items() if "embeddings" in name}
        with self.assertRaises(AssertionError):
            check_processed({**self.all, **swapped}, 0, V2)


class OutputsFromTheResultCache(Outputs):
    """Prompts that come again with other outputs."""

    DAEMON = {**Outputs.DAEMON, "result_cache_mib": 16}

    def test_what_comes_again_is_found(self):
        for outputs in (["embeddings"], ["features", "hidden_states"]):
            hits = self.hits()
            _, tensors = self.encode({"prompts": self.prompts, "outputs": outputs})
            check_same_bytes(self.encode({"prompts": self.prompts, "outputs": outputs})[1], tensors, f"{outputs}, again")
            self.assertGreaterEqual(self.hits(), hits + len(self.prompts))

    def hits(self):
        return self.daemon.metric("gemmad_result_cache_hits_total")


class WithoutProcessor(ModeTestCase):
    def test_what_needs_one_is_refused(self):
        client = self.connect()
        for output in PROCESSED:
            self.assert_refused(client.call("encode", prompts=["a"], outputs=["hidden_states", output]), "bad_request",
                                f"'{output}'", "embeddings_processor")
        self.assertTrue(client.call("encode", prompts=["a"])["ok"])

    def test_info_tells_that_there_is_none(self):
        info = self.info()
        self.assertEqual(info["outputs"], ["hidden_states", "last_hidden_state"])
        self.assertIsNone(info["embeddings_processor"])
        self.assertEqual(info["ranks"][0]["bytes"]["processor"], 0)


if __name__ == "__main__":
    unittest.main()
