"""gemmad in LTX-2's and diffusers' pipelines, from Python. Needs torch, and is skipped loudly without."""

import logging
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from fake_gemmad import FakeDaemon
from harness import LTX_V2, DaemonTestCase, run_program
from python_package import HAS_TORCH, SOURCES, environment, needs_torch

from gemmad_client import Client, Reader, RequestFailed

if HAS_TORCH:
    import torch

    import fake_ltx
    from gemmad_client import device_copies
    from gemmad_client.diffusers import FinishedEmbeddings, HiddenStates
    from gemmad_client.ltx import (EnhanceUnavailable, FleetError, GemmadEmbeddingsBuilder, install)

PROMPTS = ["a dog runs over the green hill", "", "ein Hund läuft 犬が走る"]

# One rank of two, under torch.distributed: prints what it got.
RANK = """
import hashlib, sys
import torch, torch.distributed as distributed
import fake_ltx
from gemmad_client.ltx import install
rank, store, control = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
pipeline = fake_ltx.Pipeline()
install(pipeline, control, wait_s=10, level="hidden_states")
pipeline.prompt_encoder(["a dog", "a cat"])
((first, mask), _) = pipeline.prompt_encoder._embeddings_processor_builder.given
digest = hashlib.sha256(b"".join(state.view(torch.uint8).numpy().tobytes() for state in first)).hexdigest()
errors = []
for call in (lambda: pipeline.prompt_encoder(["a"], enhance_first_prompt=True), lambda: pipeline.prompt_encoder(["a"] * 9)):
    try:
        call()
        errors.append("none")
    except ValueError as error:
        errors.append(f"{type(error).__name__}: {error}")
print(digest, int(mask.sum()), *errors, sep="|")
distributed.destroy_process_group()
"""


@needs_torch
class HiddenStatesForLtx(DaemonTestCase):
    DAEMON = {"ranks": 2, "max_prompts": 8}

    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def install(self, pipeline, **options):
        builder = install(pipeline, self.daemon.socket, **{"level": "hidden_states", **options})
        self.addCleanup(builder._encoder.close)
        return builder

    def expected(self, prompts):
        """The hidden states of each prompt, real tokens only."""
        with Client(self.daemon.socket) as client, Reader(self.daemon.reader_socket()) as reader, \
                reader.acquire(client.encode(prompts).job) as lease:
            return [[torch.from_numpy(prompt[f"hidden_states.{layer}"].to_float32()) for layer in range(9)]
                    for prompt in lease.prompts]

    def test_the_pipeline_gets_what_its_own_gemma_would_give(self):
        pipeline = fake_ltx.Pipeline()
        own = pipeline.prompt_encoder._embeddings_processor_builder
        self.install(pipeline)
        results = pipeline.prompt_encoder(PROMPTS)
        self.assertEqual(len(results), 3)
        for (states, mask), expected in zip(own.given, self.expected(PROMPTS)):
            num_tokens = expected[0].shape[0]
            self.assertEqual((mask.shape, mask.dtype), ((1, 1024), torch.int64))
            self.assertEqual(mask[0].tolist(), [0] * (1024 - num_tokens) + [1] * num_tokens)
            self.assertEqual(len(states), 9)
            for state, real in zip(states, expected):
                self.assertEqual((state.shape, state.dtype, state.is_contiguous()), ((1, 1024, 96), torch.bfloat16, True))
                self.assertTrue(torch.equal(state[0, 1024 - num_tokens:], real.to(torch.bfloat16)))
                self.assertEqual(state[0, :1024 - num_tokens].count_nonzero(), 0)

    def test_nothing_is_asked_for_no_prompts(self):
        pipeline = fake_ltx.Pipeline()
        self.install(pipeline)
        self.assertEqual(pipeline.prompt_encoder([]), [])

    def test_the_builder_has_what_ltx_looks_for(self):
        builder = self.install(fake_ltx.Pipeline())
        self.assertEqual(builder.model_config()["model_type"], "gemma3")
        self.assertEqual(builder.model_metadata()["config"], builder.model_config())
        other = builder.with_registry("registry")
        self.assertEqual((other.registry, builder.registry), ("registry", None))
        encoder = other.build(device=torch.device("cpu"), dtype=torch.float32)
        self.assertIs(encoder.eval(), encoder)
        ((states, _),) = encoder.encode(["a"])
        self.assertEqual(states[0].dtype, torch.float32)
        encoder.teardown()
        encoder.dispose()

    def test_an_enhancer_that_was_the_encoder_stays_it(self):
        pipeline = fake_ltx.Pipeline()
        builder = self.install(pipeline)
        self.assertIs(pipeline.prompt_encoder._text_encoder_builder, builder)
        self.assertIs(pipeline.prompt_encoder._enhancer_text_encoder_builder, builder)

    def test_an_enhancer_of_its_own_is_kept_or_replaced(self):
        pipeline = fake_ltx.Pipeline(separate_enhancer=True)
        own = pipeline.prompt_encoder._enhancer_text_encoder_builder
        self.install(pipeline)
        self.assertIs(pipeline.prompt_encoder._enhancer_text_encoder_builder, own)
        pipeline = fake_ltx.Pipeline(separate_enhancer=True)
        enhancer = self.install(fake_ltx.Pipeline())
        self.install(pipeline, enhancer=enhancer)
        self.assertIs(pipeline.prompt_encoder._enhancer_text_encoder_builder, enhancer)
        self.assertIsNot(pipeline.prompt_encoder._text_encoder_builder, enhancer)

    def test_what_cannot_work_is_refused_and_changes_nothing(self):
        for pipeline, options in ((fake_ltx.Pipeline(offload_mode=fake_ltx.OffloadMode.CPU), {}),
                                  (fake_ltx.Pipeline(model_type="gemma4_unified"), {}),
                                  (fake_ltx.Pipeline(), {"level": "dances"})):
            own = pipeline.prompt_encoder._text_encoder_builder
            with self.assertRaises(FleetError):
                self.install(pipeline, **options)
            self.assertIs(pipeline.prompt_encoder._text_encoder_builder, own)

    def test_a_daemon_that_cannot_enhance_says_so(self):
        with Client(self.daemon.socket) as client, self.assertRaises(RequestFailed) as raised:
            client.enhance_t2v("")
        if raised.exception.code != "no_enhancer":
            self.skipTest("this daemon can")
        pipeline = fake_ltx.Pipeline()
        self.install(pipeline)
        for image in (None, torch.zeros(8, 8, 3, dtype=torch.uint8)):
            with self.assertRaises(EnhanceUnavailable) as raised:
                pipeline.prompt_encoder(["a dog"], enhance_first_prompt=True, enhance_prompt_image=image)
            self.assertIsInstance(raised.exception, (ValueError, NotImplementedError))

    def test_two_ranks_of_torch_distributed_agree(self):
        store = str(self.daemon.folder / "store")
        processes = [subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), store, self.daemon.socket], stdout=subprocess.PIPE, text=True,
            cwd=__file__.rsplit("/", 1)[0], env=environment(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2"))
            for rank in (0, 1)]
        lines = [process.communicate(timeout=120)[0].strip() for process in processes]
        self.assertEqual(lines[0], lines[1])
        digest, num_tokens, enhanced, refused = lines[0].split("|")
        self.assertEqual((len(digest), num_tokens), (64, str(self.expected(["a dog"])[0][0].shape[0])))
        self.assertTrue(refused.startswith("FleetError"), refused)

    def test_diffusers_gets_its_layout(self):
        states = HiddenStates(self.daemon.socket)
        self.addCleanup(states._encoder.close)
        embeds, mask = states.encode(PROMPTS[:2], "cpu", torch.float32)
        self.assertEqual((embeds.shape, mask.shape, mask.dtype), ((2, 1024, 96 * 9), (2, 1024), torch.int64))
        for row, real, expected in zip(embeds, mask, self.expected(PROMPTS[:2])):
            num_tokens = expected[0].shape[0]
            self.assertEqual(real.sum(), num_tokens)
            for channel, layer in ((0, 0), (3, 5), (95, 8)):
                self.assertTrue(torch.equal(row[1024 - num_tokens:, channel * 9 + layer], expected[layer][:, channel]))
            self.assertEqual(row[:1024 - num_tokens].count_nonzero(), 0)


@needs_torch
class EmbeddingsOfTheDaemon(DaemonTestCase):
    DAEMON = {"ranks": 2, "embeddings_processor": LTX_V2}

    def test_the_pipeline_gets_what_the_daemon_makes(self):
        pipeline = fake_ltx.Pipeline()
        builder = install(pipeline, self.daemon.socket)
        self.addCleanup(builder._encoder.close)
        self.assertEqual(builder.level, "embeddings")
        with self.daemon.client() as client:
            reply = client.call("encode", prompts=PROMPTS, outputs=["embeddings"])
        with self.daemon.reader() as reader:
            expected = reader.take(reply["job"])
        for number, result in enumerate(pipeline.prompt_encoder(PROMPTS)):
            for kind, found in (("video", result.video_encoding), ("audio", result.audio_encoding)):
                tensor = expected[f"prompt.{number}.embeddings.{kind}"]
                values = torch.frombuffer(bytearray(tensor.data), dtype=torch.float32).reshape(1, *tensor.shape)
                self.assertTrue(torch.equal(found.float(), values.to(found.dtype).float()))
            self.assertEqual(result.attention_mask.sum(), 1024)


@needs_torch
class EmbeddingsForLtx(unittest.TestCase):
    """Against a daemon of paper, which gives bfloat16 as one on a GPU does."""

    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        self.video = torch.randn(1024, 64, generator=generator).to(torch.bfloat16)
        self.audio = torch.randn(1024, 32, generator=generator).to(torch.bfloat16)
        tensors = {f"embeddings.{kind}": ("BF16", values.shape, values.view(torch.uint8).numpy().tobytes())
                   for kind, values in (("video", self.video), ("audio", self.audio))}
        self.fake = FakeDaemon(tensors, ["hidden_states", "last_hidden_state", "features", "embeddings"], 7)
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)

    def test_the_pipeline_gets_finished_embeddings(self):
        pipeline = fake_ltx.Pipeline(model_type="gemma4_unified")
        builder = install(pipeline, self.fake.socket)
        self.addCleanup(builder._encoder.close)
        self.assertEqual(builder.level, "embeddings")
        self.assertIsInstance(pipeline.prompt_encoder._embeddings_processor_builder, GemmadEmbeddingsBuilder)
        results = pipeline.prompt_encoder(["a dog", "a cat"])
        self.assertEqual(self.fake.encodes[0]["outputs"], ["embeddings"])
        self.assertEqual(len(results), 2)
        for result in results:
            video, audio, mask = result
            self.assertIs(result.video_encoding, video)
            self.assertEqual((video.shape, audio.shape), ((1, 1024, 64), (1, 1024, 32)))
            self.assertTrue(video.is_contiguous() and audio.is_contiguous())
            self.assertTrue(torch.equal(video[0], self.video) and torch.equal(audio[0], self.audio))
            self.assertEqual((mask.shape, mask.dtype, int(mask.sum())), ((1, 1024), torch.int64, 1024))

    def test_diffusers_connectors_are_replaced(self):
        finished = FinishedEmbeddings(self.fake.socket)
        self.addCleanup(finished._encoder.close)
        with self.assertRaises(ValueError):
            finished(torch.zeros(1, 1024, 96), torch.ones(1, 1024))
        embeds, mask = finished.encode(["a dog"], "cpu")
        negative, negative_mask = finished.encode([""], "cpu")
        self.assertEqual((embeds.shape, embeds.dtype, mask.shape), ((1, 1024, 96), torch.bfloat16, (1, 1024)))
        video, audio, ones = finished(torch.cat([negative, embeds]), torch.cat([negative_mask, mask]), padding_side="left")
        self.assertTrue(torch.equal(video[1], self.video) and torch.equal(audio[0], self.audio))
        self.assertTrue(video.is_contiguous() and audio.is_contiguous() and bool(ones.all()))

    def test_the_example_swaps(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "ltx_pipelines"
            package.mkdir()
            (package / "distilled.py").write_text(
                "import fake_ltx\nDistilledPipeline = lambda name: fake_ltx.Pipeline(model_type=name)\n")
            done = run_program(sys.executable, SOURCES.parent / "examples" / "ltx_swap.py", "--socket", self.fake.socket,
                               "--prompt", "a dog", "name=gemma4_unified",
                               env=environment(PYTHONPATH=f"{SOURCES}:{folder}:{Path(__file__).parent}"))
        self.assertEqual(done.stdout, "level embeddings: video (1, 1024, 64), audio (1, 1024, 32)\n", done.stderr)

    def test_an_enhanced_prompt_is_what_is_encoded(self):
        pipeline = fake_ltx.Pipeline(model_type="gemma4_unified")
        self.addCleanup(install(pipeline, self.fake.socket)._encoder.close)
        pipeline.prompt_encoder(["a dog"], enhance_first_prompt=True)
        self.assertEqual(self.fake.encodes[0]["prompts"], ["a better dog"])
        # LTX-2 cleans the text itself.
        sent = self.fake.enhances[0]
        self.assertEqual((sent["op"], sent["prompt"], sent["seed"], sent["clean"]), ("enhance_t2v", "a dog", 42, False))
        image = torch.arange(24, dtype=torch.uint8).reshape(2, 4, 3)
        pipeline.prompt_encoder(["a dog"], enhance_first_prompt=True, enhance_prompt_image=image)
        self.assertEqual(self.fake.enhances[1]["image"]["shape"], [2, 4, 3])

    def test_the_system_prompts_are_those_of_the_installed_ltx(self):
        encoder = self.build_encoder()
        encoder.enhance_t2v("a dog")
        self.assertNotIn("system_prompt", self.fake.enhances[0])
        with tempfile.TemporaryDirectory() as folder:
            prompts = Path(folder) / "ltx_core" / "text_encoders" / "gemma" / "encoders" / "prompts"
            prompts.mkdir(parents=True)
            (Path(folder) / "ltx_core" / "__init__.py").touch()
            for kind in ("t2v", "i2v"):
                (prompts / f"gemma3_{kind}_system_prompt.txt").write_text(f"Be vivid ({kind}).\n")
            sys.path.insert(0, folder)
            self.addCleanup(sys.modules.pop, "ltx_core", None)
            self.addCleanup(sys.path.remove, folder)
            encoder.enhance_t2v("a dog")
            encoder.enhance_i2v("a dog", torch.zeros(2, 4, 3, dtype=torch.uint8))
            encoder.enhance_t2v("a dog", system_prompt="Be short.")
        self.assertEqual([sent["system_prompt"] for sent in self.fake.enhances[1:]],
                         ["Be vivid (t2v).\n", "Be vivid (i2v).\n", "Be short."])

    def build_encoder(self):
        builder = install(fake_ltx.Pipeline(model_type="gemma4_unified"), self.fake.socket)
        self.addCleanup(builder._encoder.close)
        return builder.build()

    def test_an_enhanced_prompt_may_have_other_limits(self):
        encoder = self.build_encoder()
        text = encoder.enhance_t2v("a dog", max_new_tokens=9, system_prompt="Be short.", seed=3, static_cache=True)
        self.assertEqual((text, type(text)), ("a better dog", str))
        sent = self.fake.enhances[0]
        self.assertEqual((sent["max_new_tokens"], sent["system_prompt"], sent["seed"]), (9, "Be short.", 3))
        self.assertEqual(sent["deadline_ms"], 120000)
        with self.assertRaises(FleetError):
            encoder.enhance_i2v("a dog", torch.zeros(2, 4))

    def test_tensors_of_torch_are_views_and_copies(self):
        with Reader(self.fake.reader_socket) as reader, reader.acquire(1) as lease:
            tensor = lease.prompts[0]["embeddings.video"]
            view, copy = tensor.tensor(), tensor.to("cpu", torch.float32)
            self.assertEqual(view.data_ptr(), tensor.numpy().ctypes.data)
            self.assertTrue(torch.equal(view, self.video))
            self.assertTrue(torch.equal(copy, torch.from_numpy(tensor.to_float32())))
            lease.release()
            self.assertFalse(lease.ended)
            del view
            self.assertTrue(lease.ended)
            self.assertTrue(torch.equal(copy, self.video.float()))


@unittest.skipUnless(HAS_TORCH and torch.cuda.is_available(), "there is no GPU for torch")
class OnGpu(unittest.TestCase):
    def setUp(self):
        self.values = torch.randn(1024, 4096, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
        tensors = {"x": ("BF16", self.values.shape, self.values.view(torch.uint8).numpy().tobytes())}
        self.fake = FakeDaemon(tensors, ["hidden_states"], 1024)
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)

    def check_copies(self):
        with Reader(self.fake.reader_socket) as reader, reader.acquire(1) as lease:
            x = lease.prompts[0]["x"]
            whole = torch.zeros(2, 1024, 4096, dtype=torch.float32, device="cuda")
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            copies = [x.to("cuda", non_blocking=True), x.to("cuda")]
            with torch.cuda.stream(stream):
                x.copy_to(whole[1], non_blocking=True)
            is_pinned = x.tensor().is_pinned()
            lease.release()
            self.assertTrue(lease.ended)
            for copy in copies:
                self.assertTrue(torch.equal(copy.cpu(), self.values))
            self.assertTrue(torch.equal(whole[1].cpu(), self.values.float()))
            return is_pinned

    def test_copies_from_the_pinned_segment(self):
        for _ in range(3):  # each reader has a mapping of its own, which must be given up again
            self.assertTrue(self.check_copies())

    def test_copies_where_the_segment_cannot_be_pinned(self):
        flags, device_copies._REGISTER_READ_ONLY = device_copies._REGISTER_READ_ONLY, 0x100
        self.addCleanup(setattr, device_copies, "_REGISTER_READ_ONLY", flags)
        self.assertFalse(self.check_copies())
        self.assertEqual(int((torch.ones(8, device="cuda") * 2).sum()), 16)


if __name__ == "__main__":
    unittest.main()
