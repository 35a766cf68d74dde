"""gemmactl encode-file against the real daemon."""

import json
import os
import pty
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from goldens import LIMIT, PROMPTS
from harness import BOS, GEMMACTL, LTX_V2, NUM_LAYERS, WIDTH, Daemon, DaemonTestCase, gemmactl
from processes import DEADLINE_S, poll
from tensors import check_close, read_safetensors

MAX_PROMPTS = 5  # of a request: the daemon's limit in most tests here
STATE_BYTES = WIDTH * 4


def some_prompts(count):
    return [f"{PROMPTS[i % len(PROMPTS)][:60]} number {i}" for i in range(count)]


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def saved_files(out):
    """Path below `out` and bytes of every file."""
    return {str(path.relative_to(out)): path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}


def num_saved(out):
    return sum(1 for _ in Path(out).rglob("*.safetensors"))


class EncodeFileCase(unittest.TestCase):
    """Folders and files of a test, and its runs of gemmactl."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.input = self.folder / "in.jsonl"
        self.out = self.folder / "out"

    def encode_file(self, *arguments, status=0, daemon=None, out=None):
        done = gemmactl(daemon or self.daemon, "encode-file", self.input, "--out", out or self.out, *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def summary(self, *arguments, **options):
        return json.loads(self.encode_file("--json", *arguments, **options).stdout)

    def start(self, *arguments, daemon=None):
        process = subprocess.Popen([str(GEMMACTL), "--socket", (daemon or self.daemon).socket, "encode-file",
                                    str(self.input), "--out", str(self.out), *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_and_wait_for(self, count, *arguments, **options):
        """A run that has saved `count` files and is not at its end."""
        process = self.start(*arguments, **options)
        poll(lambda: num_saved(self.out) >= count, f"{count} files are saved")
        self.assertIsNone(process.poll(), "the run has ended too soon")
        return process

    def end(self, process, status):
        output, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, status, output + errors)
        return output, errors

    def assert_whole(self):
        """Every file can be read, and there is nothing else."""
        for path in self.out.rglob("*"):
            if path.suffix == ".safetensors":
                read_safetensors(path)
            elif path.is_file():
                self.assertIn(path.name, ("manifest.json", "skipped.jsonl"))

    def file_of(self, line, name=None):
        return self.out / f"{(line - 1) // 1000:06}" / f"{name or f'{line:08}'}.safetensors"


class EncodeFile(EncodeFileCase, DaemonTestCase):
    # Of 8 MiB, so that results which stay would fill a segment soon.
    DAEMON = {"ranks": 2, "max_prompts": MAX_PROMPTS, "segment_mib": 8}

    def test_files_hold_what_encode_saves(self):
        prompts = some_prompts(2 * MAX_PROMPTS + 2)
        write_lines(self.input, [{"prompt": prompt} for prompt in prompts])
        self.assertEqual(self.summary("--outputs", "hidden_states,last_hidden_state", "--in-flight", "1")["encoded"],
                         len(prompts))
        for first in range(0, len(prompts), MAX_PROMPTS):
            chosen = prompts[first:first + MAX_PROMPTS]
            file, saved = self.folder / "prompts.json", self.folder / "saved.safetensors"
            file.write_text(json.dumps(chosen))
            self.assertEqual(gemmactl(self.daemon, "encode", "--prompts-file", file, "--save", saved,
                                      "--outputs", "hidden_states,last_hidden_state").returncode, 0)
            expected, _ = read_safetensors(saved)
            for i in range(len(chosen)):
                tensors, metadata = read_safetensors(self.file_of(first + i + 1))
                prefix = f"prompt.{i}."
                self.assertEqual(tensors, {name[len(prefix):]: tensor for name, tensor in expected.items()
                                           if name.startswith(prefix)})
                self.assertEqual(len(tensors), NUM_LAYERS + 3)
                self.assertRegex(metadata["prompt"], "^text sha256 [0-9a-f]{64}$")

    def test_takes_strings_fields_ids_and_names(self):
        self.input.write_text('"a dog"\n\n' + "\n".join(json.dumps(line) for line in (
            {"caption": "a dog", "id": "named"}, {"input_ids": [BOS, 17], "id": 12},
            {"input_ids": [BOS]})))
        summary = self.summary("--field", "caption", "--in-flight", "1", "--layers", "0")
        self.assertEqual((summary["total"], summary["encoded"], summary["finished"]), (4, 4, True))
        files = [self.file_of(1), self.file_of(3, "named"), self.file_of(4, "12"), self.file_of(5)]
        tensors = [read_safetensors(file)[0] for file in files]
        self.assertEqual(tensors[0], tensors[1])
        self.assertEqual(list(tensors[2]["input_ids"].values()), [BOS, 17])
        self.assertEqual(sorted(tensors[3]), ["hidden_states.0", "input_ids"])
        self.assertEqual(num_saved(self.out), 4)

    def test_many_in_flight_give_the_same_bytes(self):
        write_lines(self.input, some_prompts(40))
        self.encode_file("--in-flight", "1")
        other = self.folder / "other"
        self.encode_file("--in-flight", "6", "--rank", "1", out=other)
        self.assertEqual(saved_files(other), saved_files(self.out))

    def test_requests_of_other_prompts_give_the_same_up_to_rounding(self):
        write_lines(self.input, some_prompts(40))
        self.encode_file()
        other = self.folder / "other"
        self.encode_file("--batch", "2", out=other)
        expected, found = saved_files(self.out), saved_files(other)
        self.assertEqual(sorted(found), sorted(expected))
        for name in expected:
            if name.endswith(".safetensors"):
                tensors = [read_safetensors(out / name)[0] for out in (self.out, other)]
                self.assertEqual(tensors[0]["input_ids"], tensors[1]["input_ids"])
                check_close(tensors[1]["last_hidden_state"], tensors[0]["last_hidden_state"], LIMIT, name)

    def test_killed_and_taken_up_gives_the_same_bytes_as_one_run(self):
        write_lines(self.input, some_prompts(1200))
        self.encode_file(out=self.folder / "one")
        process = self.start_and_wait_for(23)
        process.send_signal(signal.SIGKILL)
        self.end(process, -signal.SIGKILL)
        before = num_saved(self.out)
        self.assertLess(before, 1200)
        # As if it had been killed while it wrote.
        (self.out / "000000" / "00001000.safetensors.part.1").write_text("half")
        summary = self.summary()
        self.assertEqual((summary["there_before"], summary["encoded"]), (before, 1200 - before))
        self.assertEqual(saved_files(self.out), saved_files(self.folder / "one"))

    def test_what_is_there_is_not_encoded_again(self):
        write_lines(self.input, some_prompts(30))
        self.encode_file()
        changed = {path: path.stat().st_mtime_ns for path in self.out.rglob("*")}
        tokens = self.daemon.health()["ranks"][0]["tokens"]
        self.assertEqual(self.summary()["there_before"], 30)
        self.assertEqual({path: path.stat().st_mtime_ns for path in self.out.rglob("*")}, changed)
        self.assertEqual(self.daemon.health()["ranks"][0]["tokens"], tokens)
        self.file_of(8).unlink()
        self.file_of(9).write_bytes(self.file_of(9).read_bytes()[:-1])
        self.assertEqual(self.summary()["encoded"], 2)
        self.assert_whole()

    def test_an_interrupt_ends_it_after_what_is_in_flight(self):
        write_lines(self.input, some_prompts(3000))
        process = self.start_and_wait_for(10)
        process.send_signal(signal.SIGINT)
        output, errors = self.end(process, 1)
        self.assertIn("not finished", output)
        self.assertIn("the same command goes on", errors)
        self.assert_whole()
        self.daemon.wait_for_no_leases()
        saved = num_saved(self.out)
        self.assertLess(saved, 3000)
        write_lines(self.input, some_prompts(saved + 40))
        self.assertEqual(self.summary()["finished"], True)
        self.assertEqual(num_saved(self.out), saved + 40)

    def test_an_invalid_line_stops_it_and_is_named(self):
        self.input.write_text('"a"\n"b"\nnonsense\n"c"\n')
        errors = self.encode_file(status=1).stderr
        self.assertIn(f"{self.input}:3: ", errors)
        self.assertEqual(num_saved(self.out), 2)
        self.input.write_text('"a"\n"b"\n"mended"\n"c"\n')
        self.assertEqual(self.summary()["encoded"], 2)

    def test_invalid_lines_are_skipped_and_listed_where_that_is_asked_for(self):
        self.input.write_bytes(b'"a"\nnonsense\n"\xff"\n{"input_ids": [2, 100000], "id": "x"}\n"c"\n' +
                               b'"' + b"x" * (1 << 20) + b'"\n{"prompt": "a", "id": "../a"}\n')
        for encoded in (2, 0):
            done = self.encode_file("--on-error", "skip", "--json", status=3)
            summary = json.loads(done.stdout)
            self.assertEqual((summary["encoded"], summary["skipped"], summary["finished"]), (encoded, 5, True))
            skipped = [json.loads(line) for line in (self.out / "skipped.jsonl").read_text().splitlines()]
            self.assertEqual([line["line"] for line in skipped], [2, 3, 4, 6, 7])
            for line, reason in zip(skipped, ("JSON", "UTF-8", "100000", str(1 << 20), '"id"')):
                self.assertIn(reason, line["reason"])
                self.assertIn(f"{self.input}:{line['line']}: ", done.stderr)
        self.input.write_text('"a"\n')
        self.encode_file("--on-error", "skip")
        self.assertFalse((self.out / "skipped.jsonl").exists())

    def test_a_folder_of_other_settings_is_refused_unless_it_may_be_overwritten(self):
        write_lines(self.input, some_prompts(7))
        self.encode_file()
        before = saved_files(self.out)
        errors = self.encode_file("--layers", "0,8", status=2).stderr
        for word in ("last_hidden_state", "hidden_states", "--overwrite"):
            self.assertIn(word, errors)
        self.assertEqual(saved_files(self.out), before)
        self.assertEqual(self.summary("--layers", "0,8", "--overwrite")["encoded"], 7)
        for path in self.out.rglob("*.safetensors"):
            self.assertEqual(sorted(read_safetensors(path)[0]), ["hidden_states.0", "hidden_states.8", "input_ids"])

    def test_a_prompt_that_changed_is_not_taken_for_done(self):
        write_lines(self.input, ["a", "b"])
        self.encode_file()
        write_lines(self.input, ["a", "another"])
        self.assertIn(f"{self.input}:2: ", self.encode_file(status=1).stderr)
        summary = self.summary("--overwrite")
        self.assertEqual((summary["there_before"], summary["encoded"]), (1, 1))

    def test_refuses_what_it_cannot_do(self):
        write_lines(self.input, ["a"])
        for arguments, words in ((["--batch", str(MAX_PROMPTS + 1)], "max_prompts"), (["--outputs", "sounds"], "sounds"),
                                 (["--rank", "2"], "--rank 2"), (["--field", ""], "--field"), (["--in-flight", "0"], "--in-flight")):
            with self.subTest(arguments):
                self.assertIn(words, self.encode_file(*arguments, status=2).stderr)
        self.assertIn("--out", gemmactl(self.daemon, "encode-file", self.input).stderr)
        missing = gemmactl(self.daemon, "encode-file", self.folder / "nothing", "--out", self.out)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("nothing", missing.stderr)

    def test_an_empty_file_is_done_at_once(self):
        self.input.write_text("\n\n")
        self.assertEqual(self.summary()["total"], 0)

    def test_shows_a_bar_on_a_terminal(self):
        write_lines(self.input, some_prompts(400))
        ours, theirs = pty.openpty()
        process = subprocess.Popen([str(GEMMACTL), "--socket", self.daemon.socket, "encode-file", str(self.input), "--out",
                                    str(self.out)], stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # how a terminal tells that its other end is closed
            pass
        os.close(ours)
        self.assertEqual(process.wait(DEADLINE_S), 0)
        self.assertRegex(shown.decode(), r"\[=*>? *\] \d+/400 prompts, \S+ prompts/s, \S+ tokens/s")


class Trainer(EncodeFileCase, DaemonTestCase):
    DAEMON = {"segment_mib": 8, "embeddings_processor": LTX_V2}

    def test_the_trainer_reads_features_behind_zeros_and_a_mask(self):
        write_lines(self.input, some_prompts(6))
        self.encode_file("--outputs", "features")
        trainer = self.folder / "trainer"
        self.encode_file("--format", "trainer", out=trainer)
        for line in range(1, 7):
            plain, _ = read_safetensors(self.file_of(line))
            found, _ = read_safetensors(trainer / "000000" / f"{line:08}.safetensors")
            self.assertEqual(sorted(found), ["audio_prompt_embeds", "prompt_attention_mask", "video_prompt_embeds"])
            count = plain["input_ids"].shape[0]
            self.assertEqual(list(found["prompt_attention_mask"].values()), [0] * (1024 - count) + [1] * count)
            for kind in ("video", "audio"):
                features, padded = plain[f"features.{kind}"], found[f"{kind}_prompt_embeds"]
                self.assertEqual((padded.dtype, padded.shape), (features.dtype, [1024, features.shape[1]]))
                self.assertEqual(padded.data, bytes(len(padded.data) - len(features.data)) + features.data)


class LittleSpace(EncodeFileCase, DaemonTestCase):
    DAEMON = {"segment_mib": 1}

    def test_a_request_whose_result_is_too_large_is_sent_in_halves(self):
        ids = [[BOS] + [10 + i] * 50 for i in range(20)]
        write_lines(self.input, [{"input_ids": one} for one in ids])
        self.assertEqual(self.summary("--outputs", "hidden_states", "--batch", "20")["encoded"], 20)
        for i, one in enumerate(ids):
            tensors, _ = read_safetensors(self.out / "000000" / f"{i + 1:08}.safetensors")
            self.assertEqual(list(tensors["input_ids"].values()), one)
            self.assertEqual(tensors["hidden_states.8"].shape, [51, WIDTH])

    def test_a_prompt_that_is_too_large_alone_fails_alone(self):
        large = {"input_ids": [BOS] * (2 * (1 << 20) // STATE_BYTES // (NUM_LAYERS + 1)), "id": "large"}
        write_lines(self.input, ["a", large, "b"])
        errors = self.encode_file("--outputs", "hidden_states", "--on-error", "skip", status=3).stderr
        self.assertRegex(errors, r"in\.jsonl:2: result_too_large")
        self.assertEqual(num_saved(self.out), 2)
        self.assertIn("in.jsonl:2: result_too_large", self.encode_file("--outputs", "hidden_states", status=1).stderr)

    def test_waits_for_space_that_readers_hold(self):
        write_lines(self.input, some_prompts(10))
        reader = self.connect_reader()
        with self.daemon.client() as client:
            # More than half of the segment, so that there is no room for the next as large.
            held = client.call("encode", prompts=[{"input_ids": [BOS] * 200}])
        lease = reader.acquire(held["job"])
        process = self.start("--outputs", "hidden_states", "--deadline-ms", "50", "--batch", "10")
        poll(lambda: 'result="buffers_exhausted"' in self.daemon.ask("metrics")["text"], "it was refused for lack of space")
        self.assertIsNone(process.poll())
        reader.release(lease)
        self.end(process, 0)
        self.assertEqual(num_saved(self.out), 10)


class Ending(EncodeFileCase):
    def test_a_daemon_that_goes_away_ends_it_and_the_next_one_goes_on(self):
        write_lines(self.input, some_prompts(2000))
        folder = self.folder / "daemon"
        folder.mkdir()
        with Daemon(folder=folder).start_only() as daemon:
            daemon.wait_ready()
            process = self.start_and_wait_for(20, daemon=daemon)
            daemon.signal_rank(0, signal.SIGKILL)
            _, errors = self.end(process, 1)
            self.assertRegex(errors, "daemon|connection")
            self.assertIn("the same command goes on", errors)
        self.assert_whole()
        saved = num_saved(self.out)
        self.assertLess(saved, 2000)
        write_lines(self.input, some_prompts(saved + 60))
        with Daemon(folder=folder) as daemon:
            summary = self.summary(daemon=daemon)
        self.assertEqual((summary["there_before"] + summary["encoded"], summary["finished"]), (saved + 60, True))

    def test_ranks_that_share_a_segment_need_one_reader(self):
        write_lines(self.input, [{"input_ids": [BOS] + [10 + i % 7] * 60} for i in range(80)])
        with Daemon(ranks=2, segments="per_node", segment_mib=4) as daemon:
            self.assertEqual(self.summary("--outputs", "hidden_states", "--rank", "1", daemon=daemon)["encoded"], 80)


if __name__ == "__main__":
    unittest.main()
