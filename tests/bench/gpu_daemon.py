"""The daemon as the checks on GPUs start it: random weights in the sizes of Gemma 3 12B, and time enough to load."""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "scripts")]
from harness import Client, Daemon  # noqa: E402
from model_files import text_config, write_json  # noqa: E402
from processes import poll  # noqa: E402

START_S = 300.0   # 24 GB of weights are made, copied and their products measured
ANSWER_S = 300.0  # a switch moves a whole model
SEGMENT_MIB = 2048
LAYERS_12B = 48


def config_12b(layers: int = LAYERS_12B) -> dict:
    """config.json of the text model of Gemma 3 12B, with that many layers."""
    return text_config(vocab_size=262208, hidden_size=3840, intermediate_size=15360, num_hidden_layers=layers,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=256, query_pre_attn_scalar=256,
                       sliding_window=1024, max_position_embeddings=131072, rope_factor=8.0)


def states_bytes(config: dict) -> int:
    """Of all hidden states of one token, in bf16; of a config.json of Gemma 3, with or without vision."""
    text = config.get("text_config", config)
    return 2 * (text["num_hidden_layers"] + 1) * text["hidden_size"]


class ModelFolder(tempfile.TemporaryDirectory):
    """A folder with a config.json and nothing else: all that a model of random weights needs."""

    def __init__(self, config: dict):
        super().__init__(prefix="gemmad-model-")
        write_json(Path(self.name) / "config.json", config)


class GpuDaemon(Daemon):
    """A daemon that may take minutes to be ready. Where the cores suffice MPI is told nothing about oversubscribing."""

    def __init__(self, ranks: int, model, **settings):
        super().__init__(ranks, model, **{"segment_mib": SEGMENT_MIB, **settings})
        if ranks <= (os.cpu_count() or 1):
            self.command.remove("--oversubscribe")

    def wait_ready(self):
        poll(self.has_ended_or_answers, "the daemon answers", START_S)
        return super().wait_ready()

    def has_ended_or_answers(self) -> bool:
        if self.process.poll() is not None:
            return True
        try:
            # It may listen, and answer once its weights are there.
            with Client(self.socket, START_S) as client:
                return client.call("health")["ok"]
        except (FileNotFoundError, ConnectionError, EOFError):
            return False


def settings_of(words: list[str]) -> dict[str, str]:
    """Settings of the daemon from KEY=VALUE words."""
    return dict(word.split("=", 1) for word in words)


def setting(word: str) -> str:
    """For argparse: KEY=VALUE as it is."""
    if "=" not in word:
        raise ValueError(word)
    return word
