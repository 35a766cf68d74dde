"""Text in, hidden states out, through the real sockets: equal to the goldens, whatever the number of ranks."""

import unittest

from goldens import LIMIT, PADDED_ROW_LIMIT, PROMPTS, STATES, TEXT_GOLDEN, padded_golden
from harness import BOS, TEXT_TINY, TINY, DaemonTestCase
from tensors import check_close


class GoldenTestCase(DaemonTestCase):
    def encode(self, prompts, **fields):
        """The reply and the tensors, read from every rank and the same on all of them."""
        reply = self.connect().call("encode", prompts=prompts, **fields)
        self.assertTrue(reply["ok"], reply)
        first = None
        for rank in range(self.DAEMON["ranks"]):
            tensors = self.connect_reader(rank).take(reply["job"])
            first = first or tensors
            self.assertEqual(tensors.keys(), first.keys())
            for name, tensor in tensors.items():
                self.assertEqual(tensor, first[name], f"{name} on rank {rank} and on rank 0")
        return reply, first or {}

    def check_all(self, tensors, expected, row_limit=LIMIT):
        self.assertEqual(sorted(tensors), sorted(expected))
        for name, golden in expected.items():
            check_close(tensors[name], golden, LIMIT, name, row_limit)


class OneRank(GoldenTestCase):
    DAEMON = {"ranks": 1}

    def test_text_prompts_equal_the_goldens(self):
        reply, tensors = self.encode(PROMPTS, return_input_ids=True)
        self.check_all(tensors, {name: golden for name, golden in TEXT_GOLDEN.items() if "hidden_states" in name})
        for index, prompt in enumerate(reply["prompts"]):
            self.assertEqual(prompt["status"], "ok")
            self.assertEqual(prompt["input_ids"], list(TEXT_GOLDEN[f"prompt.{index}.input_ids"].values()))
            self.assertEqual(prompt["tokens"], len(prompt["input_ids"]))
            self.assertEqual((prompt["padded_length"], prompt["truncated"]), (1024, False))

    def test_input_ids_equal_the_goldens(self):
        ids, expected = padded_golden(TINY)
        reply, tensors = self.encode([{"input_ids": row} for row in ids])
        self.assertEqual([prompt["tokens"] for prompt in reply["prompts"]], [len(row) for row in ids])
        self.check_all(tensors, expected, PADDED_ROW_LIMIT)

    def test_a_batch_equals_each_prompt_alone(self):
        _, together = self.encode(PROMPTS)
        for index, prompt in enumerate(PROMPTS):
            _, alone = self.encode([prompt])
            for state in STATES:
                check_close(together[f"prompt.{index}.{state}"], alone[f"prompt.0.{state}"], LIMIT, f"{index} {state}")

    def test_the_same_request_gives_the_same_bytes(self):
        _, first = self.encode(PROMPTS)
        for _ in range(3):
            _, again = self.encode(PROMPTS)
            self.assertEqual(again, first)

    def test_delivers_only_the_layers_that_were_asked_for(self):
        _, tensors = self.encode([PROMPTS[1]], layers=[8, 0, 3, 3])
        self.assertEqual(sorted(tensors), ["prompt.0.hidden_states.0", "prompt.0.hidden_states.3",
                                           "prompt.0.hidden_states.8"])
        for name, tensor in tensors.items():
            check_close(tensor, TEXT_GOLDEN[name.replace("prompt.0", "prompt.1")], LIMIT, name)

    def test_the_last_hidden_state_is_the_one_after_the_final_norm(self):
        _, tensors = self.encode([PROMPTS[1]], outputs=["last_hidden_state"])
        self.assertEqual(list(tensors), ["prompt.0.last_hidden_state"])
        check_close(tensors["prompt.0.last_hidden_state"], TEXT_GOLDEN["prompt.1.hidden_states.8"], LIMIT, "last")

    def test_outputs_add_up(self):
        _, tensors = self.encode([PROMPTS[0]], outputs=["last_hidden_state", "hidden_states"], layers=[8])
        self.assertEqual(tensors["prompt.0.last_hidden_state"], tensors["prompt.0.hidden_states.8"])


class MixedLengths:
    """For any number of ranks: what is dealt to several ranks comes back as it was sent."""

    def test_text_prompts_equal_the_goldens(self):
        _, tensors = self.encode(PROMPTS)
        self.check_all(tensors, {name: golden for name, golden in TEXT_GOLDEN.items() if "hidden_states" in name})

    def test_prompts_come_back_in_the_order_of_the_request(self):
        # Each prompt has its own length and its own first id, so none can be taken for another.
        prompts = [{"input_ids": [BOS] + [10 + index] * length} for index, length in
                   enumerate([3, 90, 0, 17, 400, 1, 60, 5, 200, 33, 7])]
        reply, tensors = self.encode(prompts, layers=[0, 8], return_input_ids=True)
        for index, prompt in enumerate(prompts):
            self.assertEqual(reply["prompts"][index]["input_ids"], prompt["input_ids"])
            _, alone = self.encode([prompt], layers=[0, 8])
            for state in ("hidden_states.0", "hidden_states.8"):
                check_close(tensors[f"prompt.{index}.{state}"], alone[f"prompt.0.{state}"], LIMIT, f"{index} {state}")

    def test_the_same_request_gives_the_same_bytes(self):
        _, first = self.encode(PROMPTS)
        _, again = self.encode(PROMPTS)
        self.assertEqual(again, first)


class TwoRanks(MixedLengths, GoldenTestCase):
    DAEMON = {"ranks": 2}

    def test_every_rank_has_computed_its_share(self):
        self.encode([{"input_ids": [BOS] * 64}] * 8)
        reply = self.daemon.health()
        self.assertGreater(min(rank["tokens"] for rank in reply["ranks"]), 0, reply["ranks"])


class FourRanks(MixedLengths, GoldenTestCase):
    DAEMON = {"ranks": 4}


class TextOnlyModelInShards(GoldenTestCase):
    DAEMON = {"ranks": 2, "model": TEXT_TINY}

    def test_input_ids_equal_the_goldens(self):
        ids, expected = padded_golden(TEXT_TINY)
        _, tensors = self.encode([{"input_ids": row} for row in ids])
        self.check_all(tensors, expected, PADDED_ROW_LIMIT)


if __name__ == "__main__":
    unittest.main()
