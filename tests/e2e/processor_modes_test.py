"""LTX-2's features and embeddings in every mode, over any number of ranks: those of one rank, the same bytes everywhere."""

import functools
import os
import re
import unittest
from unittest import mock

from arrays import check_arrays
from goldens import LIMIT
from harness import BOS, NUM_LAYERS, TINY, VOCABULARY
from ltx_cases import EVERYTHING, PROCESSED, V1, V2, check_same_bytes, names, random_prompts
from modes import ADAPTIVE, BATCH_PARALLEL, LAYER, MODES, TENSOR, WAYS, ModeTestCase, Way, hybrids, one_rank_results
from processes import poll

# More than a connector's registers, almost nothing, and in between.
REQUEST = {"prompts": random_prompts(200, 1, 37), **EVERYTHING}
# More than go through a connector at once on any rank.
MANY = {"prompts": random_prompts(5, 130, 1, 60, 17, 90, 2), "outputs": ["embeddings"]}
ON_TWO_OF_FOUR = tuple(Way(f"{name} on ranks 0 and 1", {**settings, "encoder_ranks": [0, 1]})
                       for name, settings in MODES.items())
# Adaptive mode chooses for itself and may choose otherwise after a switch: not where bytes are compared over one.
FIXED_WAYS = tuple(way for way in WAYS if way.name != "adaptive")


@functools.cache
def expected(checkpoint):
    return one_rank_results(TINY, [REQUEST], embeddings_processor=checkpoint)[0]


@functools.cache
def expected_of_many(checkpoint):
    return one_rank_results(TINY, [MANY], embeddings_processor=checkpoint)[0]


class ProcessorTestCase(ModeTestCase):
    @property
    def checkpoint(self):
        return self.DAEMON["embeddings_processor"]

    def check(self, way):
        """Returns the largest error."""
        self.switch(**way.settings)
        reply, tensors = self.encode(REQUEST, **way.fields())
        if way.prefer and self.DAEMON["ranks"] > 1:
            self.assertEqual(reply["cut"], way.prefer)
        error = check_arrays(tensors, expected(self.checkpoint), LIMIT, way.name)
        check_same_bytes(self.encode(REQUEST, **way.fields())[1], tensors, f"{way.name}, once more")
        return error

    def check_all(self, ways):
        errors = {}
        for way in ways:
            with self.subTest(way.name):
                errors[way.name] = self.check(way)
        print(f"{self.checkpoint.name}, {self.DAEMON['ranks']} ranks, largest relative error:",
              ", ".join(f"{name} {error:.1e}" for name, error in errors.items()))


class OneRankV1(ProcessorTestCase):
    DAEMON = {"ranks": 1, "embeddings_processor": V1}

    def test_equals_one_rank_that_never_switched(self):
        self.check_all(WAYS)


class OneRankV2(OneRankV1):
    DAEMON = {"ranks": 1, "embeddings_processor": V2}


class TwoRanksV1(ProcessorTestCase):
    DAEMON = {"ranks": 2, "embeddings_processor": V1, "heartbeat_ms": 50}

    def test_equals_one_rank(self):
        self.check_all(WAYS)

    def test_sleeping_waking_and_switching_keep_the_bytes(self):
        client = self.connect()
        request = {"prompts": random_prompts(9), "outputs": ["features", "embeddings"]}
        before = {}
        for way in FIXED_WAYS:
            with self.subTest(way.name):
                self.switch(**way.settings)
                before[way.name] = self.encode(request, **way.fields())[1]
                self.assertTrue(client.call("sleep")["asleep"])
                self.assertFalse(client.call("wake")["asleep"])
                check_same_bytes(self.encode(request, **way.fields())[1], before[way.name], "after waking")
                self.assertTrue(client.call("sleep")["asleep"])
                check_same_bytes(self.encode(request, **way.fields())[1], before[way.name], "woken by a request")
        for way in FIXED_WAYS[::-1]:
            self.switch(**way.settings)
            check_same_bytes(self.encode(request, **way.fields())[1], before[way.name], f"{way.name}, after other modes")

    def test_requests_of_one_batch_get_each_its_own(self):
        """They gather while rank 1 is held still: some want hidden states, some features or embeddings of one modality."""
        for way in FIXED_WAYS:
            with self.subTest(way.name):
                self.switch(**way.settings)
                self.check_one_batch(way)

    def check_one_batch(self, way):
        first, second, third = ({"prompts": [prompt]} for prompt in REQUEST["prompts"])
        bad = {"input_ids": [BOS, VOCABULARY]}
        wanted = {  # by id: a request, and the names that its tensors have in a result of REQUEST
            "states": ({**first, "layers": [0, 8]}, [f"prompt.0.hidden_states.{state}" for state in (0, NUM_LAYERS)]),
            "features": ({**second, "outputs": ["features"]}, names("features", prompts=[1])),
            "embeddings": ({**third, "outputs": ["embeddings"]}, names("embeddings", prompts=[2])),
            "bad": ({"prompts": [bad], "outputs": ["embeddings"]}, []),
            "partly bad": ({"prompts": [bad, *third["prompts"], bad], "outputs": ["embeddings"]},
                           names("embeddings", prompts=[2])),
            "audio": ({**first, "outputs": ["embeddings"], "modalities": ["audio"]}, names("embeddings", modalities=["audio"])),
            "video": ({**first, "outputs": ["features"], "modalities": ["video"]}, names("features", modalities=["video"])),
            "both": ({**second, "outputs": ["embeddings", "features"]}, names(*PROCESSED, prompts=[1])),
        }
        batches = self.batches()
        client = self.connect()
        with self.daemon.held_still():
            for number, (request, _) in wanted.items():
                client.send_request("encode", id=number, **request, **way.fields())
            poll(lambda: self.daemon.health()["queue"]["waiting"] == len(wanted), "all wait")
        replies = {reply["id"]: reply for reply in (client.read_reply() for _ in wanted)}
        for number, (_, given) in wanted.items():
            self.assertTrue(replies[number]["ok"], replies[number])
            results = [self.connect_reader(rank).take(replies[number]["job"]) for rank in range(2)]
            check_same_bytes(results[1], results[0], f"{number} on rank 1")
            place = 1 if number == "partly bad" else 0
            due = {re.sub(r"prompt\.\d", f"prompt.{place}", name): expected(self.checkpoint)[name] for name in given}
            check_arrays(results[0], due, LIMIT, f"{way.name}: {number}")
        self.assertEqual(self.batches(), batches + 1)

    def batches(self):
        return self.daemon.metric("gemmad_batches_total")


class TwoRanksV2(TwoRanksV1):
    DAEMON = {**TwoRanksV1.DAEMON, "embeddings_processor": V2}


class FourRanksV1(ProcessorTestCase):
    DAEMON = {"ranks": 4, "embeddings_processor": V1}

    def test_equals_one_rank(self):
        self.check_all(WAYS + hybrids(2))

    def test_ranks_that_only_receive(self):
        self.check_all(ON_TWO_OF_FOUR)


class FourRanksV2(FourRanksV1):
    DAEMON = {"ranks": 4, "embeddings_processor": V2}

    def test_many_prompts(self):
        for name in ("tensor", "layer", "batch_parallel"):
            with self.subTest(name):
                self.switch(**MODES[name])
                check_arrays(self.encode(MANY)[1], expected_of_many(V2), LIMIT, name)

    def test_each_rank_holds_what_it_needs(self):
        def processor_bytes(**settings):
            self.switch(**settings)
            return [rank["bytes"]["processor"] for rank in self.info()["ranks"]]

        for settings in (TENSOR, BATCH_PARALLEL, ADAPTIVE):
            self.assertGreater(min(processor_bytes(**settings)), V2.stat().st_size)
        # A run of layers needs its columns of the projections alone; the last one has the connectors.
        *first, last = processor_bytes(**LAYER)
        self.assertGreater(min(first), 0)
        self.assertLess(max(first), last / 2)
        idle = processor_bytes(**BATCH_PARALLEL, encoder_ranks=[0, 1])[2:]
        self.assertEqual(idle, [0, 0])


class SegmentsOfNodes(ProcessorTestCase):
    """Two nodes of two ranks, played on one machine."""

    DAEMON = {"ranks": 4, "embeddings_processor": V2, "segments": "per_node"}

    @classmethod
    def setUpClass(cls):
        cls.enter(mock.patch.dict(os.environ, GEMMAD_RANKS_PER_NODE="2"))
        super().setUpClass()

    def test_equals_one_rank(self):
        self.assertEqual([rank["publisher"] for rank in self.info()["ranks"]], [0, 0, 2, 2])
        self.check_all(WAYS + hybrids(2) + ON_TWO_OF_FOUR[:1])


class MoreRanksThanLayers(ProcessorTestCase):
    DAEMON = {"ranks": NUM_LAYERS + 2, "embeddings_processor": V1, **LAYER}

    def test_equals_one_rank(self):
        self.check_all([Way("layer", LAYER)])


if __name__ == "__main__":
    unittest.main()
