"""What holds features and embeddings on GPUs to LTX-2's error: its own two computations, and what it lets pass.

Needs torch and safetensors, and is skipped loudly without.
"""

import contextlib
import importlib.util
import io
import math
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "e2e")]
MISSING = [name for name in ("numpy", "torch", "safetensors") if importlib.util.find_spec(name) is None]
if MISSING:
    print(f"SKIPPED: {sys.executable} has no {', '.join(MISSING)}", file=sys.stderr)
else:
    import numpy
    import torch
    from ltx_reference import process
    from processor_accuracy import (F32_LIMIT, LIMIT, OUTPUTS, SCALES, Processor, Version, compute, judge,
                                    make_checkpoint)
    from safetensors.torch import load_file

    DATA = TESTS / "data" / "ltx-tiny"
    # Tiny checkpoints, and the errors of LTX-2 itself in bf16 (features: of its roundings emulated), in the order of
    # OUTPUTS.
    GOLDENS = {
        "ltx-v1": (Version("ltx-v1", False, (3, 32, 2), (3, 32, 2)), (2.74e-3, 2.74e-3, 5.64e-3, 5.35e-3)),
        "ltx-v2": (Version("ltx-v2", True, (4, 32, 3), (2, 32, 2)), (3.39e-3, 3.43e-3, 6.16e-3, 5.45e-3)),
        "ltx-v2-no-ff-bias": (Version("ltx-v2", True, (4, 32, 3), (2, 32, 2)), (3.44e-3, 3.44e-3, 6.39e-3, 6.25e-3)),
    }
    GOLDEN_ROWS = 128


def relative(found, expected):
    return (torch.linalg.norm(found - expected) / torch.linalg.norm(expected)).item()


@unittest.skipIf(MISSING, "torch or safetensors is not installed")
class Computations(unittest.TestCase):
    def of_golden(self, name, dtype):
        """For each of OUTPUTS, what is computed and the golden, over all prompts."""
        version, _ = GOLDENS[name]
        golden = load_file(DATA / f"{name}.golden.safetensors")
        processor = Processor(version, load_file(DATA / f"{name}.safetensors"), dtype, GOLDEN_ROWS)
        found, expected = [], []
        for prompt, mask in enumerate(golden["attention_mask"] == 1):
            found.append(processor.outputs([golden[f"hidden_states.{index}"][prompt][mask] for index in range(9)]))
            expected.append([golden[f"{modality}_features"][prompt][mask] for modality in ("video", "audio")] +
                            [golden[f"{modality}_encoding"][prompt] for modality in ("video", "audio")])
        return [(torch.cat(one).double(), torch.cat(other).double())
                for one, other in zip(zip(*found), zip(*expected))]

    def test_float64_gives_the_numbers_of_ltx(self):
        for name in GOLDENS:
            for output, (found, expected) in zip(OUTPUTS, self.of_golden(name, torch.float64)):
                with self.subTest(name=name, output=output):
                    self.assertLess(relative(found, expected), 3e-8)

    def test_bf16_has_the_error_of_ltx(self):
        for name, (_, errors) in GOLDENS.items():
            for output, error, pair in zip(OUTPUTS, errors, self.of_golden(name, torch.bfloat16)):
                with self.subTest(name=name, output=output):
                    self.assertLess(abs(relative(*pair) / error - 1), 0.05)

    def test_float64_gives_what_the_formulas_in_numpy_give_for_checkpoints_made_here(self):
        config, versions = SCALES["tiny"]
        num_states = config()["num_hidden_layers"] + 1
        for version in versions:
            with self.subTest(version=version.name), tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "ltx.safetensors"
                make_checkpoint(file, version, config()["hidden_size"], num_states, 1, "cpu")
                generator = torch.Generator().manual_seed(2)
                states = [torch.randn(37, config()["hidden_size"], generator=generator).bfloat16()
                          for _ in range(num_states)]
                (found,) = compute(version, load_file(file), torch.float64, [states], "cpu")
                expected = process(file, [state.double().numpy() for state in states])
                for output, tensor in zip(OUTPUTS, found):
                    kind, modality = output.split(".")
                    self.assertLess(relative(tensor, torch.from_numpy(expected[f"{modality}_{kind}"])), 1e-12)
                    self.assertTrue(0.1 < numpy.abs(tensor.numpy()).mean() < 10)


@unittest.skipIf(MISSING, "torch or safetensors is not installed")
class Judging(unittest.TestCase):
    """Two prompts, of which the reference is off by some noise."""

    def setUp(self):
        generator = torch.Generator().manual_seed(3)

        def normal(rows):
            return torch.randn(rows, 64, generator=generator, dtype=torch.float64)

        self.expected = [[normal(rows) for _ in OUTPUTS] for rows in (3, 1000)]
        noise = [[3e-3 * normal(rows) for _ in OUTPUTS] for rows in (3, 1000)]
        self.reference = self.off_by(noise, 1)
        self.found = self.off_by(noise, -1)
        self.noise = noise

    def off_by(self, noise, factor):
        return [[tensor + factor * other for tensor, other in zip(*prompt)] for prompt in zip(self.expected, noise)]

    def judge(self, found):
        with contextlib.redirect_stdout(io.StringIO()):
            return judge(found, self.reference, self.expected)

    def test_an_error_as_large_as_the_measure_passes(self):
        verdict = self.judge(self.found)
        self.assertTrue(verdict.passed)
        self.assertAlmostEqual(verdict.fields["worst_ratio"], 1)
        self.assertIn("worst ratio 1.000 in ", verdict.summary)

    def test_a_larger_one_does_not(self):
        self.assertTrue(self.judge(self.off_by(self.noise, LIMIT - 0.01)).passed)
        self.assertFalse(self.judge(self.off_by(self.noise, LIMIT + 0.01)).passed)

    def test_zeros_of_any_output_do_not_pass(self):
        for index, output in enumerate(OUTPUTS):
            with self.subTest(output=output):
                found = self.off_by(self.noise, -1)
                found[1][index] = torch.zeros_like(found[1][index])
                verdict = self.judge(found)
                self.assertFalse(verdict.passed)
                self.assertIn(output, verdict.summary)

    def test_a_row_from_elsewhere_does_not_pass(self):
        self.found[0][1][[0, 1]] = self.found[0][1][[1, 0]]
        self.assertFalse(self.judge(self.found).passed)

    def test_one_bad_row_among_many_does_not_pass(self):
        self.found[1][3][7] = self.expected[1][3][7] * 1.03
        verdict = self.judge(self.found)
        self.assertFalse(verdict.passed)
        self.assertLess(verdict.fields["worst_ratio"], LIMIT)

    def test_what_is_not_finite_does_not_pass(self):
        for value in (math.nan, math.inf):
            with self.subTest(value=value):
                self.found[1][2][3, 4] = value
                verdict = self.judge(self.found)
                self.assertFalse(verdict.passed)
                self.assertTrue(verdict.summary.startswith("NaN or infinity, worst ratio inf"))

    def test_another_number_of_rows_or_prompts_is_an_error(self):
        self.found[1][0] = self.found[1][0][:-1]
        with self.assertRaises(AssertionError):
            self.judge(self.found)
        with self.assertRaises(ValueError):
            self.judge(self.found[:1])

    def test_fp32_is_held_to_its_own_limit(self):
        exact = [[tensor.float() for tensor in prompt] for prompt in self.expected]
        self.assertTrue(self.judge(exact).passed)
        off = [[(tensor * (1 + 2 * F32_LIMIT)).float() for tensor in prompt] for prompt in self.expected]
        self.assertFalse(self.judge(off).passed)


if __name__ == "__main__":
    unittest.main()
