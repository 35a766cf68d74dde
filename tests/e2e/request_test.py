"""Requests good and bad: what each gets, and that the daemon answers the next client."""

import json
import unittest

from goldens import PROMPTS, TEXT_GOLDEN
from harness import BOS, VOCABULARY, DaemonTestCase

MAX_TOKENS = 1024


class RequestTestCase(DaemonTestCase):
    def tearDown(self):
        self.assert_alive()

    def encode(self, prompts, **fields):
        reply = self.connect().call("encode", prompts=prompts, **{"layers": [8], **fields})
        self.assertTrue(reply["ok"], reply)
        return reply

    def refused(self, line, code, *words):
        if not isinstance(line, bytes):
            line = json.dumps(line).encode()
        reply = self.connect().ask(line)
        self.assert_refused(reply, code, *words)
        return reply


class Prompts(RequestTestCase):
    DAEMON = {"ranks": 2}

    def test_an_empty_list_is_answered_with_an_empty_list(self):
        reply = self.encode([])
        self.assertEqual(reply["prompts"], [])
        lease = self.connect_reader().acquire(reply["job"])
        self.assertEqual((lease["ok"], lease["prompts"]), (True, []))

    def test_nothing_and_white_space_are_bos_alone(self):
        reply = self.encode(["", "   ", "\t\n\u3000"], return_input_ids=True)
        for prompt in reply["prompts"]:
            self.assertEqual((prompt["status"], prompt["tokens"], prompt["input_ids"]), ("ok", 1, [BOS]))
            self.assertEqual(prompt["tensors"], [{"name": "hidden_states.8", "dtype": "F32", "shape": [1, 96]}])

    def test_ids_are_cut_at_the_limit_and_it_is_told(self):
        lengths = [1023, 1024, 1025, 5000]
        reply = self.encode([{"input_ids": [BOS] + [7] * (length - 1)} for length in lengths])
        self.assertEqual([prompt["tokens"] for prompt in reply["prompts"]], [1023, 1024, 1024, 1024])
        self.assertEqual([prompt["truncated"] for prompt in reply["prompts"]], [False, False, True, True])
        self.assertEqual(reply["prompts"][3]["tensors"][0]["shape"], [1024, 96])

    def test_text_is_cut_at_the_limit_and_it_is_told(self):
        count = self.connect().call("tokenize", texts=["Q" * 40])["texts"][0]["count"]
        self.assertEqual(count, 1 + 40, "the tiny vocabulary no longer has one token for each Q")
        lengths = [1023, 1024, 1025, 5000]
        reply = self.encode(["Q" * (length - 1) for length in lengths], return_input_ids=True)
        self.assertEqual([prompt["tokens"] for prompt in reply["prompts"]], [1023, 1024, 1024, 1024])
        self.assertEqual([prompt["truncated"] for prompt in reply["prompts"]], [False, False, True, True])
        self.assertEqual({prompt["input_ids"][0] for prompt in reply["prompts"]}, {BOS})

    def test_what_is_cut_off_does_not_matter(self):
        ids = [BOS] + [(i * 7) % 400 + 20 for i in range(1499)]
        reply = self.encode([{"input_ids": ids}, {"input_ids": ids[:MAX_TOKENS]}])
        tensors = self.connect_reader().take(reply["job"])
        self.assertEqual(tensors["prompt.0.hidden_states.8"], tensors["prompt.1.hidden_states.8"])

    def test_control_tokens_that_a_user_types_are_control_tokens(self):
        reply = self.encode([PROMPTS[5]], return_input_ids=True)
        self.assertEqual(reply["prompts"][0]["input_ids"], list(TEXT_GOLDEN["prompt.5.input_ids"].values()))

    def test_nul_is_a_character_like_others(self):
        reply = self.encode(["\0", "a\0b"], return_input_ids=True)
        self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["ok", "ok"])
        self.assertEqual(reply["prompts"][0]["tokens"], 2)
        self.assertIn(reply["prompts"][0]["input_ids"][1], reply["prompts"][1]["input_ids"])

    def test_an_id_out_of_range_fails_that_prompt_alone(self):
        for wrong in (-1, VOCABULARY, 2**31, 2**63 - 1, -2**63):
            with self.subTest(wrong):
                reply = self.encode([{"input_ids": [BOS]}, {"input_ids": [BOS, wrong]}, {"input_ids": [BOS, VOCABULARY - 1]}])
                self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["ok", "error", "ok"])
                error = reply["prompts"][1]["error"]
                self.assertEqual(error["code"], "bad_token")
                self.assertIn(str(wrong), error["message"])
                self.assertIn(str(VOCABULARY - 1), error["message"])
                lease = self.connect_reader(1).acquire(reply["job"])
                self.assertEqual(lease["prompts"][1], {"status": "error", "error": error})

    def test_no_ids_fail_that_prompt_alone(self):
        reply = self.encode([{"input_ids": []}, "a"])
        self.assertEqual(reply["prompts"][0]["error"]["code"], "empty_prompt")
        self.assertEqual(reply["prompts"][1]["status"], "ok")

    def test_a_request_whose_prompts_all_failed_is_answered(self):
        reply = self.encode([{"input_ids": [-1]}, {"input_ids": []}])
        self.assertEqual([prompt["status"] for prompt in reply["prompts"]], ["error", "error"])


class Lines(RequestTestCase):
    DAEMON = {"ranks": 1, "max_prompts": 4, "max_line_bytes": 65536}

    def test_invalid_utf8_is_refused(self):
        for wrong in (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80"):
            with self.subTest(wrong):
                self.refused(b'{"id":1,"op":"encode","prompts":["' + wrong + b'"]}', "bad_request", "UTF-8")

    def test_lone_surrogate_escapes_are_refused(self):
        for wrong in (rb"\ud800", rb"\udc00", rb"\ud800x", rb"\ud800\ud800", rb"\udc00\ud800"):
            with self.subTest(wrong):
                self.refused(b'{"id":1,"op":"encode","prompts":["' + wrong + b'"]}', "bad_request", "surrogate")

    def test_a_bare_nul_is_refused(self):
        self.refused(b'{"id":1,"op":"encode","prompts":["a\0b"]}', "bad_request")
        self.refused(b"\0", "bad_request")

    def test_what_is_no_json_object_is_refused_without_an_id(self):
        for line in (b"hello", b"{", b"[]", b"7", b'"x"', b"null", b'{"id":1,"op":"health"} x', b'{"id":1 "op":"health"}',
                     b"[" * 60000, b'{"id":' * 9000, b'{"id":1e999,"op":"health"}', b"\xef\xbb\xbf{}"):
            with self.subTest(line[:40]):
                self.assertIsNone(self.refused(line, "bad_request")["id"])

    def test_a_repeated_key_is_refused(self):
        self.refused(b'{"id":1,"op":"health","op":"info"}', "bad_request", "op")

    def test_an_unknown_op_is_refused_with_the_known_ones(self):
        reply = self.refused({"id": "x", "op": "dance"}, "unknown_op", "dance", "encode", "shutdown")
        self.assertEqual(reply["id"], "x")

    def test_an_unknown_output_is_refused_with_the_known_ones(self):
        self.refused({"id": 1, "op": "encode", "prompts": ["a"], "outputs": ["embedings"]}, "bad_request", "embedings",
                     "hidden_states")

    def test_an_unknown_field_is_refused_by_name(self):
        self.refused({"id": 1, "op": "encode", "prompts": ["a"], "promts": []}, "bad_request", "promts")
        self.refused({"id": 1, "op": "health", "now": True}, "bad_request", "now")
        self.refused({"id": 1, "op": "sleep", "now": True}, "bad_request", "now")
        self.refused({"id": 1, "op": "switch", "mode": "sharded", "segment_mib": 1}, "bad_request", "segment_mib")
        self.refused({"id": 1, "op": "encode", "prompts": [{"input_ids": [2], "text": "a"}]}, "bad_request", "text")

    def test_wrong_types_and_values_are_refused_by_field(self):
        encode = {"id": 1, "op": "encode", "prompts": ["a"]}
        for field, values in {
            "prompts": [None, "a", {}, [7], [None], [["a"]], [{}], [{"input_ids": "2"}], [{"input_ids": [2.5]}],
                        [{"input_ids": ["2"]}], [{"input_ids": [2**63]}]],
            "outputs": [None, "hidden_states", [], [7], {}],
            "layers": [None, 3, [], [-1], [9], [1.5], ["0"], [2**64]],
            "name": [None, "", 7, "x" * 129],
            "deadline_ms": [None, 0, -1, 1.5, "10", 86400001, 2**63],
            "return_input_ids": [None, 1, "yes"],
            "prefer": [None, "", "both", 1, ["deal"]],
            "readers": [None, 0, -1, 1.5, "2", 1000001, 2**63],
        }.items():
            for value in values:
                with self.subTest(f"{field}: {value!r:.60}"):
                    self.refused({**encode, field: value}, "bad_request", "prompts" if field == "prompts" else field)

    def test_missing_fields_are_refused_by_name(self):
        self.refused({"id": 1, "op": "encode"}, "bad_request", "prompts")
        self.refused({"id": 1}, "bad_request", "op")
        self.refused({"op": "health"}, "bad_request", "id")
        self.refused({"id": 1, "op": "tokenize"}, "bad_request", "texts")
        self.refused({"id": 1, "op": "cancel"}, "bad_request", "job", "name", "request")
        self.refused({"id": 1, "op": "cancel", "job": 1, "name": "x"}, "bad_request", "exactly one")

    def test_layers_without_hidden_states_are_refused(self):
        self.refused({"id": 1, "op": "encode", "prompts": [], "outputs": ["last_hidden_state"], "layers": [0]}, "bad_request",
                     "layers")

    def test_ids_are_whole_numbers_or_short_strings(self):
        for good in (0, -5, 2**63 - 1, 2**64 - 1, "", "a\"b\\\u20ac", "x" * 126):
            reply = self.connect().ask(json.dumps({"id": good, "op": "health"}).encode())
            self.assertEqual((reply["ok"], reply["id"]), (True, good))
        for wrong in (1.5, None, True, [], {}, "x" * 127):
            with self.subTest(wrong):
                self.assertIsNone(self.refused({"id": wrong, "op": "health"}, "bad_request", "id")["id"])

    def test_more_prompts_than_allowed_have_a_code_of_their_own(self):
        self.refused({"id": 1, "op": "encode", "prompts": ["a"] * 5}, "too_many_prompts", "5", "4", "max_prompts")
        self.refused({"id": 1, "op": "tokenize", "texts": ["a"] * 5}, "too_many_prompts", "5", "4")
        self.assertEqual(len(self.encode(["a"] * 4)["prompts"]), 4)

    def test_a_bad_request_does_not_end_the_connection(self):
        client = self.connect()
        self.assertFalse(client.ask(b"nonsense")["ok"])
        self.assertFalse(client.ask(b'{"id":9,"op":"nonsense"}')["ok"])
        self.assertTrue(client.call("health")["ok"])

    def test_a_line_of_exactly_the_limit_is_read_and_one_more_is_not(self):
        client = self.connect()
        frame = len('{"id":1,"op":"tokenize","texts":[""]}')
        line = '{"id":1,"op":"tokenize","texts":["' + "Q" * (65536 - frame) + '"]}'
        self.assertTrue(client.ask(line.encode())["ok"])
        reply = client.ask(line.replace("Q", "QQ", 1).encode())
        self.assert_refused(reply, "line_too_long", "65536", "max_line_bytes")
        self.assertIsNone(reply["id"])
        self.assertTrue(client.call("health")["ok"])

    def test_empty_lines_are_no_requests(self):
        client = self.connect()
        client.send(b"\n\n\n")
        self.assertTrue(client.call("health")["ok"])

    def test_every_request_on_a_pipelined_connection_gets_one_reply(self):
        client = self.connect()
        ids = [client.send_request(op) for op in ("health", "info", "metrics", "dance", "health") for _ in range(20)]
        ids += [client.send_request("encode", prompts=["a"], layers=[0]) for _ in range(20)]
        self.assertEqual(sorted(client.read_reply()["id"] for _ in ids), ids)


class Tokenize(RequestTestCase):
    DAEMON = {"ranks": 1}

    def test_gives_ids_as_they_are_and_as_encode_would(self):
        client = self.connect()
        ids = list(TEXT_GOLDEN["prompt.1.input_ids"].values())
        reply = client.call("tokenize", texts=[PROMPTS[1], "", " " + PROMPTS[1]])
        self.assertEqual([text["ids"] for text in reply["texts"][:2]], [ids, [BOS]])
        self.assertNotEqual(reply["texts"][2]["ids"], ids)
        reply = client.call("tokenize", texts=[f" {PROMPTS[1]}\n", " ", "Q" * 5000], as_prompts=True)
        self.assertEqual([text["count"] for text in reply["texts"]], [len(ids), 1, 1024])
        self.assertEqual([text["truncated"] for text in reply["texts"]], [False, False, True])
        self.assertEqual(reply["texts"][0]["ids"], ids)

    def test_a_megabyte_of_one_letter_takes_no_time(self):
        reply = self.connect().call("tokenize", texts=["a" * 1_000_000], as_prompts=True)
        self.assertTrue(reply["texts"][0]["truncated"])


if __name__ == "__main__":
    unittest.main()
