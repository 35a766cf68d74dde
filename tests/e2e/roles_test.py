"""Ranks that do not encode hold nothing of the model, and publish what the others compute."""

import random
import unittest

from harness import TINY
from modes import MODES, WAYS, ModeTestCase, check_same, one_rank_results, random_prompt

SEED = 20260712
RANKS = 4


class Roles(ModeTestCase):
    DAEMON = {"ranks": RANKS, "model": TINY}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(SEED)
        cls.request = {"prompts": [random_prompt(generator, length) for length in (64, 1, 150, 9, 33)]}
        (cls.expected,) = one_rank_results(TINY, [cls.request])

    def check_roles(self, encoders, info):
        for number, rank in enumerate(info["ranks"]):
            held = {key: rank["bytes"][key] for key in ("weights", "replicated", "workspace")}
            if number in encoders:
                self.assertIsNotNone(rank["shard"])
                self.assertGreater(min(held.values()), 0, rank)
            else:
                self.assertIsNone(rank["shard"])
                self.assertEqual(max(held.values()), 0, rank)

    def tokens(self):
        return [rank["tokens"] for rank in self.daemon.health()["ranks"]]

    def check(self, encoders, ways):
        for way in ways:
            with self.subTest(encoders=encoders, way=way.name):
                self.switch(**way.settings, encoder_ranks=encoders)
                info = self.info()
                self.assertEqual(info["encoder_ranks"], encoders)
                self.check_roles(encoders, info)
                before = self.tokens()
                reply, tensors = self.encode(self.request, **way.fields())
                check_same(tensors, self.expected, way.name)
                if way.prefer and len(encoders) > 1:
                    self.assertEqual(reply["cut"], way.prefer)
                worked = [rank for rank, (now, then) in enumerate(zip(self.tokens(), before)) if now > then]
                self.assertEqual(worked, encoders)

    def test_one_encoder_that_is_not_rank_0(self):
        self.check([2], WAYS)

    def test_two_encoders(self):
        self.check([0, 3], WAYS)

    def test_three_encoders_without_rank_0(self):
        self.check([1, 2, 3], WAYS)

    def test_any_order_of_encoders_is_the_same(self):
        self.switch(**MODES["layer"], encoder_ranks=[3, 1])
        _, tensors = self.encode(self.request)
        self.switch(**MODES["layer"], encoder_ranks=[1, 3])
        self.assertEqual(self.encode(self.request)[1], tensors)

    def test_encoders_change_while_encodes_wait(self):
        client = self.connect()
        sent = []
        for encoders in ([0], [1, 3], [2], [0, 1, 2, 3]):
            sent += [client.send_request("encode", **self.request) for _ in range(2)]
            sent.append(client.send_request("switch", mode="sharded", encoder_ranks=encoders))
        replies = [client.read_reply() for _ in sent]
        self.assertEqual(sorted(reply["id"] for reply in replies), sent)
        self.assertEqual([reply for reply in replies if not reply["ok"]], [])


if __name__ == "__main__":
    unittest.main()
