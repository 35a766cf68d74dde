"""The Python package against servers that say what gemmad never would, and the protocol without any server."""

import asyncio
import base64
import os
import pickle
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import fake_gemmad
from fake_gemmad import FakeDaemon, FakeServer, greet, make_segment, requests, send
from python_package import HAS_TORCH

from gemmad_client import (AsyncClient, AsyncReader, Client, Disconnected, GemmadError, ProtocolError, Reader,
                           RequestFailed, Unresponsive)
from gemmad_client import connection as connection_module
from gemmad_client import requests as client_requests
from gemmad_client.conversation import Conversation, Lines, milliseconds

TENSOR = {"name": "hidden_states.0", "dtype": "F32", "shape": [4, 8], "offset": 4096, "bytes": 128}
PROMPT = {"status": "ok", "tokens": 4, "padded_length": 1024, "truncated": False, "tensors": [TENSOR]}
LEASE = {"ok": True, "lease": 1, "job": 1, "prompts": [PROMPT]}


class Heard:
    """A sink that remembers."""

    def __init__(self):
        self.answers, self.events, self.errors = [], [], []

    def take_answer(self, body):
        self.answers.append(body)

    def take_event(self, body):
        self.events.append(body)

    def take_error(self, error):
        self.errors.append(error)


class WithoutSockets(unittest.TestCase):
    def test_lines_come_in_any_pieces(self):
        data = b"one\n\ntwo and a half\nthree"
        for size in (1, 2, 5, 100):
            lines = Lines()
            found = [line for start in range(0, len(data), size) for line in lines.feed(data[start:start + size])]
            self.assertEqual(found, [b"one", b"", b"two and a half"])

    def test_lines_are_bounded(self):
        for pieces in ([b"x" * 11], [b"x" * 6, b"x" * 6], [b"x" * 11 + b"\n"], [b"ok\n" + b"x" * 11]):
            lines = Lines(max_bytes=10)
            with self.assertRaises(ProtocolError):
                for piece in pieces:
                    lines.feed(piece)
        self.assertEqual(Lines(max_bytes=10).feed(b"x" * 10 + b"\n"), [b"x" * 10])

    def test_answers_find_who_asked_in_any_order(self):
        conversation, first, second = Conversation(), Heard(), Heard()
        self.assertEqual(conversation.request("a", {"x": "ä"}, first)[1], '{"id":1,"op":"a","x":"ä"}\n'.encode())
        conversation.request("b", {}, second)
        conversation.request("c", {}, None)
        conversation.receive(b'{"id":2,"event":"token","text":"x"}\n{"id":2,"ok":true}\n{"id":3,"ok":true}\n'
                             b'{"id":1,"ok":false,"error":{"code":"c","message":"m"}}\n')
        self.assertEqual([len(second.events), second.answers], [1, [{"id": 2, "ok": True}]])
        self.assertEqual((first.errors[0].code, first.errors[0].message), ("c", "m"))
        self.assertFalse(any(conversation.owes(number) for number in (1, 2, 3)))

    def test_what_answers_nobody_is_refused(self):
        for line in (b"x", b"[]", b"3", b"{}", b'{"id":2,"ok":true}', b'{"id":"1","ok":true}', b'{"id":true,"ok":true}',
                     b'{"id":1}', b'{"id":1,"ok":1}', b'{"id":1,"ok":false}', b'{"id":1,"ok":false,"error":"x"}',
                     b'{"id":1,"ok":false,"error":{"code":1,"message":"m"}}', b"\xff\xfe", b"[" * 100_000,
                     b'{"id":' + b"9" * 5000 + b',"ok":true}'):
            with self.subTest(line[:60]):
                conversation, heard = Conversation(), Heard()
                conversation.request("a", {}, heard)
                with self.assertRaises(ProtocolError):
                    conversation.receive(line + b"\n")
                conversation.fail(ProtocolError("x"))
                self.assertEqual(len(heard.errors), 1)

    def test_a_refusal_of_the_connection_is_told_as_it_is(self):
        with self.assertRaises(RequestFailed) as raised:
            Conversation().receive(b'{"id":null,"ok":false,"error":{"code":"too_many_clients","message":"m"}}\n')
        self.assertEqual(raised.exception.code, "too_many_clients")

    def test_milliseconds_round_up(self):
        self.assertEqual([milliseconds(value) for value in (0, 0.0001, 0.001, 1.5, -3)], [0, 1, 1, 1500, 0])


class FakeTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gemmad-fake-")
        self.addCleanup(folder.cleanup)
        self.path = str(Path(folder.name) / "socket")

    def serve(self, talk):
        server = FakeServer(self.path, talk)
        self.addCleanup(server.close)

    def serve_lines(self, *lines):
        """Answers the first request with these bytes, and stays."""
        def talk(connection):
            for _ in requests(connection):
                connection.sendall(b"".join(lines))

        self.serve(talk)

    def serve_lease(self, body, greeting=None, segment=None):
        """Greets, and answers every acquire with the body."""
        def talk(connection):
            greet(connection, make_segment(np.arange(32, dtype=np.float32).tobytes(), **(segment or {})),
                  **(greeting or {}))
            for request in requests(connection):
                send(connection, {"id": request["id"], **body})

        self.serve(talk)


class Control(FakeTestCase):
    def test_garbage_is_a_protocol_error_on_both_sides(self):
        async def ask():
            async with AsyncClient(self.path) as client:
                await client.health()

        self.serve_lines(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with Client(self.path) as client, self.assertRaises(ProtocolError):
            client.health()
        with self.assertRaises(ProtocolError):
            asyncio.run(ask())

    def test_answers_without_their_fields_are_refused(self):
        self.serve_lines(b'{"id":1,"ok":true,"job":-1,"prompts":[]}\n')
        with Client(self.path) as client, self.assertRaises(ProtocolError):
            client.encode(["a"])

    def test_a_line_without_end_is_given_up(self):
        self.serve_lines(b"x" * 100_000)
        with Client(self.path) as client:
            client._connection.conversation = Conversation(max_line_bytes=1000)
            with self.assertRaises(ProtocolError):
                client.health()

    def test_a_full_daemon_says_so(self):
        def talk(connection):
            send(connection, {"id": None, "ok": False, "error": {"code": "too_many_clients", "message": "full"}})

        self.serve(talk)
        with Client(self.path) as client, self.assertRaises(RequestFailed) as raised:
            client.health()
        self.assertEqual(raised.exception.code, "too_many_clients")

    def test_a_daemon_that_hangs_up_is_told_by_all_who_wait(self):
        def talk(connection):
            for count, _ in enumerate(requests(connection), 1):
                if count == 3:
                    return

        self.serve(talk)
        errors = []

        def ask(client):
            try:
                client.health()
            except GemmadError as error:
                errors.append(type(error))

        with Client(self.path) as client:
            threads = [threading.Thread(target=ask, args=(client,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [Disconnected] * 3)

    def test_a_daemon_that_keeps_no_deadline_is_given_up(self):
        self.addCleanup(setattr, connection_module, "GRACE_S", connection_module.GRACE_S)
        connection_module.GRACE_S = 0.05
        self.serve(lambda connection: list(requests(connection)))
        with Client(self.path) as client, self.assertRaises(Unresponsive):
            client.encode(["a"], deadline_s=0.05)



class Enhancing(unittest.TestCase):
    def setUp(self):
        self.fake = FakeDaemon({}, ["hidden_states"], 1)
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)
        self.client = Client(self.fake.socket)
        self.addCleanup(self.client.close)

    def test_a_rewritten_prompt_is_text_that_tells_how_it_came_about(self):
        text = self.client.enhance_t2v("a dog")
        self.assertEqual(text, "a better dog")
        self.assertEqual((text.job, text.raw_text, text.tokens_in, text.tokens_out, text.stop),
                         (7, '"a better dog', 30, 3, "end"))
        self.assertEqual((text.tokens_per_s, text.ms["decode"]), (40.5, 50.0))
        self.assertEqual(pickle.loads(pickle.dumps(text)).stop, "end")
        self.assertEqual(self.fake.enhances, [{"id": 1, "op": "enhance_t2v", "prompt": "a dog"}])

    def test_options_are_sent_where_they_are_given(self):
        options = {"system_prompt": "", "max_new_tokens": 9, "seed": 0, "temperature": 0.5, "top_k": 0, "top_p": 0.9,
                   "greedy": False, "no_repeat_ngram": 5, "clean": False, "name": "n", "readers": 2}
        self.client.enhance_t2v("a dog", deadline_s=1.5, **options)
        self.assertEqual(self.fake.enhances,
                         [{"id": 1, "op": "enhance_t2v", "prompt": "a dog", "deadline_ms": 1500, **options}])
        with self.assertRaises(TypeError):
            self.client.enhance_t2v("a dog", beams=2)

    def test_text_that_comes_in_pieces_is_heard(self):
        pieces = []
        self.assertEqual(self.client.enhance_t2v("a dog", seed=1, on_token=pieces.append), "a better dog")
        self.assertEqual("".join(pieces), "a better dog")
        self.assertIs(self.fake.enhances[0]["stream"], True)

        def fail(piece):
            raise KeyError(piece)

        with self.assertRaises(KeyError):
            self.client.enhance_t2v("a dog", on_token=fail)
        self.assertEqual(self.client.info()["outputs"], ["hidden_states"])

    def test_what_is_no_list_is_refused_before_it_is_sent(self):
        for word, make in (("prompts is 'a dog'", lambda: client_requests.encode("a dog")),
                           ("a prompt that is no str is 3", lambda: client_requests.encode([3])),
                           ("outputs is 'embeddings'", lambda: client_requests.encode(["a"], outputs="embeddings")),
                           ("layers is 3", lambda: client_requests.encode(["a"], layers=3)),
                           ("enhance is 3", lambda: client_requests.encode(["a"], enhance=3)),
                           ("texts is 'a'", lambda: client_requests.tokenize("a")),
                           ("encoder_ranks is 0", lambda: client_requests.switch(encoder_ranks=0))):
            with self.subTest(word), self.assertRaisesRegex(TypeError, word):
                make()

    def test_an_image_goes_as_its_pixels(self):
        image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
        self.client.enhance_i2v("a dog", image, seed=1)
        sent = self.fake.enhances[0]
        self.assertEqual((sent["op"], sent["prompt"], sent["seed"]), ("enhance_i2v", "a dog", 1))
        self.assertEqual(sent["image"], {"shape": [2, 4, 3], "data": base64.b64encode(image.tobytes()).decode()})
        self.client.enhance_i2v("a dog", image[:, ::2])
        self.assertEqual(base64.b64decode(self.fake.enhances[1]["image"]["data"]), image[:, ::2].tobytes())

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_an_image_of_torch_goes_as_its_pixels(self):
        import torch
        image = torch.arange(24, dtype=torch.uint8).reshape(3, 2, 4).permute(1, 2, 0)
        self.client.enhance_i2v("a dog", image)
        self.assertEqual(self.fake.enhances[0]["image"]["shape"], [2, 4, 3])
        self.assertEqual(base64.b64decode(self.fake.enhances[0]["image"]["data"]), image.contiguous().numpy().tobytes())

    def test_an_image_goes_as_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "i.png"
            file.write_bytes(b"\x89PNG")
            for image in (file, str(file), b"\x89PNG", bytearray(b"\x89PNG")):
                self.client.enhance_i2v("a dog", image)
                self.assertEqual(self.fake.enhances[-1]["image"], {"file": base64.b64encode(b"\x89PNG").decode()})
            with self.assertRaises(OSError):
                self.client.enhance_i2v("a dog", Path(folder) / "none.png")

    def test_an_image_that_is_none_is_refused_here(self):
        for image in (np.zeros((2, 4), np.uint8), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 3), np.float32), None, 7):
            with self.assertRaises(ValueError):
                self.client.enhance_i2v("a dog", image)
        self.assertEqual(self.fake.enhances, [])

    def test_a_stream_gives_tokens_and_then_the_answer(self):
        with self.client.stream(client_requests.enhance_t2v("a dog", seed=1)) as stream:
            tokens = list(stream)
            self.assertEqual([(token.text, list(token.ids)) for token in tokens], fake_gemmad.PIECES)
            self.assertEqual(list(stream), [])
            self.assertEqual(stream.result(), "a better dog")
        self.assertEqual(self.fake.cancels, [])

    def test_a_stream_that_is_left_is_cancelled(self):
        with self.client.stream(client_requests.enhance_t2v("hold")) as stream:
            self.assertEqual(next(stream).text, "a ")
        with self.assertRaises(RequestFailed) as raised:
            stream.result()
        self.assertEqual(raised.exception.code, "cancelled")
        self.assertEqual(self.fake.cancels[0]["request"], 1)

    def test_a_stream_ends_with_the_connection(self):
        stream = self.client.stream(client_requests.enhance_t2v("hold"))
        self.assertEqual(len([next(stream), next(stream), next(stream)]), 3)
        self.client.close()
        with self.assertRaises(Disconnected):
            next(stream)

    def test_an_encode_tells_of_the_prompt_that_was_rewritten(self):
        reply = self.client.encode(["a dog", "a cat"], enhance=True)
        self.assertEqual((reply.enhanced, reply.enhanced.stop), ("a better dog", "end"))
        self.assertIs(self.fake.encodes[0]["enhance"], True)
        self.assertIsNone(self.client.encode(["a dog"]).enhanced)
        self.assertIsNone(self.client.encode(["a dog"], enhance=False).enhanced)
        self.assertNotIn("enhance", self.fake.encodes[1])
        self.assertNotIn("enhance", self.fake.encodes[2])
        pieces = []
        self.client.encode(["a dog"], enhance={"seed": 3, "image": b"PNG", "top_k": None}, on_token=pieces.append)
        self.assertEqual(self.fake.encodes[3]["enhance"], {"seed": 3, "image": {"file": "UE5H"}, "stream": True})
        self.assertEqual("".join(pieces), "a better dog")
        with self.client.stream(client_requests.encode(["a dog"], enhance=True)) as stream:
            self.assertEqual("".join(token.text for token in stream), "a better dog")
            self.assertEqual(stream.result().enhanced, "a better dog")

    def test_an_answer_that_makes_no_sense_is_told(self):
        def talk(connection):
            for request in requests(connection):
                send(connection, {"id": request["id"], "ok": True, "text": "a"})

        with tempfile.TemporaryDirectory() as folder:
            server = FakeServer(Path(folder) / "s", talk)
            self.addCleanup(server.close)
            with Client(Path(folder) / "s") as client, self.assertRaises(ProtocolError):
                client.enhance_t2v("a dog")

    def test_asyncio_has_the_same(self):
        async def talk():
            async with AsyncClient(self.fake.socket) as client:
                self.assertEqual((await client.enhance_t2v("a dog")).stop, "end")
                self.assertEqual(await client.enhance_i2v("a dog", b"PNG"), "a better dog")
                pieces = []
                reply = await client.encode(["a dog"], enhance=True, on_token=pieces.append)
                self.assertEqual((reply.enhanced, "".join(pieces)), ("a better dog", "a better dog"))
                async with client.stream(client_requests.enhance_t2v("a dog")) as stream:
                    self.assertEqual([token.text async for token in stream], ["a ", "", "better dog"])
                    self.assertEqual(await stream.result(), "a better dog")
                self.assertEqual(self.fake.cancels, [])
                async with client.stream(client_requests.enhance_t2v("hold")) as stream:
                    async for token in stream:
                        self.assertEqual(token.text, "a ")
                        break
                self.assertEqual((await client.info())["outputs"], ["hidden_states"])
                self.assertEqual(len(self.fake.cancels), 1)
                with self.assertRaises(RequestFailed):
                    async with client.stream(client_requests.enhance_t2v("hold")) as stream:
                        await client.cancel(request=stream._number)
                        async for token in stream:
                            pass

        asyncio.run(talk())


class Segments(FakeTestCase):
    def test_a_good_lease_is_read(self):
        self.serve_lease(LEASE)
        with Reader(self.path) as reader, reader.acquire(1) as lease:
            np.testing.assert_array_equal(lease.prompts[0]["hidden_states.0"].numpy(),
                                          np.arange(32, dtype=np.float32).reshape(4, 8))
            self.assertEqual((reader.rank, reader.segment_bytes), (0, fake_gemmad.SEGMENT_BYTES))

    def test_bfloat16_is_seen_as_its_bits(self):
        self.serve_lease({**LEASE, "prompts": [{**PROMPT, "tensors": [
            {**TENSOR, "dtype": "BF16", "shape": [4, 16]}]}]})
        with Reader(self.path) as reader, reader.acquire(1) as lease:
            tensor = lease.prompts[0]["hidden_states.0"]
            self.assertEqual((tensor.dtype, tensor.numpy().dtype), ("BF16", np.uint16))
            # Little-endian floats of small integers: the upper halves say it all.
            np.testing.assert_array_equal(tensor.to_float32().reshape(-1)[1::2], np.arange(32))

    def test_tensors_that_cannot_be_are_refused(self):
        for name, changes in {
                "beyond the segment": {"offset": fake_gemmad.SEGMENT_BYTES - 64},
                "far beyond": {"offset": 2**62},
                "not aligned": {"offset": 4097},
                "other bytes than its shape": {"bytes": 124},
                "a shape too large": {"shape": [2**40, 2**40]},
                "a negative extent": {"shape": [-4, -8]},
                "a negative offset": {"offset": -4096},
                "no count": {"offset": 4096.0},
                "true for a count": {"bytes": True},
                "an unknown dtype": {"dtype": "F8"},
                "no name": {"name": None},
                "nothing": {"shape": [0, 8], "bytes": 0}}.items():
            with self.subTest(name):
                self.setUp()
                self.serve_lease({**LEASE, "prompts": [{**PROMPT, "tensors": [{**TENSOR, **changes}]}]})
                with Reader(self.path) as reader, self.assertRaises(ProtocolError):
                    reader.acquire(1)

                async def acquire():
                    async with AsyncReader(self.path) as reader:
                        await reader.acquire(1)

                with self.assertRaises(ProtocolError):
                    asyncio.run(acquire())

    def test_leases_that_cannot_be_are_refused(self):
        for changes in ({"lease": "1"}, {"job": None}, {"prompts": {}}, {"prompts": [3]}, {"prompts": [{"status": "ok"}]},
                        {"prompts": [{"status": "error"}]}):
            with self.subTest(changes):
                self.setUp()
                self.serve_lease({**LEASE, **changes})
                with Reader(self.path) as reader, self.assertRaises(ProtocolError):
                    reader.acquire(1)

    def test_segments_that_cannot_be_are_refused(self):
        for name, greeting, segment in (
                ("another version", {"gemmad_reader": 2}, {}),
                ("no version", {"gemmad_reader": None}, {}),
                ("fewer bytes than announced", {"segment_bytes": 1 << 20}, {}),
                ("more bytes than announced", {"segment_bytes": 1 << 15}, {}),
                ("no bytes", {"segment_bytes": 0}, {}),
                ("another rank", {"rank": 3}, {}),
                ("another magic", {}, {"magic": b"SOMETHIN"}),
                ("another layout", {}, {"version": 9}),
                ("not sealed", {}, {"sealed": False}),
                ("a refusal", {"ok": False, "error": {"code": "too_many_clients", "message": "m"}}, {})):
            with self.subTest(name):
                self.setUp()
                self.serve_lease(LEASE, greeting, segment)
                expected = RequestFailed if name == "a refusal" else ProtocolError
                with self.assertRaises(expected):
                    Reader(self.path)

                async def connect():
                    async with AsyncReader(self.path):
                        pass

                with self.assertRaises(expected):
                    asyncio.run(connect())

    def test_greetings_that_are_none_are_refused(self):
        def not_a_segment(connection):
            greet(connection, os.open("/dev/null", os.O_RDONLY))

        for talk, expected in ((lambda connection: greet(connection, None), ProtocolError),
                               (lambda connection: connection.sendall(b"x" * 100_000 + b"\n"), ProtocolError),
                               (lambda connection: connection.sendall(b"x" * 500_000), ProtocolError),
                               (lambda connection: None, Disconnected),
                               (not_a_segment, ProtocolError)):
            self.setUp()
            self.serve(talk)
            with self.assertRaises(expected):
                Reader(self.path)

    def test_no_descriptor_is_left_open(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        self.serve_lease(LEASE, {"rank": 3})
        for _ in range(3):
            before = descriptors()
            with self.assertRaises(ProtocolError):
                Reader(self.path)
        self.assertLessEqual(descriptors(), before + 2)  # the server's threads may not be done yet


if __name__ == "__main__":
    unittest.main()
