"""Rewriting prompts in every mode: the same greedy text everywhere, whatever else goes on meanwhile."""

import functools
import random
import threading
import unittest

from enhancing import ENDLESS, GREEDY, EndlessTestCase, EnhanceTestCase, enhance, read_events, read_replies
from harness import TINY, Daemon
from modes import (ADAPTIVE, BATCH_PARALLEL, LAYER, MODES, TENSOR, Way, check_same, hybrids, one_rank_results,
                   random_prompt, switch, take_everywhere)
from processes import poll

SEED = 20260901
ROUND = 8  # rows that are computed together: prompts of every length modulo this
MAX_NEW = 24
WAYS = tuple(Way(name, settings) for name, settings in MODES.items())
GREEDY_FIELDS = {**GREEDY, "max_new_tokens": MAX_NEW}
# Greedy in an endless model: no circles.
LONG_GREEDY = {**GREEDY, "no_repeat_ngram": 3, "max_new_tokens": 400}
SAME = ("raw_text", "stop", "tokens_in", "tokens_out")


def prompts():
    """As many as there are residues, and two that take several passes."""
    return ["Q" * (1 + length) for length in range(ROUND)] + ["a dog runs " * 60, "rain " * 150]


@functools.cache
def expected():
    """What one rank says to each, alone."""
    with Daemon(ranks=1, model=TINY) as daemon, daemon.client() as client:
        replies = [enhance(client, prompt, **GREEDY_FIELDS) for prompt in prompts()]
    residues = {reply["tokens_in"] % ROUND for reply in replies[:ROUND]}
    if len(residues) != ROUND:
        raise AssertionError(f"lengths of the prompts are only {residues} modulo {ROUND}")
    return [same_of(reply) for reply in replies]


@functools.cache
def encode_request():
    generator = random.Random(SEED)
    return {"prompts": [random_prompt(generator, length) for length in (33, 7, 64, 1, 120)], "layers": [0, 8]}


@functools.cache
def encode_expected():
    return one_rank_results(TINY, [encode_request()])[0]


def same_of(reply):
    if not reply["ok"]:
        raise AssertionError(reply)
    return [reply[key] for key in SAME]


class EveryWay:
    """For a daemon of any size."""

    WAYS = WAYS
    HOWS = ("alone", "together", "beside_encodes")

    def switch(self, **settings):
        return switch(self.connect(), **settings)

    def alone(self):
        client = self.connect()
        return [same_of(enhance(client, prompt, **GREEDY_FIELDS)) for prompt in prompts()]

    def together(self):
        """All at once, on one connection."""
        client = self.connect()
        numbers = [client.send_request("enhance_t2v", prompt=prompt, **GREEDY_FIELDS) for prompt in prompts()]
        replies = read_replies(client, len(numbers))
        return [same_of(replies[number]) for number in numbers]

    def encode(self):
        reply = self.connect().call("encode", **encode_request())
        self.assertTrue(reply["ok"], reply)
        check_same(take_everywhere(self.daemon, reply["job"]), encode_expected(), "an encode meanwhile")

    def beside_encodes(self):
        client = self.connect()
        numbers = [client.send_request("enhance_t2v", prompt=prompt, **GREEDY_FIELDS) for prompt in prompts()]
        for _ in range(3):
            self.encode()
        replies = read_replies(client, len(numbers))
        return [same_of(replies[number]) for number in numbers]

    def test_gives_what_one_rank_gives(self):
        for way in self.WAYS:
            self.switch(**way.settings)
            for how in self.HOWS:
                with self.subTest(way=way.name, how=how):
                    self.assertEqual(getattr(self, how)(), expected())


class OneRank(EveryWay, EnhanceTestCase):
    DAEMON = {"ranks": 1}


class TwoRanks(EveryWay, EnhanceTestCase):
    DAEMON = {"ranks": 2}

    def test_encoders_that_leave_rank_0_out(self):
        for way in WAYS:
            with self.subTest(way=way.name):
                self.switch(**way.settings, encoder_ranks=[1])
                self.assertEqual(self.together(), expected())
                self.assertEqual(self.beside_encodes(), expected())


class ThreeRanks(EveryWay, EnhanceTestCase):
    """A number that divides neither heads nor layers."""
    DAEMON = {"ranks": 3}
    HOWS = ("together",)


class FourRanks(EveryWay, EnhanceTestCase):
    DAEMON = {"ranks": 4}
    WAYS = (*WAYS, *hybrids(2))
    HOWS = ("beside_encodes",)

    def test_two_encoders_of_four(self):
        for way in WAYS:
            with self.subTest(way=way.name):
                self.switch(**way.settings, encoder_ranks=[1, 3])
                self.assertEqual(self.together(), expected())


class NamedRankInEveryWay(EveryWay, EnhanceTestCase):
    DAEMON = {"ranks": 2, "enhance.rank": 1, "enhance.slots": 2}
    HOWS = ("together",)

    def test_a_rank_that_does_not_encode_leaves_it_to_those_that_do(self):
        self.switch(**BATCH_PARALLEL, encoder_ranks=[0])
        self.assertEqual(self.together(), expected())


class NamedRank(EndlessTestCase):
    DAEMON = {"ranks": 2, "enhance.rank": 1, "enhance.slots": 2}

    def test_as_many_run_as_one_rank_has_slots(self):
        """The other rank has none of them, but where both must work on each."""
        self.assertEqual(self.daemon.ask("info")["enhance"]["rank"], 1)
        for settings in (BATCH_PARALLEL, TENSOR):
            switch(self.connect(), **settings)
            running = [self.begin(f"dog {i}", **ENDLESS)[0] for i in range(2)]
            waiting = self.connect()
            for i in range(3):
                waiting.send_request("enhance_t2v", prompt=f"waits {i}", **ENDLESS)
            for _ in range(40):
                running[0].read_reply()
            self.assertEqual(self.enhancements(), {"running": 2, "waiting": 3})
            for client in (*running, waiting):
                client.close()
            poll(lambda: self.enhancements() == {"running": 0, "waiting": 0}, "all have ended")


class Orders(EndlessTestCase):
    """Switches, sleeps and wakes while prompts are rewritten: texts go on as they would have."""

    DAEMON = {"ranks": 2, "enhance.slots": 2}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with cls.daemon.client() as client:
            cls.lines = [f"a dog number {i} runs" for i in range(3)]
            cls.greedy = [same_of(enhance(client, line, **LONG_GREEDY)) for line in cls.lines]
            cls.sampled = same_of(enhance(client, "a cat", **{**ENDLESS, "stream": False, "max_new_tokens": 300}))

    def begin_all(self):
        """A client whose enhancements run or wait, two on each rank, and their ids."""
        client = self.connect()
        numbers = [client.send_request("enhance_t2v", prompt=line, **LONG_GREEDY, stream=True) for line in self.lines]
        self.assertEqual(client.read_reply()["event"], "token")
        return client, numbers

    def check(self, client, numbers):
        replies = read_replies(client, len(numbers))
        self.assertEqual([same_of(replies[number]) for number in numbers], self.greedy)

    def test_it_is_long_enough_to_be_disturbed(self):
        self.assertEqual({(stop, tokens_out) for _, stop, _, tokens_out in self.greedy}, {("length", 400)})

    def test_a_switch_leaves_their_text_as_it_was(self):
        orders = self.connect()
        for first in ("batch_parallel", "layer"):
            switch(orders, **MODES[first])
            with self.subTest(first=first):
                client, numbers = self.begin_all()
                for name in MODES:
                    switch(orders, **MODES[name])
                self.assertGreater(self.enhancements()["running"], 0, "all were over before the last switch")
                self.check(client, numbers)

    def test_a_switch_to_other_encoders_and_back(self):
        orders = self.connect()
        switch(orders, **TENSOR)
        client, numbers = self.begin_all()
        for settings in ({**BATCH_PARALLEL, "encoder_ranks": [1]}, LAYER, {**TENSOR, "encoder_ranks": [0]}, ADAPTIVE):
            switch(orders, **settings)
        self.check(client, numbers)

    def test_sampled_text_survives_a_switch_too(self):
        """The draws go on where they were; logits differ in their last bits only."""
        orders = self.connect()
        switch(orders, **BATCH_PARALLEL)
        client = self.connect()
        client.send_request("enhance_t2v", prompt="a cat", **{**ENDLESS, "max_new_tokens": 300})
        client.read_reply()
        switch(orders, **LAYER)
        _, reply = read_events(client)
        self.assertEqual(same_of(reply), self.sampled)

    def test_sleep_waits_for_their_end(self):
        client, numbers = self.begin_all()
        other = self.connect()
        other.send_request("sleep")
        self.assertEqual(other.call("health", id="h")["id"], "h", "it is not answered yet")
        self.assertFalse(self.daemon.ask("info")["asleep"])
        self.check(client, numbers)
        reply = other.read_reply()
        self.assertEqual((reply["ok"], reply["asleep"]), (True, True))
        self.assertTrue(self.daemon.ask("info")["asleep"])

    def test_one_wakes_a_daemon_that_sleeps(self):
        for name in ("tensor", "adaptive"):
            with self.subTest(name):
                switch(self.connect(), **MODES[name])
                self.assertTrue(self.connect().call("sleep")["asleep"])
                client = self.connect()
                self.assertEqual(same_of(enhance(client, self.lines[0], **LONG_GREEDY)), self.greedy[0])
                self.assertFalse(self.daemon.ask("info")["asleep"])

    def test_encodes_are_answered_while_it_runs(self):
        client, numbers = self.begin_all()
        other = self.connect()
        for _ in range(5):
            self.assertTrue(other.call("encode", prompts=["a dog"], layers=[8])["ok"])
        self.assertGreater(self.enhancements()["running"], 0, "all were over before the last encode")
        self.check(client, numbers)

    def test_clients_of_every_kind_at_once(self):
        """Several clients rewrite, encode and switch; each text is its own."""
        found = {}

        def rewrite(index):
            with self.daemon.client() as client:
                found[index] = [enhance(client, self.lines[index], **LONG_GREEDY) for _ in range(2)]

        threads = [threading.Thread(target=rewrite, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        orders, encodes = self.connect(), self.connect()
        # Not for as long as they run: after each switch they begin anew, and might never come far.
        for settings in list(MODES.values()) * 3:
            switch(orders, **settings)
            self.assertTrue(encodes.call("encode", prompts=["a dog"], layers=[8])["ok"])
        for thread in threads:
            thread.join()
        for index, replies in found.items():
            self.assertEqual([same_of(reply) for reply in replies], [self.greedy[index]] * 2)
        self.assertEqual(len(found), 3)


class Idle(EnhanceTestCase):
    """Nothing to rewrite for a moment: the memory for it goes, and comes again."""

    DAEMON = {"ranks": 2, "enhance.idle_ms": 50, "heartbeat_ms": 50}

    def generation_bytes(self):
        return [rank["bytes"]["generation"] for rank in self.daemon.ask("info")["ranks"]]

    def test_gives_its_memory_back_and_takes_it_again(self):
        for _ in range(3):
            self.assertEqual(same_of(self.enhance(prompts()[0], **GREEDY_FIELDS)), expected()[0])
            poll(lambda: self.generation_bytes() == [0, 0], "the memory is given back")

    def test_the_whole_daemon_sleeps_when_idle_and_not_while_it_rewrites(self):
        with Daemon(ranks=2, **{"enhance.idle_ms": 50, "heartbeat_ms": 50, "idle_sleep_ms": 200}) as daemon:
            for _ in range(2):
                with daemon.client() as client:
                    self.assertEqual(same_of(enhance(client, prompts()[0], **GREEDY_FIELDS)), expected()[0])
                poll(lambda: daemon.ask("info")["asleep"], "it sleeps")


if __name__ == "__main__":
    unittest.main()
