"""LTX-2 checkpoints that fit the tiny Gemma, requests for what a daemon makes of them, and what that must be."""

import random

from arrays import array_of, check_array
from harness import NUM_LAYERS, TESTS
from ltx_reference import process
from modes import random_prompt

LTX_TINY = TESTS / "data" / "ltx-tiny"
V1, V1_INTERLEAVED, V2, V2_NO_FF_BIAS = (LTX_TINY / f"{name}.safetensors" for name in (
    "ltx-v1", "ltx-v1-interleaved", "ltx-v2", "ltx-v2-no-ff-bias"))
ROWS = 1024  # of embeddings
MODALITIES = ("video", "audio")
PROCESSED = ("features", "embeddings")
EVERYTHING = {"outputs": ["hidden_states", *PROCESSED]}
# Relative L2 of a tensor and of a row, fp32 against float64 from the same hidden states.
LIMIT, ROW_LIMIT = 2e-6, 5e-6
SEED = 20261203


def random_prompts(*lengths, seed=SEED):
    generator = random.Random(seed)
    return [random_prompt(generator, length) for length in lengths]


def names(*outputs, modalities=MODALITIES, prompts=(0,)):
    """Of the tensors that these outputs make of prompts, sorted."""
    return sorted(f"prompt.{prompt}.{output}.{modality}" for prompt in prompts for output in outputs for modality in modalities)


def check_same_bytes(tensors, expected, what):
    """Says which tensors differ, where a comparison of dictionaries would print their bytes."""
    wrong = [name for name in tensors.keys() | expected.keys() if tensors.get(name) != expected.get(name)]
    if wrong:
        raise AssertionError(f"{what}: {len(wrong)} tensors are missing, too many or have other bytes: {sorted(wrong)[:5]}")


def check_processed(tensors, prompt, checkpoint, projections=None, limit=LIMIT, row_limit=ROW_LIMIT):
    """A prompt's features and embeddings against the formulas in float64, on the daemon's own hidden states, all of them.

    Returns the largest error of a tensor and of a row.
    """
    states = [array_of(tensors[f"prompt.{prompt}.hidden_states.{state}"]) for state in range(NUM_LAYERS + 1)]
    expected = process(checkpoint, states, ROWS, projections)
    errors = []
    for modality in MODALITIES:
        for output in PROCESSED:
            name = f"prompt.{prompt}.{output}.{modality}"
            errors.append(check_array(tensors[name], expected[f"{modality}_{output}"], limit, name, row_limit))
    return tuple(max(kind) for kind in zip(*errors))
