"""A pipeline of paper with LTX-2's prompt encoder: touches of a builder, and of what it builds, all that LTX-2 touches."""

import contextlib
import enum

import torch


class OffloadMode(enum.Enum):
    NONE = "none"
    CPU = "cpu"


class OwnBuilder:
    """The pipeline's own, which nobody should call any more."""

    def build(self, **_):
        raise AssertionError("the pipeline builds its own model")


class OwnProcessor:
    """An embeddings processor that notes what it is given."""

    def __init__(self):
        self.given = []

    def build(self, *, device, dtype):
        self.device, self.dtype = device, dtype
        return self

    def eval(self):
        return self

    def process_hidden_states(self, hidden_states, mask):
        self.given.append((hidden_states, mask))
        return torch.stack([state.sum() for state in hidden_states])

    def dispose(self):
        pass


class PromptEncoder:
    def __init__(self, device="cpu", offload_mode=OffloadMode.NONE, separate_enhancer=False, model_type="gemma3"):
        self._text_encoder_path, self._embeddings_paths = "gemma", ("transformer", "gemma")
        self._dtype, self._device, self._offload_mode = torch.bfloat16, torch.device(device), offload_mode
        self._alloc_trim_strategy, self._prompt_enhancer_gemma_root, self._registry = None, None, None
        self._encode_model_type = model_type
        self._text_encoder_builder = OwnBuilder()
        self._streaming_text_encoder_builder = None
        self._enhancer_text_encoder_builder = OwnBuilder() if separate_enhancer else self._text_encoder_builder
        self._embeddings_processor_builder = OwnProcessor()

    @contextlib.contextmanager
    def _built(self, builder):
        model = builder.build(device=self._device, dtype=self._dtype).eval()
        try:
            yield model
        finally:
            model.dispose()

    @torch.inference_mode()
    def __call__(self, prompts, *, enhance_first_prompt=False, enhance_prompt_image=None, enhance_prompt_seed=42,
                 enhance_static_cache=False):
        prompts = list(prompts)
        options = {"seed": enhance_prompt_seed, "static_cache": enhance_static_cache}
        shared = self._enhancer_text_encoder_builder is self._text_encoder_builder
        if enhance_first_prompt and not shared:
            with self._built(self._enhancer_text_encoder_builder) as enhancer:
                prompts[0] = self._enhance(enhancer, prompts[0], enhance_prompt_image, options)
        with self._built(self._text_encoder_builder) as encoder:
            if enhance_first_prompt and shared:
                prompts[0] = self._enhance(encoder, prompts[0], enhance_prompt_image, options)
            encoded = encoder.encode(prompts)
        with self._built(self._embeddings_processor_builder) as processor:
            return [processor.process_hidden_states(hidden_states, mask) for hidden_states, mask in encoded]

    @staticmethod
    def _enhance(encoder, prompt, image, options):
        return encoder.enhance_t2v(prompt, **options) if image is None else encoder.enhance_i2v(prompt, image, **options)


class Pipeline:
    def __init__(self, **options):
        self.prompt_encoder = PromptEncoder(**options)
