"""Prompts with an image: what is in it matters, however it came, and a bad one harms nobody."""

import json
import random
import struct
import unittest
import zlib

from enhancing import (ENDLESS, GREEDY, IMAGES, SHORT, EndlessTestCase, EnhanceTestCase, enhance, image_file, raw_image,
                       read_events, read_replies)
from harness import TEXT_TINY, TINY
from modes import BATCH_PARALLEL, LAYER, MODES, TENSOR, switch, take_everywhere
from processes import poll

FIELDS = {**GREEDY, "max_new_tokens": 24}
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAME = ("raw_text", "stop", "tokens_in", "tokens_out")
IMAGE_TOKENS = json.loads((TINY / "config.json").read_text())["mm_tokens_per_image"]


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(height, width, pixels, size=None):
    """A file of 8-bit RGB; its header may speak of another size."""
    rows = b"".join(b"\0" + pixels[row * width * 3:(row + 1) * width * 3] for row in range(height))
    header = struct.pack(">IIBBBBB", *(size or (width, height)), 8, 2, 0, 0, 0)
    return PNG_SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def noise(height, width, seed):
    return random.Random(seed).randbytes(3 * height * width)


def gradient(height, width):
    return bytes(value for y in range(height) for x in range(width)
                 for value in (255 * x // width, 255 * y // height, (x + y) % 256))


# Unlike each other, of several sizes and shapes.
PICTURES = {"black": (8, 8, bytes(192)), "white": (8, 8, b"\xff" * 192), "red": (5, 9, b"\xff\0\0" * 45),
            "noise": (16, 16, noise(16, 16, 1)), "tall": (40, 10, gradient(40, 10)), "wide": (10, 40, gradient(10, 40))}


def file_named(name):
    return (IMAGES / name).read_bytes()


class ImageTestCase(EnhanceTestCase):
    def text(self, image, **fields):
        return self.enhance("a dog runs", image=image, **{**FIELDS, **fields})["raw_text"]


class Images(ImageTestCase):
    DAEMON = {"ranks": 2, "max_line_bytes": 1 << 20}

    def test_raw_pixels_and_files_give_text(self):
        without = self.enhance("a dog runs", **FIELDS)
        for name, image in (("raw", raw_image(*PICTURES["noise"])), ("png", image_file(file_named("rgb.png"))),
                            ("jpeg", image_file(file_named("rgb.jpg"))), ("grey", image_file(file_named("grey_alpha.png"))),
                            ("cmyk", image_file(file_named("cmyk.jpg"))), ("1 x 1", raw_image(1, 1, b"\1\2\3")),
                            ("1 x 1 file", image_file(file_named("one.png")))):
            with self.subTest(name):
                reply = self.enhance("a dog runs", image=image, **FIELDS)
                self.assertGreater(reply["tokens_out"], 0)
                self.assertGreater(reply["tokens_in"], without["tokens_in"] + IMAGE_TOKENS)

    def test_a_file_and_its_pixels_give_the_same_text(self):
        for name, (height, width, pixels) in PICTURES.items():
            with self.subTest(name):
                self.assertEqual(self.text(image_file(png(height, width, pixels))), self.text(raw_image(height, width, pixels)))

    def test_what_is_seen_matters(self):
        texts = {name: self.text(raw_image(*picture)) for name, picture in PICTURES.items()}
        self.assertEqual(len(set(texts.values())), len(texts), texts)
        self.assertNotIn(self.enhance("a dog runs", **FIELDS)["raw_text"], texts.values())

    def test_the_size_of_an_even_image_does_not_matter(self):
        """All are resized to the one that the model takes."""
        red = b"\xff\0\0"
        texts = {self.text(raw_image(side, side, red * side * side)) for side in (1, 7, 64, 300)}
        self.assertEqual(len(texts), 1)

    def test_the_same_request_gives_the_same_text(self):
        image = image_file(file_named("rgb.jpg"))
        for fields in (FIELDS, {**SHORT, "seed": 5, "max_new_tokens": 24}):
            texts = {self.enhance("a dog", image=image, **fields)["raw_text"] for _ in range(3)}
            self.assertEqual(len(texts), 1)

    def test_together_they_give_what_each_gives_alone(self):
        """More than there are slots, with some that have no image between them."""
        requests = [{"prompt": f"a dog {i}", **FIELDS, **({} if i % 3 == 2 else {"image": raw_image(*picture)})}
                    for i, picture in enumerate(list(PICTURES.values()) * 2)]
        alone = [enhance(self.connect(), **request) for request in requests]
        client = self.connect()
        numbers = [client.send_request("enhance_i2v" if "image" in request else "enhance_t2v", **request) for request in requests]
        replies = read_replies(client, len(numbers))
        for number, expected in zip(numbers, alone):
            self.assertEqual([replies[number][key] for key in SAME], [expected[key] for key in SAME])

    def test_a_stream_joins_to_the_text_and_readers_find_it(self):
        events, reply = self.stream("a dog", image=raw_image(*PICTURES["noise"]), **FIELDS)
        self.assertEqual("".join(event["text"] for event in events), reply["raw_text"])
        for rank in (0, 1):
            self.assertEqual(self.connect_reader(rank).take(reply["job"])["prompt.0.text"].data, reply["text"].encode())

    def test_an_encode_enhances_its_prompt_with_the_image(self):
        image = raw_image(*PICTURES["noise"])
        reply = self.connect().call("encode", prompts=["a dog runs"], layers=[8], enhance={**FIELDS, "image": image})
        self.assertTrue(reply["ok"], reply)
        self.assertEqual(reply["enhanced"]["raw_text"], self.text(image))
        direct = self.connect().call("encode", prompts=[reply["enhanced"]["text"]], layers=[8])
        self.assertEqual(take_everywhere(self.daemon, reply["job"]), take_everywhere(self.daemon, direct["job"]))

    def test_the_system_prompt_of_a_prompt_with_an_image_is_another(self):
        own = self.enhance("a", image=raw_image(*PICTURES["red"]), max_new_tokens=1)["tokens_in"]
        self.assertNotEqual(own, self.enhance("a", max_new_tokens=1)["tokens_in"] + IMAGE_TOKENS)
        self.assertGreater(own, self.enhance("a", image=raw_image(*PICTURES["red"]), max_new_tokens=1, **SHORT)["tokens_in"])


class BadImages(ImageTestCase):
    DAEMON = {"ranks": 2, "max_line_bytes": 1 << 20}

    def refused(self, image, code, *words):
        """And so in an encode; the next image is looked at."""
        self.assert_refused(enhance(self.connect(), "a", image=image, **FIELDS), code, *words)
        reply = self.connect().call("encode", prompts=["a"], layers=[8], enhance={"image": image})
        self.assert_refused(reply, code, *words)

    def tearDown(self):
        self.text(raw_image(*PICTURES["black"]), max_new_tokens=1)
        super().tearDown()

    def test_nothing(self):
        self.refused(image_file(b""), "bad_request", "file")
        self.refused({"file": "===="}, "bad_image")
        for image in (None, 7, "x", [], {}, {"file": None}, {"file": 7}, {"data": ""}, {"shape": [1, 1, 3]}):
            with self.subTest(image):
                self.refused(image, "bad_request", "image")
        self.refused({"file": "AAAA", "shape": [1, 1, 3]}, "bad_request", "shape")
        self.refused({"file": "AAAA", "url": "file:///etc/passwd"}, "bad_request", "url")

    def test_what_is_no_image(self):
        for content in (b"x", b"GIF89a" + bytes(100), b"RIFF\0\0\0\0WEBPVP8 ", b"\0" * 4096, bytes(range(256)), b"<svg/>"):
            with self.subTest(content[:8]):
                self.refused(image_file(content), "bad_image", "neither PNG nor JPEG")

    def test_a_file_that_ends_early(self):
        for name in ("rgb.png", "rgb_interlaced.png", "palette.png", "rgb.jpg", "progressive.jpg"):
            content = file_named(name)
            for length in (8, 20, 40, len(content) // 2, len(content) - 20):
                with self.subTest(name=name, length=length):
                    self.refused(image_file(content[:length]), "bad_image", "PNG" if "png" in name else "JPEG")

    def test_a_damaged_file_is_answered_and_harms_nobody(self):
        """Some of them are images still."""
        generator = random.Random(20260915)
        client = self.connect()
        for name in ("rgb.png", "rgb_16_bits_interlaced.png", "rgb.jpg", "progressive.jpg", "cmyk_profile.jpg"):
            for _ in range(12):
                content = bytearray(file_named(name))
                for _ in range(generator.choice((1, 3, 30))):
                    content[generator.randrange(len(content))] = generator.randrange(256)
                reply = enhance(client, "a", image=image_file(bytes(content)), **{**FIELDS, "max_new_tokens": 1})
                if not reply["ok"]:
                    self.assert_refused(reply, "bad_image")

    def test_sizes_out_of_bounds(self):
        self.refused(raw_image(1, 10000, bytes(30000)), "bad_image", "10000 x 1", "crop")
        self.refused(raw_image(10000, 1, bytes(30000)), "bad_image", "1 x 10000", "crop")
        self.refused(image_file(file_named("line.png")), "bad_image", "10000 x 1")
        self.refused(raw_image(1, 40000, bytes(120000)), "bad_image", "40000 x 1", "32768")

    def test_a_header_of_a_bomb(self):
        for size in ((60000, 60000), (32768, 32768), (2**31 - 1, 2**31 - 1), (0, 5)):
            with self.subTest(size):
                self.refused(image_file(png(2, 2, bytes(12), size)), "bad_image")
        jpeg = bytearray(file_named("rgb.jpg"))
        frame = jpeg.index(b"\xff\xc0")
        jpeg[frame + 5:frame + 9] = struct.pack(">HH", 60000, 60000)
        self.refused(image_file(bytes(jpeg)), "bad_image", "60000 x 60000", "32768")
        self.refused(image_file(file_named("many_scans.jpg")), "bad_image", "scans")

    def test_bombs_beside_the_pixels_are_left_alone(self):
        expected = self.text(image_file(file_named("rgb.png")))
        for name in ("profile_bomb.png", "text_bomb.png"):
            self.assertEqual(self.text(image_file(file_named(name))), expected)

    def test_wrong_base64(self):
        good = raw_image(*PICTURES["black"])
        for data, words in (("!" + good["data"][1:], ["byte 0"]), (good["data"][:-1] + " ", ["byte 255"]),
                            (good["data"][:-2] + "==", ["190", "192"]), ("-_" + good["data"][2:], ["byte 0"])):
            with self.subTest(data[:8]):
                self.refused({**good, "data": data}, "bad_image", *words)
        for file, words in (("AAA", ["4"]), ("AAAA\n", ["4"]), ("A\u00e9AA", []), ("AAA\u0000", []), ("A=AA", ["byte 1"])):
            with self.subTest(file):
                self.refused({"file": file}, "bad_image", "base64", *words)

    def test_wrong_shapes(self):
        data = raw_image(*PICTURES["black"])["data"]
        for shape in (None, 7, [], [8, 8], [8, 8, 3, 1], [8, 8, 4], [8, 8, 1], [0, 8, 3], [8, 0, 3], [-8, -8, 3], [8.5, 8, 3],
                      ["8", "8", "3"], [2**63 - 1, 2**63 - 1, 3], [65536, 65537, 3], [4, 8, 3], [8, 9, 3], [64, 3, 1]):
            with self.subTest(shape):
                self.refused({"shape": shape, "data": data}, "bad_request", "image")
        self.refused({"shape": [8, 8, 3], "data": 7}, "bad_request", "data")
        self.refused({"shape": [8, 8, 3], "data": ""}, "bad_request", "data")

    def test_a_line_too_long_for_the_daemon_names_its_limit(self):
        reply = enhance_line(self.connect(), raw_image(700, 700, bytes(3 * 700 * 700)))
        self.assert_refused(reply, "line_too_long", "max_line_bytes")


def enhance_line(client, image):
    """A reply without an id: the request has not been read."""
    client.send_request("enhance_i2v", prompt="a", image=image)
    return client.read_reply()


class Modes(EndlessTestCase):
    """The image is seen by whoever has the first layers, and everybody goes on from there."""

    DAEMON = {"ranks": 3}

    def texts(self):
        client = self.connect()
        numbers = [client.send_request("enhance_i2v", prompt="a dog", image=raw_image(*picture), **FIELDS)
                   for picture in PICTURES.values()]
        replies = read_replies(client, len(numbers))
        return [[replies[number][key] for key in SAME] for number in numbers]

    def test_give_the_same_text(self):
        orders = self.connect()
        switch(orders, **BATCH_PARALLEL)
        expected = self.texts()
        self.assertEqual(len({text for text, *_ in expected}), len(PICTURES))
        for settings in (TENSOR, LAYER, {**TENSOR, "encoder_ranks": [1, 2]}, {**LAYER, "encoder_ranks": [2, 0]},
                         {**BATCH_PARALLEL, "encoder_ranks": [2]}, *MODES.values()):
            with self.subTest(**settings):
                switch(orders, **settings)
                self.assertEqual(self.texts(), expected)

    def test_a_switch_leaves_the_text_as_it_was(self):
        orders = self.connect()
        switch(orders, **BATCH_PARALLEL)
        fields = {**GREEDY, "no_repeat_ngram": 3, "max_new_tokens": 300, "image": raw_image(*PICTURES["tall"])}
        expected = self.enhance("a dog", **fields)["raw_text"]
        client = self.connect()
        client.send_request("enhance_i2v", prompt="a dog", **fields, stream=True)
        client.read_reply()
        for settings in (LAYER, TENSOR, BATCH_PARALLEL):
            switch(orders, **settings)
        self.assertEqual(read_events(client)[1]["raw_text"], expected)

    def test_an_image_wakes_the_daemon(self):
        switch(self.connect(), **LAYER)
        before = self.texts()
        self.assertTrue(self.connect().call("sleep")["asleep"])
        self.assertEqual(self.texts(), before)

    def test_one_that_is_cancelled_leaves_the_next_its_own_image(self):
        expected = self.texts()
        for _ in range(3):
            client = self.connect()
            number = client.send_request("enhance_i2v", prompt="a", image=raw_image(*PICTURES["noise"]), **ENDLESS)
            cancel = client.send_request("cancel", request=number)
            replies = read_replies(client, 2)
            self.assertTrue(replies[cancel]["ok"])
            self.assert_refused(replies[number], "cancelled")
        self.assertEqual(self.texts(), expected)
        poll(lambda: self.enhancements() == {"running": 0, "waiting": 0}, "all have ended")


class TextOnly(EnhanceTestCase):
    DAEMON = {"ranks": 2, "model": TEXT_TINY}

    def test_images_are_refused_and_text_is_not(self):
        self.assertFalse(self.daemon.ask("info")["enhance"]["vision"])
        image = raw_image(*PICTURES["black"])
        self.assert_refused(enhance(self.connect(), "a", image=image), "no_vision", "enhancer.model")
        reply = self.connect().call("encode", prompts=["a"], layers=[8], enhance={"image": image})
        self.assert_refused(reply, "no_vision", "enhancer.model")
        self.enhance("a dog", **FIELDS)


if __name__ == "__main__":
    unittest.main()
