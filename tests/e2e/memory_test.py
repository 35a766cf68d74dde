"""What ranks really take of the host's memory, against what info says: shards, receivers, sleep and wake."""

import random
import tempfile
import unittest
from pathlib import Path

from harness import DaemonTestCase
from modes import MODES, random_prompt, switch
from processes import resident_bytes
from random_model import write_random_model

ENCODERS, RECEIVER = [0, 1, 2, 3], 4
MEBIBYTE = 1 << 20
PAGE = 4096
TOKENS = 64
BUFFERS = 8 * 10 + 4  # of weights, each rounded up to a page; and of the workspace
# What an encoder has beside them: the packing buffers that a GEMM has touched, its threads' stacks, MPI's notes of
# larger messages, and on rank 0 the control socket. Measured: 1.0 to 1.7 MiB.
BESIDES = 3 * MEBIBYTE


class Memory(DaemonTestCase):
    DAEMON = {"ranks": 5, "mode": "sharded", "encoder_ranks": "0,1,2,3", "max_tokens": TOKENS, "batch_tokens": TOKENS,
              "segment_mib": 4, "result_ttl_ms": 100, "compute_threads": 1}

    @classmethod
    def setUpClass(cls):
        folder = cls.enter(tempfile.TemporaryDirectory())
        cls.DAEMON = {**Memory.DAEMON, "model": write_random_model(Path(folder) / "model")}  # 120 MiB of layers in fp32
        super().setUpClass()

    def setUp(self):
        self.client = self.connect()
        self.switch("tensor")

    def switch(self, mode):
        switch(self.client, **MODES[mode], encoder_ranks=ENCODERS)

    def encode(self):
        generator = random.Random(1)
        reply = self.client.call("encode", prompts=[random_prompt(generator, TOKENS)] * 4, layers=[8])
        self.assertTrue(reply["ok"], reply)

    def bytes(self, key):
        return [rank["bytes"][key] for rank in self.client.call("info")["ranks"]]

    def anonymous(self):
        return [resident_bytes(pid, "RssAnon") for pid in self.daemon.pids]

    def check_against_info(self, mode):
        """Each encoder has more than the rank that only receives: its weights, and its workspace where it was used."""
        weights, workspace, found = self.bytes("weights"), self.bytes("workspace"), self.anonymous()
        self.assertEqual((weights[RECEIVER], workspace[RECEIVER]), (0, 0))
        for rank in ENCODERS:
            more = found[rank] - found[RECEIVER]
            self.assertGreaterEqual(more, weights[rank], f"{mode}, rank {rank}")
            self.assertLessEqual(more, weights[rank] + workspace[rank] + BUFFERS * PAGE + BESIDES, f"{mode}, rank {rank}")

    def test_tensor_gives_each_rank_its_share_of_the_weights(self):
        info = self.client.call("info")
        total = 4 * info["model"]["layer_elements"]
        self.assertGreater(total, 100 * MEBIBYTE)
        weights, replicated = self.bytes("weights"), self.bytes("replicated")
        for rank in ENCODERS:
            self.assertLessEqual(weights[rank], total // 4 + replicated[rank])
            self.assertLess(replicated[rank], total // 100)
        self.assertEqual(sum(weights) - 3 * replicated[0], total)

    def test_layers_are_dealt_evenly(self):
        total = 4 * self.client.call("info")["model"]["layer_elements"]
        self.switch("layer")
        weights = [self.bytes("weights")[rank] for rank in ENCODERS]
        self.assertEqual(sum(weights), total)
        self.assertLess(max(weights) - min(weights), PAGE)

    def test_ranks_take_what_info_says_in_every_mode(self):
        for mode in MODES:
            with self.subTest(mode):
                self.switch(mode)
                self.encode()
                self.check_against_info(mode)

    def test_sleep_gives_the_memory_back_and_wake_takes_it_again(self):
        for mode in MODES:
            with self.subTest(mode):
                self.switch(mode)
                self.encode()
                weights, awake = self.bytes("weights"), self.anonymous()
                self.assertTrue(self.client.call("sleep")["ok"])
                self.assertEqual(self.bytes("weights"), [0] * 5)
                asleep = self.anonymous()
                for rank in ENCODERS:
                    self.assertGreaterEqual(awake[rank] - asleep[rank], weights[rank])
                    self.assertLess(asleep[rank] - asleep[RECEIVER], BESIDES)
                self.assertTrue(self.client.call("wake")["ok"])
                self.assertEqual(self.bytes("weights"), weights)
                self.check_against_info(mode)

    def test_a_former_encoder_keeps_nothing(self):
        self.switch("batch_parallel")
        self.encode()
        switch(self.client, mode="batch_parallel", encoder_ranks=[1])
        found, (weights, *_) = self.anonymous(), [self.bytes("weights")[1]]
        for rank in (0, 2, 3):
            self.assertLess(found[rank] - found[RECEIVER], BESIDES)
        self.assertGreater(found[1] - found[RECEIVER], weights)

    def test_going_round_the_modes_leaves_nothing_behind(self):
        def round_trip():
            for mode in (*MODES, "tensor"):
                self.switch(mode)
                self.encode()
            return self.anonymous()

        round_trip()
        before = round_trip()
        for _ in range(2):
            after = round_trip()
        for rank in (*ENCODERS, RECEIVER):
            self.assertLess(after[rank] - before[rank], MEBIBYTE, f"rank {rank}")


class WithoutACache(DaemonTestCase):
    DAEMON = {"ranks": 2, "weights_cache": "none", "mode": "sharded", "max_tokens": TOKENS, "batch_tokens": TOKENS,
              "segment_mib": 4}

    @classmethod
    def setUpClass(cls):
        folder = cls.enter(tempfile.TemporaryDirectory())
        cls.DAEMON = {**WithoutACache.DAEMON, "model": write_random_model(Path(folder) / "model")}
        super().setUpClass()

    def test_no_rank_keeps_a_copy_of_the_files(self):
        shared = [resident_bytes(pid, "RssShmem") for pid in self.daemon.pids]
        self.assertLess(max(shared), 4 * MEBIBYTE + 8 * MEBIBYTE, "the segment, and MPI's own")


if __name__ == "__main__":
    unittest.main()
