"""A pipeline of layers computes several runs of prompts at the same time, and says how much."""

import unittest

from harness import BOS, TINY
from modes import LAYER, TENSOR, ModeTestCase

# Stages of half the model each. Four equal runs take 5 steps and not 8, so that 8 / 5 stages are busy on average; one
# run keeps one stage busy at a time. A loaded machine takes from both.
OVERLAP, NO_OVERLAP = 1.3, 1.1
PROMPT = {"input_ids": [BOS] + [9] * 1023}
ROUNDS = 4


class Pipeline(ModeTestCase):
    DAEMON = {"ranks": 2, "model": TINY, "compute_threads": 1, "result_ttl_ms": 100, **LAYER}

    def busy_ranks(self, num_prompts, **fields):
        """How many ranks were busy on average, in each of some tries."""
        tries = []
        for _ in range(ROUNDS):
            reply = self.connect().call("encode", prompts=[PROMPT] * num_prompts, layers=[8], **fields)
            self.assertTrue(reply["ok"], reply)
            tries.append(reply["ms"]["busy"] / reply["ms"]["compute"])
        return tries

    def test_several_prompts_overlap_and_one_does_not(self):
        self.switch(**LAYER)
        one, four = self.busy_ranks(1), self.busy_ranks(4)
        print("busy ranks: one prompt", [f"{ratio:.2f}" for ratio in one], "four", [f"{ratio:.2f}" for ratio in four])
        self.assertLessEqual(min(one), NO_OVERLAP)
        self.assertGreater(max(four), OVERLAP)
        self.assertLess(max(one + four), 2.05, "of two ranks")

    def test_metrics_add_the_time_up(self):
        for settings in (LAYER, TENSOR):
            self.switch(**settings)
            before = self.seconds()
            reply = self.connect().call("encode", prompts=[PROMPT] * 2, layers=[8])
            after = self.seconds()
            for part in ("busy", "compute", "deliver"):
                self.assertAlmostEqual(after[part] - before[part], reply["ms"][part] / 1000, delta=2e-6)

    def seconds(self):
        return {part: self.daemon.metric(f"gemmad_{part}_seconds_total") for part in ("busy", "compute", "deliver")}


if __name__ == "__main__":
    unittest.main()
