"""What gemmad refuses to start with: bad model files, bad settings, a socket that is taken. And how it says so."""

import json
import os
import re
import socket
import struct
import tempfile
import unittest
from pathlib import Path

from harness import GEMMAD, TESTS, TEXT_TINY, TINY, Daemon, gemmactl, run_program
from processes import poll

CANNOT_START, WRONG_SETTINGS = 1, 2
REPOSITORY = TESTS.parent


class ScratchModel(unittest.TestCase):
    """A copy of a tiny model to be spoiled: links, until a file is written anew."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = Path(folder.name) / "model"

    def copy(self, original=TINY):
        self.model.mkdir()
        for file in original.iterdir():
            if not file.name.startswith("golden"):
                (self.model / file.name).symlink_to(file)
        return self.model

    def write(self, name, content):
        file = self.model / name
        file.unlink(missing_ok=True)
        file.write_bytes(content)

    def edit_json(self, name, change):
        content = json.loads((self.model / name).read_bytes())
        change(content)
        self.write(name, json.dumps(content).encode())

    def edit_header(self, change, name="model.safetensors"):
        """Rewrites a safetensors file with a header that `change` has spoiled."""
        content = (self.model / name).read_bytes()
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + size])
        change(header)
        text = json.dumps(header).encode()
        self.write(name, struct.pack("<Q", len(text)) + text + content[8 + size:])

    def refused(self, *words, status=CANNOT_START, ranks=1, daemon=None):
        """Starts gemmad: it must end by itself, say each word (a regular expression) once, and leave no socket."""
        daemon = daemon or Daemon(ranks, self.model, no_patience=True)
        try:
            found = daemon.start().wait_exit()
            log = daemon.log()
            self.assertEqual(found, status, log)
            said = [line for line in log.splitlines() if re.search(words[0], line)]
            self.assertEqual(len(said), 1, log)
            for word in words:
                self.assertRegex(said[0], word)
            self.assertEqual(daemon.sockets(), [])
            poll(lambda: not daemon.processes(), "no process is left", 5)
        finally:
            daemon.destroy()


class BadFiles(ScratchModel):
    def test_an_empty_file(self):
        self.copy()
        self.write("model.safetensors", b"")
        self.refused(r"model\.safetensors", "empty", "0 bytes")

    def test_a_git_lfs_pointer(self):
        self.copy()
        self.write("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
        self.refused(r"model\.safetensors", "LFS pointer", "git lfs pull")

    def test_an_html_page(self):
        self.copy()
        self.write("model.safetensors", b"<!DOCTYPE html><html><body>Sign in</body></html>")
        self.refused(r"model\.safetensors", "HTML")

    def test_an_html_page_for_a_tokenizer(self):
        self.copy()
        self.write("tokenizer.json", b"\n<html><body>404</body></html>")
        self.refused(r"tokenizer\.json", "HTML")

    def test_a_truncated_header(self):
        self.copy()
        self.write("model.safetensors", (TINY / "model.safetensors").read_bytes()[:500])
        self.refused(r"model\.safetensors", "header", "cut short")

    def test_truncated_data(self):
        self.copy()
        self.write("model.safetensors", (TINY / "model.safetensors").read_bytes()[:-1])
        self.refused(r"model\.safetensors", "data_offsets", "cut short")

    def test_a_header_length_of_two_to_the_63(self):
        self.copy()
        self.write("model.safetensors", struct.pack("<Q", 1 << 63) + (TINY / "model.safetensors").read_bytes()[8:])
        self.refused(r"model\.safetensors", "header", str(1 << 63), "limit")

    def test_overlapping_tensors(self):
        self.copy()

        def overlap(header):
            first, second = sorted((name for name in header if name != "__metadata__"),
                                   key=lambda name: header[name]["data_offsets"])[:2]
            header[second] = {**header[first]}

        self.edit_header(overlap)
        self.refused(r"model\.safetensors", "overlaps")

    def test_offsets_out_of_range(self):
        self.copy()

        def move(header):
            name = next(name for name in header if name != "__metadata__")
            header[name]["data_offsets"] = [offset + (1 << 40) for offset in header[name]["data_offsets"]]

        self.edit_header(move)
        self.refused(r"model\.safetensors", "data_offsets", "outside")

    def test_trailing_bytes(self):
        self.copy()
        self.write("model.safetensors", (TINY / "model.safetensors").read_bytes() + b"more")
        self.refused(r"model\.safetensors", "4 trailing bytes")

    def test_a_tensor_of_the_wrong_dtype(self):
        self.copy()
        self.edit_header(lambda header: header["language_model.model.norm.weight"].update(dtype="I16"))
        self.refused(r"model\.safetensors", r"norm\.weight", "I16")

    def test_a_missing_shard(self):
        self.copy(TEXT_TINY)
        (self.model / "model-00004-of-00007.safetensors").unlink()
        self.refused(r"model-00004-of-00007\.safetensors", "missing", r"model\.safetensors\.index\.json")

    def test_an_index_that_names_a_file_that_is_not_there(self):
        self.copy(TEXT_TINY)

        def rename(index):
            tensor = next(iter(index["weight_map"]))
            index["weight_map"][tensor] = "model-00008-of-00007.safetensors"

        self.edit_json("model.safetensors.index.json", rename)
        self.refused(r"model-00008-of-00007\.safetensors", "missing")

    def test_an_index_that_leads_out_of_the_folder(self):
        self.copy(TEXT_TINY)

        def lead_out(index):
            tensor = next(iter(index["weight_map"]))
            index["weight_map"][tensor] = "../model/model-00001-of-00007.safetensors"

        self.edit_json("model.safetensors.index.json", lead_out)
        self.refused(r"model\.safetensors\.index\.json", "plain file name")

    def test_a_config_of_another_size(self):
        self.copy()
        self.edit_json("config.json", lambda config: config["text_config"].update(
            hidden_size=128, intermediate_size=256, num_hidden_layers=10, layer_types=["sliding_attention"] * 10))
        self.refused(r"model\.safetensors", r"config\.json", r"shape \[\d+(, \d+)?\], expected \[\d+(, \d+)?\]", "more$")

    def test_a_missing_tokenizer(self):
        self.copy()
        (self.model / "tokenizer.json").unlink()
        self.refused(r"tokenizer\.json", "missing")

    def test_a_tokenizer_that_is_no_tokenizer(self):
        self.copy()
        self.write("tokenizer.json", b'{"version": "1.0"}')
        self.refused(r"tokenizer\.json", "model")

    def test_a_missing_config(self):
        self.copy()
        (self.model / "config.json").unlink()
        self.refused(r"config\.json", "missing")

    def test_a_folder_without_weights(self):
        self.copy()
        (self.model / "model.safetensors").unlink()
        self.refused("neither", re.escape(str(self.model)), r"model\.safetensors")

    def test_no_such_folder(self):
        self.refused(re.escape(str(self.model)), "not a directory")

    def test_many_ranks_say_it_once(self):
        self.copy()
        self.write("model.safetensors", b"")
        self.refused(r"model\.safetensors", "empty", ranks=2)


class BadSettings(ScratchModel):
    def refused_setting(self, *words, ranks=1, **options):
        self.refused(*words, status=WRONG_SETTINGS, daemon=Daemon(ranks, no_patience=True, **options))

    def test_ranks_that_were_given_different_settings(self):
        self.copy()
        other = ["--model", str(self.model), "--set", "segment_mib=64", "--set", "result_cache_mib=0", "--set", "device=cpu",
                 "--set", "batch_tokens=4096"]
        daemon = Daemon(1, self.model, arguments=[":", "-n", "1", str(GEMMAD), *other], no_patience=True)
        self.refused("batch_tokens is 4096 here and 8192 on rank 0", "rank 1", status=WRONG_SETTINGS, daemon=daemon)

    def test_an_unknown_key_is_said_once_by_all_ranks(self):
        self.refused_setting("segment_mb", "segment_mib", ranks=2, segment_mb=4)

    def test_a_value_out_of_bounds(self):
        self.refused_setting("key 'queue_length'", "0", "1", queue_length=0)

    def test_no_model(self):
        self.refused_setting("key 'model'", model=None)

    def test_a_system_prompt_that_no_request_could_have(self):
        self.copy()
        file = self.model / "system.txt"
        for text, words in (("Be <end_of_turn> vivid", ["end_of_turn"]), ("words " * 5000, ["tokens", r"enhance\.context is 4096"])):
            for key in ("enhance.system_prompt", "enhance.system_prompt_image"):
                with self.subTest(key=key, text=text[:20]):
                    file.write_text(text)
                    self.refused(key, re.escape(str(file)), *words,
                                 daemon=Daemon(1, self.model, no_patience=True, **{key: str(file)}))

    def test_a_rank_that_is_not_there_to_enhance(self):
        self.copy()
        self.refused(r"enhance\.rank is 2; the ranks are 0 to 1", daemon=Daemon(2, self.model, no_patience=True, **{"enhance.rank": 2}))

    def test_an_unknown_argument(self):
        self.refused_setting("--frobnicate", arguments=["--frobnicate"])


class Sockets(ScratchModel):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="gemmad-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_only_the_user_can_reach_them(self):
        folder = self.folder / "made" / "by it"
        daemon = Daemon(ranks=2)
        daemon.socket = str(folder / "control.sock")
        daemon.command[daemon.command.index("--socket") + 1] = daemon.socket
        with daemon:
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
            self.assertEqual(folder.parent.stat().st_mode & 0o777, 0o700)
            for path in (daemon.socket, daemon.reader_socket(0), daemon.reader_socket(1)):
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600, path)
            with daemon.client() as client:
                self.assertEqual([rank["reader_socket"] for rank in client.call("info")["ranks"]],
                                 [daemon.reader_socket(0), daemon.reader_socket(1)])
        self.assertFalse([path for path in folder.iterdir() if path.is_socket()])

    def test_a_folder_that_others_may_write_in_is_refused(self):
        self.folder.chmod(0o777)
        self.refused("other users may write", re.escape(str(self.folder)), "0700", daemon=Daemon(folder=self.folder, no_patience=True))

    def test_a_second_daemon_is_refused_and_the_first_is_unharmed(self):
        with Daemon(ranks=2) as first:
            second = Daemon(ranks=2, folder=first.folder, no_patience=True)
            self.addCleanup(second.destroy)
            self.assertEqual(second.start().wait_exit(), CANNOT_START, second.log())
            said = [line for line in second.log().splitlines() if "another daemon" in line]
            self.assertEqual(len(said), 1, second.log())
            for word in (first.socket, str(first.pids[0]), "already serves"):
                self.assertIn(word, said[0])
            self.assertEqual(len(first.sockets()), 3)
            with first.client() as client:
                job = client.call("encode", prompts=["a"], layers=[8])["job"]
            with first.reader(1) as reader:
                self.assertEqual(len(reader.take(job)), 1)

    def test_a_socket_left_by_a_dead_daemon_is_replaced(self):
        for name in ("control.sock", "control.sock.reader-0"):
            with socket.socket(socket.AF_UNIX) as old:
                old.bind(str(self.folder / name))
        with Daemon(folder=self.folder) as daemon:
            self.assertEqual(gemmactl(daemon, "health").returncode, 0)
        self.assertEqual(daemon.sockets(), [])

    def test_a_socket_of_another_program_is_left_alone(self):
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.folder / "control.sock"))
            other.listen()
            daemon = Daemon(folder=self.folder, no_patience=True)
            self.addCleanup(daemon.destroy)
            self.assertEqual(daemon.start().wait_exit(), CANNOT_START)
            self.assertIn("another program listens", daemon.log())
            self.assertEqual(daemon.sockets(), ["control.sock"])

    def test_a_file_that_is_no_socket_is_left_alone(self):
        file = self.folder / "control.sock"
        file.write_text("precious")
        self.refused("no socket", "control.sock", daemon=Daemon(folder=self.folder, no_patience=True))
        self.assertEqual(file.read_text(), "precious")


class FirstAnswer(unittest.TestCase):
    def test_tells_the_state_of_every_rank(self):
        with Daemon(ranks=2) as daemon:
            ranks = daemon.first_health["ranks"]
            self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
            self.assertEqual([rank["segment"]["bytes"] for rank in ranks], [64 << 20] * 2)


class CommandLine(unittest.TestCase):
    """What needs no ranks."""

    def run_gemmad(self, *arguments, status=0):
        done = run_program(GEMMAD, *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_printed_settings_read_back_to_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.run_gemmad("--print-config", "--model", "some/where", "--set", "segment_mib=7", "--set",
                                    "log_level=warn", "--socket=" + folder + "/s").stdout
            file = Path(folder) / "config.json"
            file.write_text(first)
            self.assertEqual(self.run_gemmad("--print-config", "--config", file).stdout, first)
            self.assertEqual(json.loads(first)["segment_mib"], 7)
            self.assertEqual(json.loads(first)["model"], "some/where")

    def test_check_config_tells_good_from_bad(self):
        self.run_gemmad("--check-config", "--model", "m")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bad.json"
            for text, words in (('{"model": "m", "segment_mb": 1}', ["segment_mb", "segment_mib"]),
                                ('{"model": "m", "model": "n"}', ["model", "repeated"]),
                                ('{"model": "m", "segment_mib": "1"}', ["segment_mib"]),
                                ('{"model": "m", "segment_mib": 0}', ["segment_mib", "0", "1"]),
                                ('{"model": "m",}', ["line 1"]),
                                ("{}", ["model"])):
                with self.subTest(text):
                    file.write_text(text)
                    error = self.run_gemmad("--check-config", "--config", file, status=WRONG_SETTINGS).stderr
                    for word in [*words, *([] if text == "{}" else ["bad.json"])]:
                        self.assertIn(word, error)
            missing = self.run_gemmad("--check-config", "--config", Path(folder) / "none.json", status=WRONG_SETTINGS)
            self.assertIn("none.json", missing.stderr)

    def test_example_settings_are_good(self):
        examples = sorted((REPOSITORY / "config" / "examples").glob("*.json"))
        self.assertTrue(examples)
        for file in examples:
            self.run_gemmad("--check-config", "--config", file)

    def test_help_names_every_setting_and_op(self):
        text = self.run_gemmad("--help").stdout
        settings = json.loads(self.run_gemmad("--print-config", "--model", "m").stdout)
        keys = [key for key, value in settings.items() if not isinstance(value, dict)]
        keys += [f"{section}.{key}" for section, value in settings.items() if isinstance(value, dict) for key in value]
        ops = ["encode", "enhance_t2v", "enhance_i2v", "tokenize", "info", "health", "metrics", "cancel", "switch", "sleep",
               "wake", "shutdown"]
        for word in [*keys, *ops]:
            self.assertRegex(text, rf"(?m)^ *{re.escape(word)} ")

    def test_the_schema_in_the_tree_is_the_one_it_prints(self):
        printed = self.run_gemmad("--print-schema").stdout
        self.assertEqual(json.loads(printed), json.loads((REPOSITORY / "config" / "gemmad.schema.json").read_text()))
        keys = json.loads(self.run_gemmad("--print-config", "--model", "m").stdout)
        self.assertEqual(set(json.loads(printed)["properties"]) - {"$schema"}, set(keys))

    def test_version_is_one_line(self):
        self.assertRegex(self.run_gemmad("--version").stdout, r"^gemmad \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
