"""gemmactl enhance, and encode --enhance, against a daemon of paper."""

import base64
import json
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from fake_gemmad import ENHANCED, PIECES, FakeDaemon
from harness import GEMMACTL, poll


class GemmactlEnhance(unittest.TestCase):
    def setUp(self):
        self.fake = FakeDaemon({}, ["hidden_states"], 1)
        self.fake.__enter__()
        self.addCleanup(self.fake.__exit__)

    def run_ctl(self, *arguments, status=0, **more):
        done = subprocess.run([GEMMACTL, "--socket", self.fake.socket, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_prints_the_text(self):
        done = self.run_ctl("enhance", "--seed", "3", "a dog")
        self.assertEqual((done.stdout, done.stderr), (ENHANCED["text"] + "\n", ""))
        sent = self.fake.enhances[0]
        self.assertEqual((sent["op"], sent["prompt"], sent["seed"]), ("enhance_t2v", "a dog", 3))
        self.assertNotIn("stream", sent)

    def test_prints_the_text_as_it_comes(self):
        done = self.run_ctl("enhance", "--stream", "a dog")
        self.assertEqual(done.stdout, "".join(text for text, _ in PIECES) + "\n")

    def test_prints_events_and_reply_for_programs(self):
        lines = [json.loads(line) for line in self.run_ctl("enhance", "--stream", "--json", "a dog").stdout.splitlines()]
        self.assertEqual([(line["text"], line["ids"]) for line in lines[:-1]], PIECES)
        self.assertEqual(lines[-1]["raw_text"], ENHANCED["raw_text"])

    def test_reads_prompt_and_files(self):
        with tempfile.TemporaryDirectory() as folder:
            image, system = Path(folder) / "i.png", Path(folder) / "s.txt"
            image.write_bytes(b"\x89PNG\0")
            system.write_text("Be short.\n")
            self.run_ctl("enhance", "--image", image, "--system-prompt", system, "-", input="a dog\nruns\n")
            self.run_ctl("enhance", "--image", Path(folder) / "none.png", "a dog", status=1)
        sent = self.fake.enhances[0]
        self.assertEqual((sent["op"], sent["prompt"], sent["system_prompt"]), ("enhance_i2v", "a dog\nruns", "Be short.\n"))
        self.assertEqual(base64.b64decode(sent["image"]["file"]), b"\x89PNG\0")
        self.assertEqual(len(self.fake.enhances), 1)

    def test_encode_prints_what_the_first_prompt_became(self):
        done = self.run_ctl("encode", "--prompt", "a dog", "--enhance", "--greedy", "--json")
        self.assertEqual(json.loads(done.stdout)["enhanced"]["text"], ENHANCED["text"])
        self.assertEqual(self.fake.encodes[0]["enhance"], {"greedy": True})

    def test_a_wrong_use_is_told(self):
        self.run_ctl("enhance", status=2)
        self.run_ctl("enhance", "--beams", "2", "a dog", status=2)

    def test_who_interrupts_it_leaves_the_daemon(self):
        process = subprocess.Popen([GEMMACTL, "--socket", self.fake.socket, "enhance", "hold"], stdout=subprocess.PIPE)
        poll(lambda: self.fake.enhances, "the request is there")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), -signal.SIGINT)
        process.stdout.close()


if __name__ == "__main__":
    unittest.main()
