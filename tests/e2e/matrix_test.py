"""Many random requests through every mode of four ranks, several in flight: each gets what one rank gives."""

import random
import unittest

from harness import TINY, VOCABULARY, Daemon
from modes import (ADAPTIVE, BATCH_PARALLEL, LAYER, MODES, TENSOR, ModeTestCase, Way, check_same, hybrids, random_prompt)

SEED = 20260718
JOBS, CLIENTS, RANKS = 200, 4, 4
MAX_TOKENS = 1024
ALL_WAYS = (*(Way(name, settings) for name, settings in MODES.items()), *hybrids(2),
            Way("tensor on three", {**TENSOR, "encoder_ranks": [1, 2, 3]}),
            Way("layer on two", {**LAYER, "encoder_ranks": [0, 2]}),
            Way("dealt to two", {**BATCH_PARALLEL, "encoder_ranks": [1, 3]}),
            Way("adaptive on three", {**ADAPTIVE, "encoder_ranks": [0, 2, 3]}))
BAD_PROMPTS = ({"input_ids": []}, {"input_ids": [2, VOCABULARY]}, {"input_ids": [-1, 2, 3]})


def random_length(generator):
    """Mostly short; now and then the longest, and longer."""
    kind = generator.random()
    if kind < 0.85:
        return generator.randint(1, 40)
    if kind < 0.98:
        return generator.randint(41, 250)
    return generator.choice([MAX_TOKENS - 1, MAX_TOKENS, MAX_TOKENS + 50])


def random_job(generator):
    prompts = [random_prompt(generator, random_length(generator)) for _ in range(min(generator.randint(1, 16),
                                                                                     generator.randint(1, 16)))]
    if generator.random() < 0.1:
        prompts.insert(generator.randint(0, len(prompts)), generator.choice(BAD_PROMPTS))
    layers = generator.sample(range(9), generator.randint(0, 3))
    job = {"prompts": prompts, "outputs": ["last_hidden_state"] + (["hidden_states"] if layers else [])}
    if layers:
        job["layers"] = layers
    prefer = generator.choice([None, "deal", "split"])
    return {**job, "prefer": prefer} if prefer else job


def is_good(prompt):
    return prompt not in BAD_PROMPTS


def states(reply):
    """What is told of each prompt, offsets aside."""
    return [{key: prompt.get(key) for key in ("status", "error", "tokens", "truncated", "tensors")}
            for prompt in reply["prompts"]]


class InFlight:
    """Clients that send many jobs before they read, and readers on every rank."""

    def __init__(self, daemon, ranks):
        self.clients = [daemon.client() for _ in range(CLIENTS)]
        self.readers = [daemon.reader(rank) for rank in range(ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.clients + self.readers:
            each.close()

    def encode(self, jobs):
        """(reply, tensors) of each job, in order."""
        results = {}
        for number, job in enumerate(jobs):
            self.clients[number % CLIENTS].send_request("encode", id=number, deadline_ms=120000, **job)
        for number in range(len(jobs)):
            reply = self.clients[number % CLIENTS].read_reply()
            if not reply["ok"] or reply["id"] in results:
                raise AssertionError(f"job {reply['id']}: {reply}")
            results[reply["id"]] = (reply, self.take(reply["job"]))
        return [results[number] for number in range(len(jobs))]

    def take(self, job):
        first, *others = [reader.take(job) for reader in self.readers]
        for rank, tensors in enumerate(others, 1):
            if tensors != first:
                raise AssertionError(f"job {job}: rank {rank} has other bytes than rank 0")
        return first


class Matrix(ModeTestCase):
    DAEMON = {"ranks": RANKS, "model": TINY}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(SEED)
        cls.jobs = [random_job(generator) for _ in range(JOBS)]
        with Daemon(model=TINY) as daemon, InFlight(daemon, 1) as in_flight:
            cls.expected = [in_flight.encode([job])[0] for job in cls.jobs]

    def batches(self):
        return self.daemon.metric("gemmad_batches_total")

    def check_job(self, number, found, what):
        """Returns the largest error of its tensors."""
        (reply, tensors), (expected_reply, expected) = found, self.expected[number]
        self.assertEqual(states(reply), states(expected_reply), what)
        self.assertEqual([prompt["status"] == "ok" for prompt in reply["prompts"]],
                         [is_good(prompt) for prompt in self.jobs[number]["prompts"]], what)
        return check_same(tensors, expected, what)

    def test_every_job_equals_one_rank_in_whatever_mode(self):
        ways = list(ALL_WAYS) * 2
        random.Random(SEED).shuffle(ways)
        worst, cuts = 0.0, {"deal": 0, "split": 0}
        with InFlight(self.daemon, RANKS) as in_flight:
            for turn, way in enumerate(ways):
                self.switch(**way.settings)
                numbers = list(range(turn, JOBS, len(ways)))
                found = in_flight.encode([self.jobs[number] for number in numbers])
                for number, result in zip(numbers, found):
                    cuts[result[0]["cut"]] += 1
                    worst = max(worst, self.check_job(number, result, f"job {number}, {way.name}"))
        tokens = sum(prompt.get("tokens", 0) for reply, _ in self.expected for prompt in reply["prompts"])
        batches = self.batches()
        print(f"{JOBS} jobs, {sum(len(job['prompts']) for job in self.jobs)} prompts, {tokens} tokens in {batches} batches, "
              f"{cuts}, largest relative error {worst:.1e}")
        self.assertLess(batches, JOBS / 2, "jobs ran together")
        self.assertGreater(min(cuts.values()), 5)


if __name__ == "__main__":
    unittest.main()
