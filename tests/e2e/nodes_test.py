"""Two nodes, played on one machine: what the ranks of a node share, and where their readers find results."""

import os
import random
import signal
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness import BOS, TINY, Daemon
from modes import LAYER, TENSOR, WAYS, ModeTestCase, check_same, hybrids, one_rank_results, random_prompt
from processes import poll
from random_model import copy_model, text_tensor_bytes

SEED = 20260716
RANKS, RANKS_PER_NODE = 4, 2
NODES = [0, 0, 1, 1]
TWO_NODES = mock.patch.dict(os.environ, GEMMAD_RANKS_PER_NODE=str(RANKS_PER_NODE))
# Results of these take 96 pages each: a segment of 1 MiB holds two of them.
LARGE = {"prompts": [{"input_ids": [BOS] + [9] * 1023}], "layers": [8]}


class NodesTestCase(ModeTestCase):
    DAEMON = {"ranks": RANKS, "heartbeat_ms": 50}

    @classmethod
    def setUpClass(cls):
        cls.enter(TWO_NODES)
        folder = cls.enter(tempfile.TemporaryDirectory())
        model = copy_model(TINY, Path(folder) / "model")
        cls.text_bytes = text_tensor_bytes(model)
        cls.DAEMON = {**cls.DAEMON, "model": model}
        super().setUpClass()

    def ranks(self, key):
        return [rank[key] for rank in self.info()["ranks"]]


class Modes:
    """For segments of ranks and of nodes alike."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(SEED)
        cls.request = {"prompts": [random_prompt(generator, length) for length in (40, 1, 110, 7, 64)]}
        (cls.expected,) = one_rank_results(TINY, [cls.request])

    def check(self, ways, **settings):
        for way in ways:
            with self.subTest(way.name, **settings):
                self.switch(**way.settings, **settings)
                _, tensors = self.encode(self.request, **way.fields())
                check_same(tensors, self.expected, way.name)
                self.assertEqual(self.encode(self.request, **way.fields())[1], tensors)

    def test_all_nodes_have_what_one_rank_computes(self):
        self.check(WAYS + hybrids(2))

    def test_all_nodes_have_what_ranks_of_one_compute(self):
        for encoders in ([0, 1], [3], [1, 2]):
            self.check(WAYS, encoder_ranks=encoders)

    def test_nodes_are_numbered(self):
        self.assertEqual(self.ranks("node"), NODES)

    def test_the_model_is_read_once_a_node(self):
        read = [rank["bytes"]["read_from_disk"] for rank in self.info()["ranks"]]
        for first in range(0, RANKS, RANKS_PER_NODE):
            node = read[first:first + RANKS_PER_NODE]
            self.assertEqual(sum(node), self.text_bytes)
            self.assertLess(max(node), self.text_bytes * 0.6)


class SegmentsOfRanks(Modes, NodesTestCase):
    def test_every_rank_publishes(self):
        self.assertEqual(self.ranks("publisher"), [0, 1, 2, 3])
        self.assertEqual(self.ranks("reader_socket"), [self.daemon.reader_socket(rank) for rank in range(RANKS)])


class SegmentsOfNodes(Modes, NodesTestCase):
    DAEMON = {**NodesTestCase.DAEMON, "segments": "per_node"}

    def test_the_first_rank_of_a_node_publishes(self):
        self.assertEqual(self.ranks("publisher"), [0, 0, 2, 2])
        self.assertEqual(self.ranks("reader_socket"), [self.daemon.reader_socket(rank) for rank in (0, 0, 2, 2)])
        self.assertEqual(self.daemon.sockets(), ["control.sock", "control.sock.reader-0", "control.sock.reader-2"])

    def test_health_counts_a_segment_where_it_is(self):
        segments = [rank["segment"]["bytes"] for rank in self.daemon.health()["ranks"]]
        self.assertEqual([size > 0 for size in segments], [True, False, True, False])

    def test_a_name_is_awaited_on_every_node(self):
        readers = [self.connect_reader(rank) for rank in (0, 0, 2, 2)]
        for reader in readers:
            reader.client.send_request("acquire", name="frame", deadline_ms=60000)
        job = self.connect().call("encode", prompts=["a dog"], layers=[8], name="frame")["job"]
        leases = [reader.client.read_reply() for reader in readers]
        self.assertEqual([lease.get("job") for lease in leases], [job] * 4, leases)
        tensors = [reader.tensors(lease) for reader, lease in zip(readers, leases)]
        self.assertEqual(tensors, [tensors[0]] * 4)


class ShortOfSpace(NodesTestCase):
    """A result is kept on a node until as many readers came for it as the node has ranks, or as the request says."""

    DAEMON = {**NodesTestCase.DAEMON, "segments": "per_node", "segment_mib": 1, **LAYER}

    def encode_large(self, **fields):
        """Its job. Two of them fill the segments."""
        reply = self.connect().call("encode", **LARGE, **fields)
        self.assertTrue(reply["ok"], reply)
        return reply["job"]

    def come_for(self, job, rank):
        self.connect_reader(rank).take(job)

    def assert_no_space(self):
        self.assert_refused(self.connect().call("encode", **LARGE, deadline_ms=500), "buffers_exhausted")

    def check(self, visits, **fields):
        """Needs so many visits on each node, and not one less."""
        first, second = self.encode_large(**fields), self.encode_large(readers=1)
        for _ in range(visits - 1):
            self.come_for(first, 0)
            self.come_for(first, 2)
            self.assert_no_space()
        self.come_for(first, 2)
        self.assert_no_space()
        self.come_for(first, 0)
        third = self.encode_large(readers=1)
        for rank in (0, 2):
            self.assert_refused(self.connect_reader(rank).acquire(first, deadline_ms=0), "gone")
            self.come_for(second, rank)
            self.come_for(third, rank)

    def test_as_many_as_the_node_has_ranks(self):
        self.check(RANKS_PER_NODE)

    def test_as_many_as_the_request_says(self):
        self.check(1, readers=1)
        self.check(3, readers=3)

    def test_a_name_is_free_again_after_all_of_them(self):
        job = self.encode_large(name="frame")
        for rank in (0, 2, 0):
            self.come_for(job, rank)
            self.assert_refused(self.connect().call("encode", prompts=["a"], layers=[8], name="frame"), "name_in_use")
        self.come_for(job, 2)
        job = self.encode_large(name="frame", readers=1)
        for rank in (0, 2):
            self.come_for(job, rank)


class Stopping(unittest.TestCase):
    def test_a_signal_to_any_rank_stops_all(self):
        for rank in range(RANKS):
            with self.subTest(rank=rank), TWO_NODES, \
                    Daemon(ranks=RANKS, heartbeat_ms=50, segments="per_node", **TENSOR) as daemon:
                with daemon.client() as client:
                    client.send_request("encode", prompts=[{"input_ids": [BOS] * 1024}] * 32, layers=[8])
                    poll(lambda: daemon.health()["queue"]["running"], "it runs")
                    daemon.signal_rank(rank, signal.SIGTERM)
                    self.assertTrue(client.read_reply()["ok"])
                self.assertEqual(daemon.wait_exit(), 0, daemon.log())
                self.assertEqual(daemon.sockets(), [])


if __name__ == "__main__":
    unittest.main()
