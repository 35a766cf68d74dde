"""Every mode, over any number of ranks, gives what one rank gives: on every rank, and the same bytes every time."""

import functools
import json
import os
import random
import unittest
from pathlib import Path

from harness import TEXT_TINY, TINY
from modes import ADAPTIVE, TENSOR, WAYS, ModeTestCase, check_same, hybrids, one_rank_results, random_prompt

SEED = 20260711
LENGTHS = [1, 200, 37, 2, 113, 64, 5, 90]
REAL_LENGTHS = [1, 23, 9, 3, 17]
REAL = Path(os.environ.get("GEMMAD_TEST_MODEL") or Path.home() / ".cache" / "gemmad" / "models" / "gemma-3-270m")
# Small, so that several ranks of a real model fit.
REAL_SETTINGS = {"batch_tokens": 1024, "segment_mib": 16, "compute_threads": 1}


def request_of(lengths, vocabulary):
    generator = random.Random(SEED)
    return {"prompts": [random_prompt(generator, length, vocabulary) for length in lengths],
            "outputs": ["hidden_states", "last_hidden_state"]}


@functools.cache
def text_config(model):
    config = json.loads((model / "config.json").read_text())
    return config.get("text_config", config)


@functools.cache
def request(model):
    return request_of(REAL_LENGTHS if model == REAL else LENGTHS, text_config(model)["vocab_size"])


@functools.cache
def expected(model):
    return one_rank_results(model, [request(model)], **(REAL_SETTINGS if model == REAL else {}))[0]


def is_whole(ranges, size):
    """Whether ranges follow on each other from 0 to `size`, empty ones left out."""
    bounds = [0]
    for begin, end in ranges:
        if begin != end:
            if begin != bounds[-1]:
                return False
            bounds.append(end)
    return bounds[-1] == size


class EveryWay:
    """For a daemon of any size: goes from mode to mode."""

    def setUp(self):
        self.model = self.DAEMON["model"]
        self.ranks = self.DAEMON["ranks"]

    def ways(self):
        return sum((hybrids(size) for size in (2, 4) if size < self.ranks and self.ranks % size == 0), WAYS)

    def replica_size(self, way, cut):
        if way.settings["mode"] == "sharded":
            return way.settings.get("ranks_per_replica", self.ranks)
        return self.ranks if cut == "split" else 1

    def check_shards(self, way):
        """The ranks of each replica hold all of the model, and as much of it as the mode says."""
        config = text_config(self.model)
        whole = {"layers": config["num_hidden_layers"], "heads": config["num_attention_heads"],
                 "ffn_columns": config["intermediate_size"]}
        cut = {"tensor": {"heads", "ffn_columns"}, "layer": {"layers"}}[way.settings.get("strategy", "tensor")]
        size = self.replica_size(way, "deal")
        shards = [rank["shard"] for rank in self.info()["ranks"]]
        for first in range(0, self.ranks, size):
            replica = shards[first:first + size]
            for part, extent in whole.items():
                ranges = [shard[part] for shard in replica]
                if part in cut:
                    self.assertTrue(is_whole(ranges, extent), (part, replica))
                else:
                    self.assertEqual(ranges, [[0, extent]] * size, part)

    def computed_tokens(self):
        return [rank["tokens"] for rank in self.daemon.health()["ranks"]]

    def check(self, way):
        reply = self.switch(**way.settings)
        self.assertEqual(reply["mode"], way.settings["mode"])
        self.check_shards(way)
        before = self.computed_tokens()
        reply, tensors = self.encode(request(self.model), **way.fields())
        error = check_same(tensors, expected(self.model), way.name)
        if way.settings != ADAPTIVE:
            self.assertEqual(reply["cut"], "deal")
        elif way.prefer and self.ranks > 1:
            self.assertEqual(reply["cut"], way.prefer)

        # Everybody has worked, and nobody twice.
        tokens = [now - then for now, then in zip(self.computed_tokens(), before)]
        total = sum(prompt["tokens"] for prompt in reply["prompts"])
        self.assertEqual(sum(tokens), total * self.replica_size(way, reply["cut"]), tokens)
        if reply["cut"] == "split" or len(reply["prompts"]) >= self.ranks:
            self.assertGreater(min(tokens), 0, tokens)

        again, tensors_again = self.encode(request(self.model), **way.fields())
        self.assertEqual(again["cut"], reply["cut"])
        self.assertEqual(tensors_again, tensors, "the same request gave other bytes")
        return error

    def test_equals_one_rank(self):
        errors = {}
        for way in self.ways():
            with self.subTest(way.name):
                errors[way.name] = self.check(way)
        print(f"{self.model.name}, {self.ranks} ranks, largest relative error:",
              ", ".join(f"{name} {error:.1e}" for name, error in errors.items()))


class OneRank(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 1, "model": TINY}


class TwoRanks(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 2, "model": TINY}


class ThreeRanks(EveryWay, ModeTestCase):
    """A number that divides neither heads nor layers."""
    DAEMON = {"ranks": 3, "model": TINY}


class FourRanks(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 4, "model": TINY}


class EightRanks(EveryWay, ModeTestCase):
    """More ranks than heads."""
    DAEMON = {"ranks": 8, "model": TINY}


class TextOnlyOneRank(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 1, "model": TEXT_TINY}


class TextOnlyTwoRanks(EveryWay, ModeTestCase):
    """More ranks than key heads."""
    DAEMON = {"ranks": 2, "model": TEXT_TINY}


class TextOnlyFourRanks(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 4, "model": TEXT_TINY}


class TextOnlyEightRanks(EveryWay, ModeTestCase):
    DAEMON = {"ranks": 8, "model": TEXT_TINY}


class RealModel(EveryWay):
    @classmethod
    def setUpClass(cls):
        if not REAL.is_dir():
            print(f"SKIPPED: {cls.__name__}: there is no model in {REAL}; GEMMAD_TEST_MODEL names another folder")
            raise unittest.SkipTest(f"there is no model in {REAL}")
        super().setUpClass()


class RealModelTwoRanks(RealModel, ModeTestCase):
    DAEMON = {"ranks": 2, "model": REAL, **REAL_SETTINGS}


class RealModelFourRanks(RealModel, ModeTestCase):
    DAEMON = {"ranks": 4, "model": REAL, **REAL_SETTINGS}


class Started(ModeTestCase):
    """In a mode of the settings, without a switch."""
    DAEMON = {"ranks": 4, "model": TINY, **TENSOR, "ranks_per_replica": 2, "encoder_ranks": "0,3"}

    def test_as_the_settings_say(self):
        info = self.info()
        self.assertEqual((info["mode"], info["strategy"], info["ranks_per_replica"], info["encoder_ranks"]),
                         ("sharded", "tensor", 2, [0, 3]))
        _, tensors = self.encode(request(TINY))
        check_same(tensors, expected(TINY), "started so")
        self.switch(**TENSOR, ranks_per_replica=2, encoder_ranks=[0, 3])
        self.assertEqual(self.encode(request(TINY))[1], tensors, "other bytes than after a switch")


if __name__ == "__main__":
    unittest.main()
