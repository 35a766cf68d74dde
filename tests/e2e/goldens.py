"""What the hidden states must be: goldens made in float64 by another implementation, beside the models."""

import json

from harness import NUM_LAYERS, TINY, WIDTH
from tensors import f32, read_safetensors

LIMIT = 2e-5  # relative L2, fp32 against float64
TEXT_GOLDEN, TEXT_METADATA = read_safetensors(TINY / "golden-text.safetensors")
PROMPTS = json.loads(TEXT_METADATA["prompts"])
STATES = [f"hidden_states.{layer}" for layer in range(NUM_LAYERS + 1)]


# These goldens count positions from the left of 64, the daemon from the left of 1024. Only differences of positions
# matter, but angles are rounded to fp32 as the reference does: by half an ulp, 2^-15 at angles near 1000. A row may
# then be off by about one such angle; a prompt as a whole still holds LIMIT.
PADDED_ROW_LIMIT = 2 * 2**-15


def padded_golden(folder):
    """Ids of each row of a left-padded golden, and its hidden states of real tokens under names of an encode."""
    golden, _ = read_safetensors(folder / "golden.safetensors")
    width = golden["input_ids"].shape[1]
    counts = [sum(mask) for mask in golden["attention_mask"].rows()]
    ids = [list(row[width - count:]) for row, count in zip(golden["input_ids"].rows(), counts)]
    expected = {}
    for state in STATES:
        rows = golden[state].rows()
        for prompt, count in enumerate(counts):
            real = rows[prompt * width + width - count:(prompt + 1) * width]
            expected[f"prompt.{prompt}.{state}"] = f32([count, WIDTH], [value for row in real for value in row])
    return ids, expected
