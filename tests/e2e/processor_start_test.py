"""LTX-2 checkpoints and settings of an embeddings processor that gemmad refuses to start with, and some that it takes."""

import json
import re
import shutil
import struct
import unittest

from arrays import check_arrays
from goldens import LIMIT
from harness import NUM_LAYERS, TINY, Daemon
from ltx_cases import PROCESSED, V1, V2, check_same_bytes, names
from ltx_reference import SafetensorsFile, make_checkpoint, write_safetensors
from modes import encode_everywhere
from start_test import CANNOT_START, WRONG_SETTINGS, ScratchModel

SMALL = {"hidden_size": 96, "num_states": NUM_LAYERS + 1, "video": (1, 32, 1)}
V1_SMALL = {**SMALL, "is_v2": False, "video": (3, 32, 1)}


class ProcessorStart(ScratchModel):
    def setUp(self):
        super().setUp()
        self.folder = self.model.parent
        self.checkpoint = self.folder / "ltx.safetensors"
        self.projections = self.folder / "packed.safetensors"

    def make(self, **options):
        make_checkpoint(self.checkpoint, **{**SMALL, **options})

    def edit_checkpoint(self, change):
        """`change`: of the header, in place. Tensors may go from it at the end of the file only."""
        content = self.checkpoint.read_bytes()
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + size])
        change(header)
        end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
        text = json.dumps(header).encode()
        self.checkpoint.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:8 + size + end])

    def edit_config(self, change):
        def edit(header):
            config = json.loads(header["__metadata__"]["config"])
            change(config["transformer"])
            header["__metadata__"]["config"] = json.dumps(config)

        self.edit_checkpoint(edit)

    def refused_with(self, *words, status=CANNOT_START, ranks=1, **settings):
        settings = settings or {"embeddings_processor": self.checkpoint}
        self.refused(*words, status=status, daemon=Daemon(ranks, no_patience=True, **settings))

    def encode(self, **settings):
        """The tensors, and the log."""
        request = {"prompts": ["a dog runs"], "outputs": list(PROCESSED)}
        with Daemon(embeddings_processor=self.checkpoint, **settings) as daemon, daemon.client() as client:
            tensors = encode_everywhere(daemon, client, request)[1]
            self.assertEqual(sorted(tensors), names(*PROCESSED))
            return tensors, daemon.log()


class Checkpoints(ProcessorStart):
    def test_a_missing_file(self):
        self.refused_with(re.escape(str(self.checkpoint)), "No such file", ranks=2)

    def test_a_git_lfs_pointer(self):
        self.checkpoint.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
        self.refused_with(r"ltx\.safetensors", "LFS pointer")

    def test_another_model(self):
        shutil.copy(TINY / "model.safetensors", self.checkpoint)
        self.refused_with(r"ltx\.safetensors", "'config'", "LTX-2")

    def test_some_of_the_caption_keys(self):
        self.make()
        self.edit_config(lambda config: config.pop("caption_proj_input_norm"))
        self.refused_with(r"ltx\.safetensors", r"caption_proj_input_norm': is missing", "all four")

    def test_a_caption_key_of_another_value(self):
        self.make()
        self.edit_config(lambda config: config.update(caption_projection_first_linear=True))
        self.refused_with(r"ltx\.safetensors", "caption_projection_first_linear", "is true", "false")

    def test_unknown_positions(self):
        self.make()
        self.edit_config(lambda config: config.update(rope_type="spiral"))
        self.refused_with(r"ltx\.safetensors", "rope_type", "'spiral'", "'split', 'interleaved'")

    def test_a_missing_tensor(self):
        self.make()
        last = list(SafetensorsFile(self.checkpoint).entries)[-1]
        self.edit_checkpoint(lambda header: header.pop(last))
        self.refused_with(r"ltx\.safetensors", "1 tensor does not fit", f"missing '{re.escape(last)}'", ranks=2)

    def test_projections_that_are_elsewhere(self):
        self.make(projections=self.projections)
        self.refused_with(r"ltx\.safetensors", "4 tensors",
                          r"missing 'text_embedding_projection\.video_aggregate_embed\.weight'")

    def test_truncated_data(self):
        self.make()
        self.checkpoint.write_bytes(self.checkpoint.read_bytes()[:-1])
        self.refused_with(r"ltx\.safetensors", "cut short")

    def test_v1_for_other_hidden_states(self):
        self.make(**{**V1_SMALL, "hidden_size": 64, "video": (2, 32, 1)})
        self.refused_with(r"ltx\.safetensors", "video connector is 64 wide", "96 wide")

    def test_v2_for_other_hidden_states(self):
        for sizes, words in (({"hidden_size": 64}, r"\[32, 576\]"), ({"num_states": NUM_LAYERS}, r"\[32, 768\]")):
            with self.subTest(**sizes):
                self.make(**sizes)
                self.refused_with(r"ltx\.safetensors", "2 tensors do not fit", f"video_aggregate_embed.*{words}",
                                  rf"expected \[32, {96 * (NUM_LAYERS + 1)}\]")


class Pairing(ProcessorStart):
    def test_a_checkpoint_of_another_gemma(self):
        self.make(model_version="2.5.0", gemma_version="gemma4-12b-ltx-v1")
        self.refused_with(r"ltx\.safetensors", "'gemma4-12b-ltx-v1'", "no gemma_version", "name that Gemma")

    def test_a_version_that_is_none(self):
        self.make(model_version="newest")
        self.refused_with(r"ltx\.safetensors", "model_version", "'newest'", r"2\.3\.0")

    def test_a_newer_checkpoint_that_does_not_say_which_is_warned_of(self):
        self.make(model_version="2.5.0")
        warnings = [line for line in self.encode()[1].splitlines() if "warn" in line]
        self.assertEqual(len(warnings), 1, warnings)
        for word in (str(self.checkpoint), "2.5.0", "nothing shows that it fits"):
            self.assertIn(word, warnings[0])


class Projections(ProcessorStart):
    def pack(self):
        """Makes of the projections' file what a packed text encoder is: other tensors around them, and other metadata."""
        file = SafetensorsFile(self.projections)
        tensors = {name: file[name] for name in file.entries}
        some = next(iter(tensors.values()))[:2]
        write_safetensors(self.projections, {"model.embed_tokens.weight": some, **tensors, "model.norm.weight": some[0]},
                          {"format": "pt", "gemma_config": json.dumps({"model_type": "gemma3"})})

    def test_in_a_file_of_their_own(self):
        for options in (SMALL, V1_SMALL):
            with self.subTest(**options):
                self.make(**options, seed=3)
                together = self.encode()[0]
                self.make(**options, seed=3, projections=self.projections)
                self.pack()
                check_same_bytes(self.encode(projections=self.projections)[0], together, "one rank")
                apart = self.encode(projections=self.projections, ranks=2, mode="sharded")[0]
                check_arrays(apart, together, LIMIT, "two ranks")

    def test_those_of_another_size_are_refused(self):
        self.make(hidden_size=64, projections=self.projections)
        self.refused_with(r"ltx\.safetensors with .*packed\.safetensors", "2 tensors", "aggregate_embed",
                          embeddings_processor=self.checkpoint, projections=self.projections)

    def test_a_missing_file(self):
        self.make()
        self.refused_with(r"packed\.safetensors", "No such file", embeddings_processor=self.checkpoint,
                          projections=self.projections)


class Settings(ProcessorStart):
    def refused_setting(self, *words, **settings):
        self.refused_with(*words, status=WRONG_SETTINGS, **settings)

    def test_projections_without_a_processor(self):
        self.refused_setting("key 'projections'", re.escape(str(V1)), "embeddings_processor", projections=V1)

    def test_a_preset_for_weights_of_files(self):
        for settings in ({}, {"embeddings_processor": V2}):
            self.refused_setting("key 'processor_preset'", "'ltx-2.3'", "random", "'files'", processor_preset="ltx-2.3",
                                 **settings)

    def test_a_preset_beside_a_file(self):
        self.refused_setting("key 'processor_preset'", "embeddings_processor", re.escape(str(V2)), weights="random",
                             processor_preset="ltx-2", embeddings_processor=V2)

    def test_an_unknown_preset(self):
        self.refused_setting("key 'processor_preset'", "'ltx-3'", "'none', 'ltx-2', 'ltx-2.3'", processor_preset="ltx-3")

    def test_a_preset_for_a_smaller_gemma(self):
        self.refused_with("video connector is 3840 wide", "96 wide", weights="random", processor_preset="ltx-2")


if __name__ == "__main__":
    unittest.main()
