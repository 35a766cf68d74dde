"""gemmactl and the reader library's example, as a user runs them."""

import json
import math
import re
import tempfile
import unittest
from pathlib import Path

from goldens import LIMIT, PROMPTS, STATES, TEXT_GOLDEN
from harness import BOS, READER_EXAMPLE, Daemon, DaemonTestCase, gemmactl, run_program
from tensors import check_close, read_safetensors


class Gemmactl(DaemonTestCase):
    DAEMON = {"ranks": 2}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.saved = self.folder / "out.safetensors"

    def run_ctl(self, *arguments, status=0):
        done = gemmactl(self.daemon, *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def write_json(self, content):
        file = self.folder / "prompts.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        return file

    def test_saves_ids_and_hidden_states_of_every_prompt(self):
        done = self.run_ctl("encode", "--prompts-file", self.write_json(PROMPTS), "--save", self.saved, "--json")
        reply = json.loads(done.stdout)
        self.assertEqual(len(reply["prompts"]), len(PROMPTS))
        tensors, _ = read_safetensors(self.saved)
        self.assertEqual(sorted(tensors), sorted(TEXT_GOLDEN))
        for name, golden in TEXT_GOLDEN.items():
            if "input_ids" in name:
                self.assertEqual(tensors[name], golden, name)
            else:
                check_close(tensors[name], golden, LIMIT, name)

    def test_the_other_rank_has_the_same_result(self):
        self.run_ctl("encode", "--prompt", PROMPTS[1], "--save", self.saved)
        other = self.folder / "other.safetensors"
        self.run_ctl("encode", "--prompt", PROMPTS[1], "--rank", "1", "--save", other)
        self.assertEqual(read_safetensors(other)[0], read_safetensors(self.saved)[0])

    def test_takes_ids_from_a_file_alone_and_in_lists(self):
        ids = list(TEXT_GOLDEN["prompt.1.input_ids"].values())
        for content in ({"input_ids": ids}, {"input_ids": [ids]}, [{"input_ids": ids}]):
            self.run_ctl("encode", "--prompts-file", self.write_json(content), "--save", self.saved)
            tensors, _ = read_safetensors(self.saved)
            self.assertEqual(list(tensors["prompt.0.input_ids"].values()), ids)
            for state in STATES:
                check_close(tensors[f"prompt.0.{state}"], TEXT_GOLDEN[f"prompt.1.{state}"], LIMIT, state)

    def test_switches_puts_to_sleep_and_wakes(self):
        mode = json.loads(self.run_ctl("switch", "--mode", "sharded", "--strategy", "layer", "--json").stdout)
        self.assertEqual((mode["mode"], mode["strategy"]), ("sharded", "layer"))
        self.assertTrue(json.loads(self.run_ctl("sleep", "--json").stdout)["asleep"])
        self.assertFalse(json.loads(self.run_ctl("wake", "--json").stdout)["asleep"])
        self.run_ctl("switch", "--mode", "batch_parallel")

    def test_a_switch_that_cannot_be_says_why(self):
        refused = self.run_ctl("switch", "--mode", "sharded", "--ranks-per-replica", "3", status=1)
        self.assertIn("ranks_per_replica is 3", refused.stderr)
        self.assertIn("needs one of --mode", self.run_ctl("switch", status=2).stderr)

    def test_a_preference_reaches_the_daemon(self):
        self.run_ctl("switch", "--mode", "adaptive")
        for cut in ("deal", "split"):
            done = self.run_ctl("encode", "--prompt", "a dog", "--prefer", cut, "--json")
            self.assertEqual(json.loads(done.stdout)["cut"], cut)
        self.run_ctl("switch", "--mode", "batch_parallel")

    def test_prompts_of_the_command_line_come_before_those_of_the_file(self):
        self.run_ctl("encode", "--prompt", PROMPTS[5], "--prompts-file", self.write_json([PROMPTS[1]]), "--save", self.saved)
        tensors, _ = read_safetensors(self.saved)
        self.assertEqual(tensors["prompt.0.input_ids"], TEXT_GOLDEN["prompt.5.input_ids"])
        self.assertEqual(tensors["prompt.1.input_ids"], TEXT_GOLDEN["prompt.1.input_ids"])

    def test_layers_and_outputs_choose_what_is_saved(self):
        self.run_ctl("encode", "--prompt", PROMPTS[1], "--layers", "0,8", "--save", self.saved)
        self.assertEqual(sorted(read_safetensors(self.saved)[0]),
                         ["prompt.0.hidden_states.0", "prompt.0.hidden_states.8", "prompt.0.input_ids"])
        self.run_ctl("encode", "--prompt", PROMPTS[1], "--outputs", "last_hidden_state", "--save", self.saved)
        self.assertEqual(sorted(read_safetensors(self.saved)[0]), ["prompt.0.input_ids", "prompt.0.last_hidden_state"])
        self.run_ctl("encode", "--prompt", PROMPTS[1], "--outputs", "hidden_states,last_hidden_state", "--layers", "3",
                     "--save", self.saved)
        self.assertEqual(sorted(read_safetensors(self.saved)[0]),
                         ["prompt.0.hidden_states.3", "prompt.0.input_ids", "prompt.0.last_hidden_state"])

    def test_no_prompts_give_an_empty_file(self):
        self.run_ctl("encode", "--prompts-file", self.write_json([]), "--save", self.saved)
        self.assertEqual(read_safetensors(self.saved)[0], {})

    def test_saves_what_it_has_and_fails_when_a_prompt_failed(self):
        prompts = self.write_json([{"input_ids": [BOS]}, {"input_ids": [BOS, 100000]}])
        done = self.run_ctl("encode", "--prompts-file", prompts, "--save", self.saved, status=1)
        self.assertIn("bad_token", done.stdout)
        self.assertNotIn("prompt.1.input_ids", read_safetensors(self.saved)[0])
        self.assertIn("prompt.0.hidden_states.8", read_safetensors(self.saved)[0])

    def test_shows_a_table_for_people(self):
        done = self.run_ctl("encode", "--prompt", PROMPTS[3], "--prompt", "a dog", "--save", self.saved)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 3)
        for word in ("prompt", "tokens", "truncated", "ms"):
            self.assertIn(word, lines[0])
        self.assertRegex(lines[1], r"31 +no +9 x \[31x96\] .*out\.safetensors")

    def test_refuses_what_it_does_not_know(self):
        for arguments in (["enc0de"], [], ["encode", "--prompt"], ["encode", "--layers", "x"], ["encode", "--deadline-ms", "0"],
                          ["encode", "--prompts-file", "/nonexistent.json"], ["health", "--rank", "-1"],
                          ["encode"], ["tokenize"], ["encode", "--prompt", "a", "--name", ""],
                          ["encode", "--prompt", "a", "--rank", "7"]):
            with self.subTest(arguments):
                done = self.run_ctl(*arguments, status=2)
                self.assertTrue(done.stderr.startswith("gemmactl: "), done.stderr)

    def test_refuses_options_that_do_nothing_before_it_does_anything(self):
        for arguments in (["shutdown", "--name", "a"], ["sleep", "--save", "a"], ["health", "--prompt", "a"],
                          ["tokenize", "--text", "a", "--prompt", "b"], ["cancel", "--job", "1", "--layers", "1"]):
            with self.subTest(arguments):
                self.assertIn(f"no option of {arguments[0]}", self.run_ctl(*arguments, status=2).stderr)
        self.assertEqual(self.daemon.health()["status"], "ok")

    def test_a_prompts_file_that_is_no_json_is_shown_its_place(self):
        file = self.folder / "prompts.json"
        file.write_text('["a",\n "b" "c"]')
        self.assertRegex(self.run_ctl("encode", "--prompts-file", file, status=2).stderr, "line 2 column .*encode-file")

    def test_a_refusal_is_told_as_text(self):
        self.assertRegex(self.run_ctl("cancel", "--job", "999999", status=1).stderr, r"^gemmactl: not_found: \w")

    def test_a_refused_encode_saves_nothing(self):
        done = self.run_ctl("encode", "--prompt", "a", "--outputs", "nonsense", "--save", self.saved, status=1)
        self.assertIn("nonsense", done.stderr)
        self.assertFalse(self.saved.exists())
        self.run_ctl("encode", "--prompt", "a", "--layers", "9", "--save", self.saved, status=1)

    def test_a_file_that_cannot_be_saved_is_a_failure_that_names_it(self):
        done = self.run_ctl("encode", "--prompt", "a", "--save", self.folder / "no" / "such.safetensors", status=1)
        self.assertIn("such.safetensors", done.stderr)

    def test_tokenize_prints_a_list_of_ids_a_line(self):
        done = self.run_ctl("tokenize", "--text", PROMPTS[1], "--text", "", "--json")
        ids = list(TEXT_GOLDEN["prompt.1.input_ids"].values())
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], [ids, [BOS]])

    def test_tokenize_as_prompts_strips(self):
        done = self.run_ctl("tokenize", "--as-prompts", "--text", PROMPTS[2], "--text", "  ", "--json")
        ids = list(TEXT_GOLDEN["prompt.2.input_ids"].values())
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], [ids, [BOS]])

    def test_tokenize_reads_a_file_of_more_texts_than_a_request_may_have(self):
        texts = [f"text {i}" for i in range(600)]
        file = self.folder / "texts.jsonl"
        file.write_text("".join(json.dumps({"text": t} if i % 2 else t) + "\n" for i, t in enumerate(texts)))
        lines = self.run_ctl("tokenize", "--file", file, "--json").stdout.splitlines()
        self.assertEqual(len(lines), len(texts))
        some = [line for text in (texts[0], texts[599]) for line in
                self.run_ctl("tokenize", "--text", text, "--json").stdout.splitlines()]
        self.assertEqual([lines[0], lines[599]], some)

    def test_health_info_and_metrics_print_what_the_daemon_says(self):
        self.assertEqual(json.loads(self.run_ctl("health").stdout)["status"], "ok")
        info = json.loads(self.run_ctl("info", "--json").stdout)
        self.assertEqual([rank["pid"] for rank in info["ranks"]], self.daemon.pids)
        self.assertEqual((info["model"]["num_layers"], info["model"]["hidden_size"]), (8, 96))
        metrics = self.run_ctl("metrics").stdout
        for line in metrics.splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) gemmad_\w+ .+|gemmad_\w+(\{\w+=\"[^\"]*\"\})? [-+.e0-9]+)$")
        self.assertIn('gemmad_requests_total{op="health"}', metrics)

    def test_cancel_of_nothing_fails(self):
        self.assertIn("not_found", self.run_ctl("cancel", "--job", "999999", status=1).stderr)
        self.run_ctl("cancel", status=2)

    def test_the_example_reader_prints_the_norms_of_the_saved_tensors(self):
        done = self.run_ctl("encode", "--prompt", PROMPTS[1], "--prompt", "", "--save", self.saved, "--name", "shown", "--json")
        job = json.loads(done.stdout)["job"]
        saved, _ = read_safetensors(self.saved)
        for rank, key in ((0, str(job)), (1, "shown")):
            shown = run_program(READER_EXAMPLE, self.daemon.reader_socket(rank), key)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn(f"job {job} on rank {rank}, 2 prompts", shown.stdout)
            norms = [float(value) for value in re.findall(r"norm (\S+)", shown.stdout)]
            expected = [math.hypot(*saved[f"prompt.{prompt}.{state}"].values()) for prompt in (0, 1) for state in STATES]
            self.assertEqual(len(norms), len(expected))
            for found, wanted in zip(norms, expected):
                self.assertAlmostEqual(found / wanted, 1, delta=1e-5)

    def test_the_example_reader_says_why_there_is_no_result(self):
        file = self.folder / "no folder"
        file.touch()
        done = run_program(READER_EXAMPLE, file / "nothing.sock", "1")  # such a socket can never come
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing.sock", done.stderr)


class WithoutDaemon(unittest.TestCase):
    def test_says_that_nobody_listens(self):
        with tempfile.TemporaryDirectory() as folder:
            daemon = Daemon(folder=folder)
            done = gemmactl(daemon, "health")
            self.assertEqual(done.returncode, 1)
            self.assertIn(daemon.socket, done.stderr)

    def test_wait_ready_gives_up_in_time(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(gemmactl(Daemon(folder=folder), "health", "--wait-ready", "0.3").returncode, 1)

    def test_wait_ready_waits_for_a_daemon_that_is_coming_up(self):
        daemon = Daemon()
        self.addCleanup(daemon.destroy)
        daemon.start()
        done = gemmactl(daemon, "health", "--wait-ready", "60")
        self.assertEqual(done.returncode, 0, done.stderr + daemon.log())
        done = gemmactl(daemon, "shutdown")
        self.assertEqual(done.returncode, 0, done.stderr + daemon.log())
        self.assertEqual(daemon.wait_exit(), 0)


class Unread(DaemonTestCase):
    DAEMON = {"ranks": 2, "segment_mib": 1, "result_cache_mib": 0}

    def test_what_it_does_not_read_keeps_no_space(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prompts.json"
            for number, save in enumerate(([], ["--save", Path(folder) / "out"]) * 4):
                file.write_text(json.dumps([{"input_ids": [BOS] + [number] * 1000}]))  # of 384 of 1024 KiB
                done = gemmactl(self.daemon, "encode", "--prompts-file", file, "--layers", "8", "--deadline-ms", "5000", *save)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.daemon.wait_for_no_leases()

    def test_what_others_are_to_read_stays(self):
        done = gemmactl(self.daemon, "encode", "--prompt", "a", "--layers", "8", "--name", "theirs", "--json")
        for rank in (0, 1):
            self.connect_reader(rank).take(json.loads(done.stdout)["job"])


class OneSegment(DaemonTestCase):
    DAEMON = {"ranks": 2, "segments": "per_node"}

    def test_any_rank_of_the_node_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = []
            for rank in (0, 1):
                file = Path(folder) / f"{rank}.safetensors"
                done = gemmactl(self.daemon, "encode", "--prompt", "a dog", "--rank", str(rank), "--save", file)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                saved.append(read_safetensors(file)[0])
            self.assertEqual(saved[0], saved[1])
        done = gemmactl(self.daemon, "encode", "--prompt", "a dog", "--rank", "2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--rank 2: the daemon has 2 ranks on this host, and not that one", done.stderr)


if __name__ == "__main__":
    unittest.main()
