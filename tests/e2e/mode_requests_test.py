"""What requests may count on in every mode: deadlines, cancelling, and that bad neighbours do no harm."""

import random
import unittest

from harness import TINY, VOCABULARY
from modes import LAYER, WAYS, ModeTestCase, Way, check_same, hybrids, one_rank_results, random_prompt
from processes import poll

SEED = 20260717
BAD_TOKEN, NO_TOKENS = {"input_ids": [2, VOCABULARY, 7]}, {"input_ids": []}
ALL_WAYS = WAYS + hybrids(2) + (Way("layer on two ranks", {**LAYER, "encoder_ranks": [1, 3]}),)


class Requests(ModeTestCase):
    DAEMON = {"ranks": 4, "model": TINY, "heartbeat_ms": 50}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(SEED)
        cls.good = [random_prompt(generator, length) for length in (30, 2, 75)]
        (cls.expected,) = one_rank_results(TINY, [{"prompts": cls.good, "layers": [0, 8]}])

    def check_tensors(self, job, places):
        """The result holds the good prompts at these places, and nothing else."""
        tensors = self.connect_reader(2).take(job)
        expected = {f"prompt.{place}.hidden_states.{layer}": self.expected[f"prompt.{number}.hidden_states.{layer}"]
                    for number, place in places.items() for layer in (0, 8)}
        check_same(tensors, expected, f"job {job}")

    def check_states(self, reply, *states):
        self.assertTrue(reply["ok"], reply)
        self.assertEqual([prompt["status"] if prompt["status"] == "ok" else prompt["error"]["code"]
                          for prompt in reply["prompts"]], list(states))

    def test_a_bad_prompt_fails_alone(self):
        client = self.connect()
        first, second, third = self.good
        for way in ALL_WAYS:
            with self.subTest(way.name):
                self.switch(**way.settings)
                reply = client.call("encode", prompts=[BAD_TOKEN, first, NO_TOKENS, second, third, BAD_TOKEN],
                                    layers=[0, 8], **way.fields())
                self.check_states(reply, "bad_token", "ok", "empty_prompt", "ok", "ok", "bad_token")
                self.check_tensors(reply["job"], {0: 1, 1: 3, 2: 4})
                reply = client.call("encode", prompts=[NO_TOKENS, BAD_TOKEN], **way.fields())
                self.check_states(reply, "empty_prompt", "bad_token")
                self.check_tensors(reply["job"], {})
                reply = client.call("encode", prompts=[], **way.fields())
                self.check_states(reply)

    def test_jobs_of_one_batch_end_each_as_it_should(self):
        """While a rank is held still they gather: some expire or are cancelled, the others run together."""
        client = self.connect()
        for number, way in enumerate(ALL_WAYS):
            with self.subTest(way.name):
                self.switch(**way.settings)
                with self.daemon.held_still(rank=1 + number % 3):
                    self.submit_and_give_up(client, way)
                self.read_the_rest(client)

    def submit_and_give_up(self, client, way):
        first, second, third = self.good

        def submit(number, *prompts, **fields):
            client.send_request("encode", id=number, prompts=prompts, layers=[0, 8], **way.fields(), **fields)

        submit("good", first, second)
        submit("late", first, deadline_ms=100, name="late")
        submit("partly bad", BAD_TOKEN, third)
        submit("unwanted", second)
        submit("all bad", NO_TOKENS)
        submit("unwanted too", *self.good, name="unwanted")
        submit("good too", third)
        self.assert_refused(client.read_reply(), "deadline")
        client.send_request("cancel", id="c", request="unwanted")
        client.send_request("cancel", id="d", name="unwanted")
        replies = {reply["id"]: reply for reply in (client.read_reply() for _ in range(4))}
        for number in ("unwanted", "unwanted too"):
            self.assert_refused(replies[number], "cancelled")
        for number in ("c", "d"):
            self.assertTrue(replies[number]["cancelled"], replies)
        self.assertEqual(self.daemon.health()["queue"]["waiting"], 4)

    def read_the_rest(self, client):
        replies = {reply["id"]: reply for reply in (client.read_reply() for _ in range(4))}
        self.check_states(replies["good"], "ok", "ok")
        self.check_tensors(replies["good"]["job"], {0: 0, 1: 1})
        self.check_states(replies["partly bad"], "bad_token", "ok")
        self.check_tensors(replies["partly bad"]["job"], {2: 1})
        self.check_states(replies["all bad"], "empty_prompt")
        self.check_states(replies["good too"], "ok")
        self.check_tensors(replies["good too"]["job"], {2: 0})
        for name, code in (("late", "deadline"), ("unwanted", "cancelled")):
            for rank in (0, 3):
                self.assert_refused(self.connect_reader(rank).acquire(name=name, deadline_ms=2000), code)
        poll(lambda: self.daemon.health()["queue"] == {"running": 0, "waiting": 0}, "nothing is left")


if __name__ == "__main__":
    unittest.main()
