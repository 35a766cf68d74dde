"""Asking for prompts to be rewritten, and what comes back."""

import base64
import json
import tempfile
from pathlib import Path

from harness import TESTS, TINY, DaemonTestCase
from random_model import copy_model, silence

IMAGES = TESTS / "data" / "images" / "files"
GOLDEN = json.loads((TINY / "golden-enhance.json").read_text())["t2v"]
# gemmad's own system prompts have hundreds of tokens.
SHORT = {"system_prompt": "Be vivid."}
GREEDY = {**SHORT, "greedy": True, "clean": False}
# In an endless model: tokens for seconds, until something ends it, and no circles.
ENDLESS = {**SHORT, "max_new_tokens": 3000, "temperature": 100.0, "top_k": 4, "seed": 3, "stream": True}
END_TOKENS = (1, 504)  # <eos> and <end_of_turn> of the tiny models


def enhance(client, prompt, **fields):
    """The reply, ok or not. With an image an enhance_i2v."""
    return client.call("enhance_i2v" if "image" in fields else "enhance_t2v", prompt=prompt, **fields)


def read_events(client):
    """Events of the only request on its way, and the reply that ends them."""
    events = []
    while "ok" not in (line := client.read_reply()):
        events.append(line)
    return events, line


def read_replies(client, count):
    """Replies to so many requests by their ids; events are dropped."""
    replies = {}
    while len(replies) < count:
        line = client.read_reply()
        if "ok" in line:
            replies[line["id"]] = line
    return replies


def raw_image(height, width, pixels):
    return {"shape": [height, width, 3], "data": base64.b64encode(pixels).decode()}


def image_file(content):
    return {"file": base64.b64encode(content).decode()}


def make_endless(original, folder):
    """A copy in the new folder `folder` of a tiny model, which never ends its turn. Returns the folder."""
    copy_model(original, folder)
    silence(folder, *END_TOKENS)
    return folder


class EnhanceTestCase(DaemonTestCase):
    DAEMON = {"ranks": 1}

    def tearDown(self):
        self.doCleanups()
        self.assert_alive()

    def enhance(self, prompt="a dog runs", **fields):
        """The reply, which is ok."""
        reply = enhance(self.connect(), prompt, **fields)
        self.assertTrue(reply["ok"], reply)
        return reply

    def stream(self, prompt="a dog runs", **fields):
        """The events, and the reply."""
        client = self.connect()
        client.send_request("enhance_i2v" if "image" in fields else "enhance_t2v", prompt=prompt, **{**fields, "stream": True})
        events, reply = read_events(client)
        self.assertTrue(reply["ok"], reply)
        return events, reply

    def begin(self, prompt="a dog runs", **fields):
        """A client whose streamed enhancement runs, and the id of its request."""
        client = self.connect()
        number = client.send_request("enhance_t2v", prompt=prompt, **{**fields, "stream": True})
        self.assertEqual(client.read_reply().get("event"), "token")
        return client, number

    def enhancements(self):
        return self.daemon.health()["enhancements"]


class EndlessTestCase(EnhanceTestCase):
    """With a tiny model that goes on until it is stopped."""

    MODEL = TINY

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enter(tempfile.TemporaryDirectory()))
        cls.DAEMON = {**cls.DAEMON, "model": make_endless(cls.MODEL, cls.folder / "endless")}
        super().setUpClass()
