"""Prompts that come again: answered with the earlier result, on every rank, and never with a wrong one."""

import unittest

from harness import BOS, Daemon, DaemonTestCase
from modes import BATCH_PARALLEL, TENSOR, switch
from processes import poll

NEGATIVE = {"input_ids": [BOS, *range(40, 60)]}


def positive(number):
    return {"input_ids": [BOS, *range(100 + number, 130 + number)]}


class CachedResults(DaemonTestCase):
    DAEMON = {"ranks": 2, "result_cache_mib": 16, **BATCH_PARALLEL}

    def encode(self, *prompts, **fields):
        with self.daemon.client() as client:
            reply = client.call("encode", prompts=list(prompts), **fields)
        self.assertTrue(reply["ok"], reply)
        return reply

    def take(self, reply):
        """The tensors of a job, the same on both ranks."""
        found = []
        for rank in range(2):
            with self.daemon.reader(rank) as reader:
                found.append(reader.take(reply["job"]))
        self.assertEqual(found[0], found[1])
        return found[0]

    def hits(self):
        return self.daemon.metric("gemmad_result_cache_hits_total")

    def test_a_prompt_that_comes_again_has_the_same_bytes_and_is_not_computed(self):
        first = self.take(self.encode(positive(1), NEGATIVE))
        tokens, hits = self.daemon.metric("gemmad_tokens_total"), self.hits()
        reply = self.encode(positive(2), NEGATIVE)
        self.assertEqual([prompt["tokens"] for prompt in reply["prompts"]], [31, 21])
        second = self.take(reply)
        self.assertEqual(self.hits() - hits, 1)
        self.assertEqual(self.daemon.metric("gemmad_tokens_total") - tokens, 31)
        for name in first:
            if name.startswith("prompt.1."):
                self.assertEqual(first[name], second[name])

    def test_a_request_of_nothing_new_takes_no_space(self):
        self.take(self.encode(positive(3), positive(4)))
        reply = self.encode(positive(4), positive(3), positive(4))
        self.assertEqual(reply["bytes"], 0)
        tensors = self.take(reply)
        self.assertEqual(tensors["prompt.0.hidden_states.8"], tensors["prompt.2.hidden_states.8"])

    def test_other_outputs_are_other_results(self):
        self.take(self.encode(positive(5)))
        hits = self.hits()
        tensors = self.take(self.encode(positive(5), outputs=["last_hidden_state"]))
        self.assertEqual(list(tensors), ["prompt.0.last_hidden_state"])
        self.assertEqual(self.hits(), hits)

    def test_a_request_that_wants_to_be_alone_is_computed_anew(self):
        self.take(self.encode(positive(6)))
        hits = self.hits()
        self.take(self.encode(positive(6), alone=True))
        self.assertEqual(self.hits(), hits)

    def test_a_prompt_that_fails_is_no_result(self):
        bad = {"input_ids": [BOS, 10**6]}
        for _ in range(2):
            reply = self.encode(bad, positive(7))
            self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["error", "ok"])

    def test_another_mode_begins_anew(self):
        self.take(self.encode(positive(8)))
        with self.daemon.client() as client:
            switch(client, **TENSOR)
            try:
                hits = self.hits()
                self.take(self.encode(positive(8)))
                self.assertEqual(self.hits(), hits)
            finally:
                switch(client, **BATCH_PARALLEL)

    def test_results_survive_sleep(self):
        first = self.take(self.encode(positive(9)))
        self.daemon.ask("sleep")
        self.assertEqual(self.take(self.encode(positive(9))), first)

    def test_many_different_prompts_stay_within_the_bound(self):
        for start in range(0, 200, 10):
            self.take(self.encode(*({"input_ids": [BOS, *range(start + i, start + i + 60)]} for i in range(10))))
        bound = 16 * 1024 * 1024
        self.assertLessEqual(self.daemon.metric("gemmad_result_cache_bytes"), bound)

        def settled():
            segment = self.daemon.health()["ranks"][1]["segment"]
            return segment["kept_bytes"] <= bound and segment["leases"] == 0

        poll(settled, "what was forgotten is given back")


class Space(unittest.TestCase):
    def test_kept_results_make_room_for_a_request_that_needs_it(self):
        # A prompt's hidden states take 9 * 1000 * 96 * 4 = 3.5 MB: four fill the half that may be kept, and six want more
        # than the other half.
        with Daemon(1, segment_mib=32, result_cache_mib=15) as daemon, daemon.client() as client, daemon.reader() as reader:
            def run(number, count):
                prompts = [{"input_ids": [BOS, *([number + i] * 999)]} for i in range(count)]
                reply = client.call("encode", prompts=prompts, deadline_ms=20000)
                self.assertTrue(reply["ok"], reply)
                reader.take(reply["job"])

            run(10, 2)
            run(20, 2)
            run(30, 7)
            run(40, 7)

    def test_it_is_off_where_it_is_told_so(self):
        with Daemon(1, result_cache_mib=0) as daemon, daemon.client() as client:
            for _ in range(2):
                client.call("encode", prompts=[NEGATIVE])
            self.assertEqual(daemon.metric("gemmad_result_cache_hits_total"), 0)
            self.assertEqual(daemon.health()["ranks"][0]["segment"]["kept_bytes"], 0)


if __name__ == "__main__":
    unittest.main()
