"""Prompts rewritten by the model: what is written, how it comes, what ends it, and who else hears of it."""

import json
import time
import unittest

from enhancing import (ENDLESS, GOLDEN, GREEDY, SHORT, EndlessTestCase, EnhanceTestCase, enhance, image_file,
                       read_replies)
from harness import VOCABULARY
from modes import take_everywhere
from processes import poll

CONTEXT = 4096
SLOTS = 2
REPLY_KEYS = {"id", "ok", "job", "text", "raw_text", "tokens_in", "tokens_out", "tokens_per_s", "stop", "ms"}
GOLDEN_FIELDS = {"system_prompt": GOLDEN["system_prompt"], "greedy": True, "max_new_tokens": 32}
# Greedy, and in circles after a few words.
CIRCLES = "a dog number 0 runs"


def streamed(events):
    """Ids and text."""
    return [number for event in events for number in event["ids"]], "".join(event["text"] for event in events)


class Text(EnhanceTestCase):
    DAEMON = {"ranks": 2}

    def test_equals_the_golden(self):
        events, reply = self.stream(GOLDEN["prompt"], **GOLDEN_FIELDS)
        self.assertEqual(streamed(events), (GOLDEN["greedy_tokens"], GOLDEN["greedy_text"]))
        self.assertEqual((reply["raw_text"], reply["stop"]), (GOLDEN["greedy_text"], "length"))
        self.assertEqual((reply["tokens_in"], reply["tokens_out"]), (len(GOLDEN["input_ids"]), 32))

    def test_without_a_stream_there_is_the_reply_alone(self):
        self.assertEqual(self.enhance(GOLDEN["prompt"], **GOLDEN_FIELDS)["raw_text"], GOLDEN["greedy_text"])
        reply = self.enhance(GOLDEN["prompt"], **GOLDEN_FIELDS, stream=False)
        self.assertEqual(reply["raw_text"], GOLDEN["greedy_text"])

    def test_a_reply_has_its_fields_and_its_times_add_up(self):
        reply = self.enhance(**GREEDY, max_new_tokens=12)
        self.assertEqual(set(reply), REPLY_KEYS)
        ms = reply["ms"]
        self.assertEqual(set(ms), {"queue", "prefill", "decode", "total"})
        self.assertGreater(min(ms["prefill"], ms["decode"]), 0)
        self.assertLessEqual(ms["queue"] + ms["prefill"] + ms["decode"], ms["total"] + 0.01)
        self.assertAlmostEqual(reply["tokens_per_s"], (reply["tokens_out"] - 1) * 1000 / ms["decode"],
                               delta=reply["tokens_per_s"] * 0.01 + 1)
        self.assertEqual(self.enhance(**GREEDY, max_new_tokens=1, name="me")["name"], "me")
        self.assertGreater(self.enhance(max_new_tokens=1)["job"], reply["job"])

    def test_pieces_are_utf8_each_and_the_raw_text_together(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                client = self.connect()
                client.send_request("enhance_t2v", prompt="a dog", **SHORT, seed=seed, temperature=2, top_k=0, stream=True,
                                    max_new_tokens=200)
                events = []
                while "ok" not in (line := json.loads(client.read_line().decode("utf-8", errors="strict"))):
                    line["text"].encode("utf-8", errors="strict")
                    self.assertEqual((line["id"], line["event"]), (1, "token"))
                    self.assertEqual(set(line), {"id", "event", "text", "ids"})
                    events.append(line)
                ids, text = streamed(events)
                self.assertEqual(text, line["raw_text"])
                self.assertEqual(len(ids), line["tokens_out"] - (line["stop"] == "end"))

    def test_the_same_seed_gives_the_same_text_and_another_seed_another(self):
        fields = {**SHORT, "max_new_tokens": 40}
        texts = [self.enhance(**fields, seed=seed)["raw_text"] for seed in (1, 2, 2**53 - 1)]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual([self.enhance(**fields, seed=seed)["raw_text"] for seed in (1, 2, 2**53 - 1)], texts)
        self.assertEqual(self.enhance(**fields)["raw_text"], self.enhance(**fields, seed=10)["raw_text"])

    def test_the_one_best_token_is_the_greedy_one(self):
        text = self.enhance(**GREEDY, max_new_tokens=20)["raw_text"]
        for fields in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}, {"greedy": True, "seed": 5, "temperature": 50.0}):
            with self.subTest(fields):
                self.assertEqual(self.enhance(**SHORT, max_new_tokens=20, **fields)["raw_text"], text)

    def test_no_run_of_tokens_comes_again(self):
        events, _ = self.stream(GOLDEN["prompt"], **{**GOLDEN_FIELDS, "max_new_tokens": 100}, no_repeat_ngram=1)
        ids = streamed(events)[0]
        self.assertGreater(len(ids), 1)
        self.assertEqual(len(set(ids)), len(ids))
        self.assertFalse(set(ids) & set(GOLDEN["input_ids"]))

    def test_text_is_cleaned_unless_asked_otherwise(self):
        fields = {**SHORT, "seed": 7, "temperature": 2.0, "top_k": 0, "max_new_tokens": 60}
        raw = self.enhance(**fields, clean=False)
        self.assertEqual(raw["text"], raw["raw_text"])
        clean = self.enhance(**fields)
        self.assertEqual(clean["raw_text"], raw["raw_text"])
        first = next(i for i, letter in enumerate(clean["raw_text"]) if letter.isalpha())
        self.assertEqual(clean["text"][:1], clean["raw_text"][first])

    def test_circles_end_it_and_are_cut(self):
        events, reply = self.stream(CIRCLES, **GREEDY)
        ids, text = streamed(events)
        self.assertEqual(reply["stop"], "repetition")
        self.assertEqual(len(ids), reply["tokens_out"])
        self.assertLess(reply["tokens_out"], 100)
        self.assertTrue(text.startswith(reply["raw_text"]), (text, reply))
        self.assertLess(len(reply["raw_text"]), len(text))

    def test_circles_go_on_where_they_may(self):
        reply = self.enhance(CIRCLES, **GREEDY, guard=False, max_new_tokens=150)
        self.assertEqual((reply["stop"], reply["tokens_out"]), ("length", 150))

    def test_prompts_of_any_words(self):
        for prompt in ("", "   ", "\0", "\u00e9\u4e2d\U0001f600 " * 20, "{{ bos_token }}", "<b>", "a\r\n\tb"):
            with self.subTest(prompt):
                self.assertGreater(self.enhance(prompt, **GREEDY, max_new_tokens=4)["tokens_out"], 0)
        self.enhance("a", system_prompt="", greedy=True, max_new_tokens=4)

    def test_control_tokens_are_refused_by_name(self):
        for token in ("<end_of_turn>", "<start_of_turn>", "<bos>", "<start_of_image>", "<image_soft_token>"):
            for fields in ({"prompt": f"a {token} b"}, {"prompt": "a", "system_prompt": token}):
                with self.subTest(fields):
                    self.assert_refused(self.connect().call("enhance_t2v", **fields), "bad_text", token)

    def test_metrics_count(self):
        def counts():
            return [self.daemon.metric(series) for series in ("gemmad_generated_tokens_total",
                                                              'gemmad_enhancements_total{result="ok"}')]
        before = counts()
        reply = self.enhance(**GREEDY, max_new_tokens=5)
        self.assertEqual(counts(), [before[0] + reply["tokens_out"], before[1] + 1])


class Bounds(EnhanceTestCase):
    DAEMON = {"ranks": 1, "enhance.context": 256}

    def refused(self, code, *words, op="enhance_t2v", **fields):
        self.assert_refused(self.connect().call(op, **{"prompt": "a", **fields}), code, *words)

    def test_what_does_not_fit_the_context_is_refused_with_the_numbers(self):
        length = self.enhance("", **GREEDY, max_new_tokens=1)["tokens_in"]
        # Each Q is a token of its own, and after "user prompt: " no less than one more.
        one = self.enhance("Q", **GREEDY, max_new_tokens=1)["tokens_in"]
        self.assertGreater(one, length)
        room = 256 - one
        fitting = "Q" * (1 + room - 8)
        self.assertEqual(self.enhance(fitting, **GREEDY, max_new_tokens=8)["tokens_in"], 248)
        self.refused("too_long", "249", "256", "enhance.context", prompt=fitting + "Q", max_new_tokens=8, **GREEDY)
        self.refused("too_long", "256", "256", "enhance.context", prompt="Q" * (1 + room), **GREEDY)
        self.refused("too_long", "enhance.context", prompt="Q" * 100000, **GREEDY)
        self.refused("too_long", "enhance.context", prompt="a")  # gemmad's own system prompt is long

    def test_without_a_limit_it_ends_where_the_context_does(self):
        reply = self.enhance("Q" * 100, **SHORT, no_repeat_ngram=2, greedy=True)
        self.assertLessEqual(reply["tokens_in"] + reply["tokens_out"], 256)

    def test_wrong_values_are_refused_by_field(self):
        for field, values in {
            "prompt": [None, 7, [], ["a"], {"input_ids": [2]}, "x" * (2**20 + 1)],
            "system_prompt": [None, 7, [], "x" * (2**16 + 1)],
            "max_new_tokens": [None, 0, -1, 257, 1.5, "8", 2**63],
            "greedy": [None, 1, "yes"],
            "temperature": [None, 0, -1, 101, "1", 1e-400, True],
            "top_k": [None, -1, VOCABULARY + 1, 1.5, "1"],
            "top_p": [None, 0, -0.1, 1.0001, "1"],
            "seed": [None, -1, 2**53, 1.5, "1"],
            "no_repeat_ngram": [None, -1, 65, 1.5],
            "clean": [None, 1, "no"],
            "guard": [None, 1, "no"],
            "stream": [None, 1, "no"],
            "name": [None, "", 7, "x" * 129],
            "readers": [None, 0, -1, 1.5, "2"],
            "deadline_ms": [None, 0, -1, 1.5, "10", 86400001],
        }.items():
            for value in values:
                with self.subTest(f"{field}: {value!r:.60}"):
                    self.refused("bad_request", field, **{**SHORT, field: value})

    def test_unknown_and_missing_fields_are_refused_by_name(self):
        for op in ("enhance_t2v", "enhance_i2v"):
            self.assert_refused(self.connect().call(op), "bad_request", "prompt")
        self.refused("bad_request", "max_tokens", max_tokens=5)
        self.refused("bad_request", "prompts", prompts=["a"])
        self.refused("bad_request", "outputs", outputs=["hidden_states"])
        image = image_file(b"x")
        self.refused("bad_request", "image", "enhance_i2v", image=image)
        self.refused("bad_request", "image", "enhance_t2v", op="enhance_i2v")
        self.refused("bad_request", "imge", op="enhance_i2v", image=image, imge=1)

    def test_the_field_of_an_encode_is_checked_likewise(self):
        for enhance_field in (None, 1, "yes", [], {"max_new_tokens": 0}, {"prompt": "a"}, {"temprature": 1}, {"image": 1},
                              {"name": "x"}):
            with self.subTest(enhance_field):
                self.assert_refused(self.connect().call("encode", prompts=["a"], enhance=enhance_field), "bad_request")
        for prompts in ([], [{"input_ids": [2]}], [{"input_ids": [2]}, "a"]):
            with self.subTest(prompts):
                self.assert_refused(self.connect().call("encode", prompts=prompts, enhance=True), "bad_request", "enhance")

    def test_bad_utf8_is_refused(self):
        for line in (b'{"id":1,"op":"enhance_t2v","prompt":"\xff"}', rb'{"id":1,"op":"enhance_t2v","prompt":"\ud800"}',
                     b'{"id":1,"op":"enhance_t2v","prompt":"a","system_prompt":"\xc3("}'):
            self.assert_refused(self.connect().ask(line), "bad_request")

    def test_a_bad_request_leaves_the_connection_to_the_next(self):
        client = self.connect()
        self.assertFalse(enhance(client, "a", max_new_tokens=0)["ok"])
        self.assertTrue(enhance(client, "a", **GREEDY, max_new_tokens=2)["ok"])


class Running(EndlessTestCase):
    """What stops one that runs or waits: its slot is free for the next every time."""

    DAEMON = {"ranks": 2, "enhance.slots": SLOTS, "enhance.rank": 0, "enhance.queue": 8}

    def tearDown(self):
        super().tearDown()
        self.assert_slots_free()

    def settle(self):
        """All whose clients have gone end. They fill the queue until the engine has heard of it."""
        poll(lambda: self.enhancements() == {"running": 0, "waiting": 0}, "all have ended")
        poll(lambda: enhance(self.connect(), "a", **GREEDY, max_new_tokens=1)["ok"], "the queue has room")

    def assert_slots_free(self):
        """As many as there are slots run at once."""
        self.settle()
        clients = [self.begin(f"again {i}", **ENDLESS)[0] for i in range(SLOTS)]
        self.assertEqual(self.enhancements(), {"running": SLOTS, "waiting": 0})
        for client in clients:
            client.close()
        self.settle()

    def assert_cancelled(self, client, number):
        """What a client with one enhancement, whose cancel came over another connection, hears."""
        reply = read_replies(client, 1)[number]
        self.assert_refused(reply, "cancelled", "cancelled")

    def test_is_cancelled_by_its_request(self):
        for _ in range(SLOTS + 1):
            client, number = self.begin(**ENDLESS)
            cancel = client.send_request("cancel", request=number)
            replies = read_replies(client, 2)
            self.assertEqual((replies[cancel]["ok"], replies[cancel]["cancelled"]), (True, True), replies)
            self.assert_refused(replies[number], "cancelled")

    def test_is_cancelled_by_its_name_and_by_its_job(self):
        for number_of_try in range(SLOTS + 1):
            client, number = self.begin(**ENDLESS, name="long")
            reply = self.connect().call("cancel", name="long")
            self.assertTrue(reply["cancelled"], reply)
            self.assert_cancelled(client, number)
            client, number = self.begin(**ENDLESS)
            reply = self.connect().call("cancel", job=reply["job"] + 1)
            self.assertTrue(reply["ok"], f"{number_of_try}: {reply}")
            self.assert_cancelled(client, number)

    def test_one_that_waits_is_cancelled_and_the_others_run_on(self):
        running = [self.begin(f"dog {i}", **ENDLESS) for i in range(SLOTS)]
        waiting = self.connect()
        number = waiting.send_request("enhance_t2v", prompt="waits", **ENDLESS)
        poll(lambda: self.enhancements() == {"running": SLOTS, "waiting": 1}, "it waits")
        cancel = waiting.send_request("cancel", request=number)
        replies = read_replies(waiting, 2)
        self.assertTrue(replies[cancel]["ok"])
        self.assert_refused(replies[number], "cancelled")
        for client, _ in running:
            self.assertEqual(client.read_reply()["event"], "token")

    def test_what_is_not_there_cannot_be_cancelled(self):
        client = self.connect()
        done = enhance(client, "a", **{**ENDLESS, "stream": False, "max_new_tokens": 2}, name="done")
        for key in ({"job": done["job"]}, {"job": 2**40}, {"name": "done"}, {"request": done["id"]}):
            self.assert_refused(client.call("cancel", **key), "not_found")

    def test_a_deadline_ends_it_while_it_runs_and_while_it_waits(self):
        for _ in range(SLOTS + 1):
            client, number = self.begin(**ENDLESS, deadline_ms=500)
            self.assert_refused(read_replies(client, 1)[number], "deadline", "tokens")
        for i in range(SLOTS):
            self.begin(f"dog {i}", **ENDLESS)
        waiting = self.connect()
        started = time.monotonic()
        reply = enhance(waiting, "waits", **{**ENDLESS, "stream": False}, deadline_ms=150)
        self.assert_refused(reply, "deadline")
        self.assertGreaterEqual(time.monotonic() - started, 0.149)

    def test_a_client_that_leaves_frees_its_slot(self):
        for _ in range(SLOTS + 1):
            self.begin(**ENDLESS)[0].close()
        client, _ = self.begin(**ENDLESS)
        client.send_request("enhance_t2v", prompt="waits and goes", **ENDLESS)
        client.close()
        self.settle()

    def test_a_client_that_does_not_read_its_stream_keeps_nobody_waiting(self):
        self.begin(**ENDLESS)
        reply = self.enhance("another", **{**ENDLESS, "stream": False, "max_new_tokens": 50})
        self.assertEqual((reply["tokens_out"], reply["stop"]), (50, "length"))

    def test_together_they_give_what_each_gives_alone(self):
        """Those that wait among them, on one connection and on several."""
        requests = [{**ENDLESS, "prompt": f"a dog number {i} runs" * (i + 1), "seed": i, "max_new_tokens": 20 + 30 * i,
                     "greedy": i % 2 == 0, "no_repeat_ngram": 3} for i in range(3 * SLOTS)]
        alone = [self.stream(**request) for request in requests]
        clients = [self.connect(), self.connect()]
        sent = {}
        for index, request in enumerate(requests):
            client = clients[index % 2]
            sent[index % 2, client.send_request("enhance_t2v", **request)] = index
        events = {index: [] for index in range(len(requests))}
        replies = {}
        for place, client in enumerate(clients):
            for _ in range(len(requests) // 2):
                while "ok" not in (line := client.read_reply()):
                    events[sent[place, line["id"]]].append(line)
                replies[sent[place, line["id"]]] = line
        for index, (alone_events, alone_reply) in enumerate(alone):
            with self.subTest(index):
                self.assertEqual(streamed(events[index]), streamed(alone_events))
                for key in ("text", "raw_text", "stop", "tokens_in", "tokens_out"):
                    self.assertEqual(replies[index][key], alone_reply[key], key)

    def test_more_than_the_queue_takes_are_refused(self):
        clients = [self.connect() for _ in range(8)]
        for i, client in enumerate(clients):
            client.send_request("enhance_t2v", prompt=f"dog {i}", **ENDLESS)
        poll(lambda: sum(self.enhancements().values()) == 8, "the queue is full")
        self.assert_refused(enhance(self.connect(), "a", **GREEDY), "queue_full", "8", "enhance.queue")
        clients[-1].close()
        poll(lambda: sum(self.enhancements().values()) == 7, "one has gone")
        # The engine may take a step to let go of it.
        poll(lambda: self.is_taken("a"), "the next one takes its place")

    def is_taken(self, prompt):
        """Whether another one waits now."""
        before = sum(self.enhancements().values())
        client = self.connect()
        client.send_request("enhance_t2v", prompt=prompt, **ENDLESS)
        client.send_request("health", id="health")
        while (reply := client.read_reply())["id"] != "health":
            if not reply.get("ok", True):
                self.assert_refused(reply, "queue_full")
        return sum(reply["enhancements"].values()) > before

    def test_a_name_and_an_id_in_use_are_refused(self):
        client, number = self.begin(**ENDLESS, name="taken")
        for op, fields in (("enhance_t2v", {"prompt": "a"}), ("encode", {"prompts": ["a"], "layers": [8]}),
                           ("encode", {"prompts": ["a"], "layers": [8], "enhance": True})):
            self.assert_refused(self.connect().call(op, **fields, name="taken"), "name_in_use", "taken")
        client.send_request("enhance_t2v", id=number, prompt="a")
        while "ok" not in (line := client.read_reply()):
            pass
        self.assert_refused(line, "duplicate_id")

    def test_an_order_that_changes_nothing_keeps_the_slots(self):
        for op in ("wake", "sleep", "wake"):
            for _ in range(SLOTS + 1):
                self.enhance("a", **GREEDY, max_new_tokens=2)
                reply = self.connect().call(op)
                self.assertTrue(reply["ok"], reply)


class Readers(EnhanceTestCase):
    """Of every rank: a text is a result as others are."""

    DAEMON = {"ranks": 2, "enhance.slots": SLOTS}

    def check(self, lease, reader, reply):
        self.assertTrue(lease["ok"], lease)
        self.assertEqual(lease["job"], reply["job"])
        (prompt,) = lease["prompts"]
        (tensor,) = prompt["tensors"]
        text = reply["text"].encode()
        self.assertEqual((tensor["name"], tensor["dtype"], tensor["shape"], tensor["bytes"]),
                         ("text", "U8", [len(text)], len(text)))
        self.assertEqual(reader.tensors(lease)["prompt.0.text"].data, text)
        reader.release(lease)

    def test_find_it_by_job_on_every_rank(self):
        reply = self.enhance(**SHORT, seed=4, max_new_tokens=50)
        self.assertGreater(len(reply["text"]), 0)
        for rank in (0, 1):
            reader = self.connect_reader(rank)
            self.check(reader.acquire(job=reply["job"]), reader, reply)

    def test_find_it_by_name_before_and_after_it_is_there(self):
        readers = [self.connect_reader(rank) for rank in (0, 1)]
        for reader in readers:
            reader.client.send_request("acquire", name="words", deadline_ms=60000)
        self.assertTrue(readers[0].client.call("ping", id=99)["ok"], "nothing is answered yet")
        reply = self.enhance(**GREEDY, max_new_tokens=10, name="words", readers=2)
        for rank, reader in enumerate(readers):
            self.check(reader.client.read_reply(), reader, reply)
            later = self.connect_reader(rank)
            self.check(later.acquire(name="words"), later, reply)
        self.enhance(**GREEDY, max_new_tokens=10, name="words")

    def test_do_not_find_one_whose_name_is_owed_to_others(self):
        first = self.enhance(**GREEDY, max_new_tokens=10, name="twice")
        second = self.enhance("another", **GREEDY, max_new_tokens=10, name="twice")
        for rank in (0, 1):
            reader = self.connect_reader(rank)
            self.assert_refused(reader.acquire(job=second["job"]), "name_in_use", "twice")
            self.check(reader.acquire(name="twice"), reader, first)

    def test_await_it_by_job(self):
        known = self.enhance(**GREEDY, max_new_tokens=2)["job"]
        readers = [self.connect_reader(rank) for rank in (0, 1)]
        for reader in readers:
            reader.client.send_request("acquire", job=known + 1, deadline_ms=60000)
        reply = self.enhance(**GREEDY, max_new_tokens=10)
        for reader in readers:
            self.check(reader.client.read_reply(), reader, reply)

    def test_an_empty_text_is_a_text(self):
        reply = self.empty()
        for rank in (0, 1):
            reader = self.connect_reader(rank)
            self.check(reader.acquire(job=reply["job"]), reader, reply)

    def empty(self):
        """The reply of one whose only token is a control token: about one in 50 that are drawn out of all."""
        client = self.connect()
        for seed in range(2000):
            reply = enhance(client, "a", **SHORT, seed=seed, temperature=100.0, top_k=0, max_new_tokens=1)
            if not reply["text"]:
                return reply
        raise AssertionError("no control token is ever drawn")

    def failed(self, code, client, number, name):
        """All readers hear of it as the client does."""
        reply = read_replies(client, 1)[number]
        self.assert_refused(reply, code)
        for rank in (0, 1):
            self.assertEqual(self.connect_reader(rank).acquire(name=name)["error"], reply["error"])

    def test_hear_of_one_that_failed(self):
        for name, code, fields in (("long", "too_long", {"prompt": "Q" * 5000}), ("late", "deadline", {"deadline_ms": 1}),
                                   ("blind", "bad_image", {"image": image_file(b"no image")})):
            with self.subTest(name):
                client = self.connect()
                op = "enhance_i2v" if "image" in fields else "enhance_t2v"
                # No token repeats: at 1 ms it is somewhere between, wherever that is.
                number = client.send_request(op, **{"prompt": "a", **GREEDY, "no_repeat_ngram": 1, **fields}, name=name)
                self.failed(code, client, number, name)

    def test_hear_of_one_that_was_cancelled_while_they_waited(self):
        client = self.connect()
        readers = [self.connect_reader(rank) for rank in (0, 1)]
        for reader in readers:
            reader.client.send_request("acquire", name="never", deadline_ms=60000)
        number = client.send_request("enhance_t2v", prompt="a" * 3000, **GREEDY, no_repeat_ngram=2, name="never")
        client.send_request("cancel", request=number)
        replies = read_replies(client, 2)
        self.assert_refused(replies[number], "cancelled")
        for reader in readers:
            self.assertEqual(reader.client.read_reply()["error"], replies[number]["error"])

    # Before an encode.

    def encode(self, prompts, **fields):
        reply = self.connect().call("encode", prompts=prompts, layers=[0, 4, 8], return_input_ids=True, **fields)
        self.assertTrue(reply["ok"], reply)
        return reply, take_everywhere(self.daemon, reply["job"])

    def test_an_enhanced_encode_is_the_encode_of_the_enhanced_text(self):
        for name, options in (("greedy", {**GREEDY, "max_new_tokens": 30}), ("sampled", {**SHORT, "max_new_tokens": 30, "seed": 3}),
                              ("default", True)):
            with self.subTest(name):
                reply, tensors = self.encode(["a dog runs", "as it is"], enhance=options, name=name)
                enhanced = reply["enhanced"]
                self.assertNotEqual(enhanced["text"], "a dog runs")
                fields = options if isinstance(options, dict) else {}
                alone = self.enhance("a dog runs", **fields)
                for key in ("text", "raw_text", "tokens_in", "tokens_out", "stop"):
                    self.assertEqual(enhanced[key], alone[key], key)
                direct, expected = self.encode([enhanced["text"], "as it is"])
                self.assertEqual([prompt["input_ids"] for prompt in reply["prompts"]],
                                 [prompt["input_ids"] for prompt in direct["prompts"]])
                self.assertEqual(tensors, expected)
                self.assertNotIn("enhanced", direct)

    def test_an_encode_that_is_not_enhanced_says_so(self):
        reply, _ = self.encode(["a dog runs"], enhance=False)
        self.assertNotIn("enhanced", reply)

    def test_readers_of_an_enhanced_encode_find_its_tensors(self):
        reader = self.connect_reader(1)
        reader.client.send_request("acquire", name="both", deadline_ms=60000)
        reply, _ = self.encode(["a dog runs"], enhance={**GREEDY, "max_new_tokens": 10}, name="both", readers=2)
        lease = reader.client.read_reply()
        self.assertEqual((lease["ok"], lease["job"]), (True, reply["job"]))
        self.assertIn("prompt.0.hidden_states.8", reader.tensors(lease))

    def test_an_encode_whose_prompt_cannot_be_enhanced_fails_with_its_readers(self):
        for name, code, options in (("e-long", "too_long", {"system_prompt": "Q" * 5000}),
                                    ("e-blind", "bad_image", {"image": image_file(b"no image")})):
            with self.subTest(name):
                client = self.connect()
                number = client.send_request("encode", prompts=["a"], enhance=options, name=name)
                self.failed(code, client, number, name)
        client = self.connect()
        number = client.send_request("encode", prompts=["a"], enhance=GREEDY, name="e-late", deadline_ms=1)
        self.failed("deadline", client, number, "e-late")


class Circles(EnhanceTestCase):
    def test_an_encode_takes_the_text_before_the_circles(self):
        reply = self.connect().call("encode", prompts=[CIRCLES], layers=[8], enhance=GREEDY, return_input_ids=True)
        self.assertEqual(reply["enhanced"]["stop"], "repetition")
        ids = self.connect().call("tokenize", texts=[reply["enhanced"]["text"]], as_prompts=True)["texts"][0]["ids"]
        self.assertEqual(reply["prompts"][0]["input_ids"], ids)


class NoTokenizer(EnhanceTestCase):
    DAEMON = {"ranks": 1, "model": None, "weights": "random", "preset": "gemma-3-270m", "segment_mib": 16}

    def test_a_made_model_rewrites_nothing_and_says_why(self):
        self.assertIsNone(self.daemon.ask("info")["enhance"])
        self.assert_refused(enhance(self.connect(), "a"), "no_enhancer", "tokenizer")


if __name__ == "__main__":
    unittest.main()
