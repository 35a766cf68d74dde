"""Fleets of Python processes that read one result: same tensors on every rank, and the same error where there are none."""

import concurrent.futures
import logging
import time
import unittest
from contextlib import contextmanager

from harness import Daemon, DaemonTestCase
from processes import poll
from python_package import SOURCES  # noqa: F401  puts the package in reach

from gemmad_client import Client, DeadlineExceeded, GemmadError, Reader, requests
from gemmad_client.fleet import Fleet
from gemmad_client.fleet_encoder import EnhanceUnavailable, FleetEncoder, FleetError, reader_sockets_here


class Share:
    """rank 0's value for all, over threads."""

    def __init__(self, world_size):
        self.values = [concurrent.futures.Future() for _ in range(1000)]
        self.turns = [iter(self.values) for _ in range(world_size)]

    def of(self, rank):
        def share(value):
            future = next(self.turns[rank])
            if rank == 0:
                future.set_result(value)
            return future.result(60)

        return share


class FleetTestCase(DaemonTestCase):
    WORLD = 2

    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.ranks = concurrent.futures.ThreadPoolExecutor(self.WORLD)
        self.addCleanup(self.ranks.shutdown)

    def on_ranks(self, work):
        """What `work` returned or raised on each rank, all at once."""
        futures = [self.ranks.submit(work, rank) for rank in range(self.WORLD)]
        return [future.exception() or future.result() for future in futures]

    @contextmanager
    def fleet(self, daemon=None, share=None, **options):
        def make(rank):
            fleet = Fleet(rank, self.WORLD, rank, self.WORLD, share.of(rank) if share else None)
            return FleetEncoder((daemon or self.daemon).socket, fleet=fleet, wait_s=1,
                                **{"session": None if share else self.id()[-40:], **options})

        encoders = self.on_ranks(make)
        try:
            for encoder in encoders:
                if isinstance(encoder, BaseException):
                    raise encoder
            yield encoders
        finally:
            for encoder in encoders:
                if isinstance(encoder, FleetEncoder):
                    encoder.close()

    def encode(self, encoders, prompts, outputs=("hidden_states",)):
        """Bytes of all tensors by rank, or the error."""
        def work(rank):
            with encoders[rank].encode(prompts, outputs) as lease:
                return [(tensor.name, tensor.numpy().tobytes()) for prompt in lease.prompts
                        for tensor in prompt.tensors.values()]

        return self.on_ranks(work)

    def assert_fail_alike(self, outcomes, *words):
        self.assertEqual([type(outcome) for outcome in outcomes], [type(outcomes[0])] * self.WORLD, outcomes)
        self.assertIsInstance(outcomes[0], ValueError)
        self.assertEqual(len({str(outcome) for outcome in outcomes}), 1, outcomes)
        for word in words:
            self.assertIn(word, str(outcomes[0]))

    def assert_same(self, outcomes, num_tensors):
        self.assertEqual(len(outcomes[0]), num_tensors, outcomes[0])
        for outcome in outcomes[1:]:
            self.assertEqual(outcome, outcomes[0])


class TwoRanks(FleetTestCase):
    DAEMON = {"ranks": 2, "max_prompts": 4, "segment_mib": 1, "heartbeat_ms": 50}

    def test_every_rank_reads_the_same_on_its_own_segment(self):
        with self.fleet() as encoders:
            self.assertEqual([encoder._reader.rank for encoder in encoders], [0, 1])
            for _ in range(3):
                self.assert_same(self.encode(encoders, ["a dog", "a cat"]), 18)
            self.daemon.wait_for_no_leases()

    def test_ranks_that_share_need_no_session(self):
        with self.fleet(share=Share(2)) as first, self.fleet(share=Share(2)) as second:
            self.assertNotEqual(first[0]._session, second[0]._session)
            for encoders in (first, second):
                self.assertEqual(encoders[0]._session, encoders[1]._session)
                self.assertIsNone(encoders[1]._client)
                self.assert_same(self.encode(encoders, ["a dog"]), 9)

    def test_ranks_that_share_nothing_need_a_session(self):
        with self.assertRaises(FleetError), self.fleet(session=None):
            pass

    def test_a_request_that_is_refused_fails_at_once_on_every_rank(self):
        with self.fleet() as encoders:
            started = time.monotonic()
            self.assert_fail_alike(self.encode(encoders, ["a"] * 5), "rank 0")
            self.assert_fail_alike(self.encode(encoders, ["a"], ["dances"]), "rank 0")
            self.assert_fail_alike(self.encode(encoders, ["half a \ud800 pair"]), "rank 0")
            self.assertLess(time.monotonic() - started, 20)
            self.assert_same(self.encode(encoders, ["a"]), 9)

    def test_the_reason_is_the_cause_on_rank_0(self):
        with self.fleet() as encoders:
            outcomes = self.encode(encoders, ["a"] * 5)
            self.assertEqual(outcomes[0].__cause__.code, "too_many_prompts")

    def num_late(self):
        return self.daemon.metric('gemmad_jobs_total{result="deadline"}')

    def test_a_job_that_fails_tells_every_rank_why(self):
        with self.fleet(deadline_s=1.0) as encoders:
            self.assert_same(self.encode(encoders, ["a"]), 9)
            before = self.num_late()
            with self.daemon.held_still():
                ends = [self.ranks.submit(lambda rank=rank: encoders[rank].encode(["late"], ["hidden_states"]))
                        for rank in range(2)]
                poll(lambda: self.num_late() > before, "it is late")
            self.assert_fail_alike([end.exception() for end in ends], "deadline")
            self.assert_same(self.encode(encoders, ["a"]), 9)

    def test_a_result_too_large_fails_on_every_rank(self):
        with self.fleet() as encoders:
            self.assert_fail_alike(self.encode(encoders, ["word " * 1000]), "result_too_large")
            self.assert_same(self.encode(encoders, ["a"]), 9)

    def test_a_daemon_that_cannot_enhance_says_so_on_every_rank(self):
        def enhance(encoders):
            return self.on_ranks(lambda rank: encoders[rank].enhance("enhance_t2v", "a dog", None, {"seed": 1}))

        with self.fleet(share=Share(2)) as encoders:
            outcomes = enhance(encoders)
            if isinstance(outcomes[0], str):
                self.assertEqual(outcomes[0], outcomes[1])
            else:
                self.assert_fail_alike(outcomes)
            self.assert_same(self.encode(encoders, ["a"]), 9)
        with self.fleet() as encoders:
            outcomes = enhance(encoders)
            self.assert_fail_alike(outcomes, "share")
            self.assertIsInstance(outcomes[0], EnhanceUnavailable)

    def test_ranks_out_of_step_do_not_read_each_others_results(self):
        with self.fleet(deadline_s=0.3) as encoders:
            with Client(self.daemon.socket) as client, Reader(self.daemon.reader_socket(1)) as reader:
                pending = client.submit(requests.encode(["a"], name=encoders[0]._name(["a"], ["hidden_states"])))
                with self.assertRaises(DeadlineExceeded):
                    reader.acquire(name=encoders[1]._name(["b"], ["hidden_states"]), deadline_s=0.3)
                pending.result()

    def test_without_a_daemon_every_rank_fails(self):
        with self.assertRaises(FleetError), self.fleet(Daemon(), Share(2)):
            pass
        with self.assertRaises(FleetError), self.fleet(Daemon()):
            pass


class MoreThanSegments(FleetTestCase):
    DAEMON = {"ranks": 1, "segment_mib": 1, "result_ttl_ms": 600000}
    WORLD = 3

    def test_three_ranks_on_one_segment(self):
        with self.fleet() as encoders:
            # More than fits at once: what all have read makes room.
            for _ in range(6):
                self.assert_same(self.encode(encoders, ["word " * 60]), 9)


class DaemonThatGoes(FleetTestCase):
    DAEMON = {"ranks": 2}

    def test_every_rank_fails_alike_and_finds_the_next_daemon(self):
        with Daemon(ranks=2) as daemon, self.fleet(daemon) as encoders:
            self.assert_same(self.encode(encoders, ["a"]), 9)
            daemon.stop()
            outcomes = self.encode(encoders, ["a"])
            self.assert_fail_alike(outcomes, "rank 0")
            with Daemon(ranks=2, folder=daemon.folder):
                self.assert_same(self.encode(encoders, ["a"]), 9)


class Places(unittest.TestCase):
    def test_one_socket_a_segment_on_this_host(self):
        import socket
        here = socket.gethostname()
        ranks = [{"host": host, "reader_socket": path} for host, path in
                 ((here, "/s.reader-0"), (here, "/s.reader-0"), ("elsewhere", "/s.reader-2"), (here, "/s.reader-3"))]
        self.assertEqual(reader_sockets_here({"ranks": ranks}), ["/s.reader-0", "/s.reader-3"])
        with self.assertRaises(GemmadError):
            reader_sockets_here({"ranks": ranks[2:3]})


if __name__ == "__main__":
    unittest.main()
