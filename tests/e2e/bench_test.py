"""gemmactl bench and scripts/bench_modes.sh against the real daemon."""

import json
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import (GEMMACTL, GEMMAD, NUM_LAYERS, TESTS, TINY, WIDTH, Daemon, DaemonTestCase, gemmactl,
                     run_program)
from processes import DEADLINE_S, poll

STATE_BYTES = WIDTH * 4          # of a token in one hidden state
TOKEN_BYTES = STATE_BYTES * (NUM_LAYERS + 1)


def start_bench(daemon, *arguments):
    """A bench that runs, and has measured something."""
    process = subprocess.Popen([str(GEMMACTL), "--socket", daemon.socket, "bench", "--json", *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before = daemon.health()["ranks"][0]["tokens"]
    poll(lambda: daemon.health()["ranks"][0]["tokens"] > before + 10 * 128, "the bench is under way")
    return process


class Bench(DaemonTestCase):
    DAEMON = {"ranks": 2, "segment_mib": 8}

    def bench(self, *arguments, status=0):
        done = gemmactl(self.daemon, "bench", *arguments)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def report(self, *arguments, status=0):
        return json.loads(self.bench("--json", *arguments, status=status).stdout)

    def test_shows_a_table_for_people(self):
        lines = self.bench("--requests", "5", "--tokens", "7").stdout.splitlines()
        self.assertRegex(lines[0], r"^requests +5 done, 0 failed in \d+\.\d\d s$")
        self.assertRegex(lines[1], r"^load +1 at a time, prompts of 7 tokens$")
        self.assertRegex(lines[2], r"^request ms +p50 \S+ +p90 \S+ +p99 \S+ +max \S+$")
        self.assertRegex(lines[3],
                         r"^a second +\S+ requests +\S+ prompts +\S+ tokens +\S+ MB to the reader of rank 0$")
        self.assertRegex(lines[4], r"^time +queue \S+ % +compute \S+ % +deliver \S+ % +rest \S+ %$")

    def test_two_runs_have_other_prompts_unless_they_have_one_seed(self):
        seeds = [self.report("--requests", "1", *seed)["settings"]["seed"] for seed in ([], [], ["--seed", "7"])]
        self.assertNotEqual(seeds[0], seeds[1])
        self.assertEqual(seeds[2], 7)

    def test_figures_add_up(self):
        report = self.report("--requests", "12", "--tokens", "3,2x5", "--concurrency", "3")
        self.assertEqual((report["done"], report["failed"], report["errors"]), (12, 0, {}))
        self.assertEqual((report["prompts"], report["tokens"]), (12 * 3, 12 * 13))
        self.assertEqual(report["reader_bytes"], 12 * 13 * TOKEN_BYTES)
        self.assertFalse(report["interrupted"])
        self.assertEqual(sum(report["cuts"].values()), 12)
        times = report["request_ms"]
        self.assertEqual(sorted(times.values()), [times["p50"], times["p90"], times["p99"], times["max"]])
        self.assertGreater(times["p50"], 0)
        self.assertLessEqual(times["max"], report["wall_s"] * 1000)
        shares = report["shares"]
        self.assertEqual(sorted(shares), ["compute", "deliver", "queue", "rest"])
        self.assertAlmostEqual(sum(shares.values()), 1, delta=1e-6)
        for share in shares.values():
            self.assertTrue(0 <= share <= 1, shares)
        for name, count in (("requests", 12), ("prompts", 36), ("tokens", 156),
                            ("reader_bytes", report["reader_bytes"])):
            self.assertAlmostEqual(report["per_second"][name] * report["wall_s"] / count, 1, delta=1e-3)
        settings = report["settings"]
        self.assertEqual((settings["tokens"], settings["concurrency"], settings["read_ranks"]),
                         ("3,2x5", 3, [0]))

    def test_as_many_ranks_read_as_are_asked_for(self):
        for read, ranks in (("none", []), ("1", [1]), ("all", [0, 1])):
            report = self.report("--requests", "4", "--tokens", "5", "--read", read)
            self.assertEqual(report["settings"]["read_ranks"], ranks)
            self.assertEqual(report["reader_bytes"], len(ranks) * 4 * 5 * TOKEN_BYTES)

    def test_outputs_and_layers_choose_what_is_read(self):
        report = self.report("--requests", "3", "--tokens", "5", "--layers", "8")
        self.assertEqual(report["reader_bytes"], 3 * 5 * STATE_BYTES)
        report = self.report("--requests", "3", "--tokens", "5", "--outputs", "last_hidden_state")
        self.assertEqual(report["reader_bytes"], 3 * 5 * STATE_BYTES)

    def test_what_nobody_reads_does_not_fill_the_segments(self):
        # A result takes 3.5 of 8 MiB on each rank, and would wait there for a minute.
        for read in ("none", "0", "all"):
            self.report("--requests", "6", "--tokens", "1024", "--read", read, "--deadline-ms", "20000")
        self.daemon.wait_for_no_leases()

    def test_time_ends_it(self):
        report = self.report("--seconds", "0.3", "--tokens", "5", "--warmup", "0")
        self.assertGreater(report["done"], 0)
        self.assertGreaterEqual(report["wall_s"], 0.3)

    def test_a_preference_is_sent(self):
        self.assertEqual(self.report("--requests", "2", "--prefer", "deal")["settings"]["prefer"], "deal")

    def test_failing_requests_are_counted_and_named(self):
        done = self.bench("--json", "--requests", "5", "--layers", "9", status=1)
        report = json.loads(done.stdout)
        self.assertEqual((report["done"], report["failed"], report["errors"]), (0, 5, {"bad_request": 5}))
        self.assertIsNone(report["request_ms"])
        self.assertRegex(done.stderr, r"bench: failed with bad_request \(5\): .*'layers' is 9")
        self.assertIn("bad_request 5", self.bench("--requests", "5", "--layers", "9", status=1).stdout)

    def test_refuses_what_it_does_not_know_or_cannot_do(self):
        for arguments, words in ((["--what"], "--what"), (["--prompt", "a"], "--prompt"),
                                 (["--tokens", "0"], "--tokens"), (["--tokens", "1025"], "max_tokens"),
                                 (["--read", "2"], "--read 2"), (["--concurrency", "0"], "--concurrency"),
                                 (["--prefer", "both"], "--prefer"), (["--requests"], "--requests")):
            with self.subTest(arguments):
                done = self.bench(*arguments, status=2)
                self.assertTrue(done.stderr.startswith("gemmactl: "), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_an_interrupt_ends_it_with_what_was_measured(self):
        process = start_bench(self.daemon, "--seconds", "600", "--concurrency", "2")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, output + errors)
        report = json.loads(output)
        self.assertTrue(report["interrupted"])
        self.assertGreater(report["done"], 0)
        self.assertEqual(report["failed"], 0)


class Ending(unittest.TestCase):
    def test_a_daemon_that_ends_is_a_failure_and_ends_the_bench(self):
        with Daemon() as daemon:
            process = start_bench(daemon, "--seconds", "600", "--concurrency", "2")
            self.assertEqual(daemon.stop(), 0)
            output, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 1, output + errors)
        report = json.loads(output)
        self.assertGreater(report["done"], 0)
        self.assertGreater(report["failed"], 0)
        self.assertLessEqual(set(report["errors"]), {"disconnected", "shutting_down", "reader_disconnected"})


class Modes(unittest.TestCase):
    def test_the_script_measures_what_starts_and_tells_what_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, program in (("daemon/gemmad", GEMMAD), ("daemon/ctl/gemmactl", GEMMACTL)):
                link = Path(folder, "build", name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(program).resolve())
            out = Path(folder, "out.jsonl")
            done = run_program("bash", TESTS.parent / "scripts" / "bench_modes.sh", "--model", TINY,
                               "--build", f"{folder}/build", "--out", out, "--ranks", "1",
                               "--modes", "batch_parallel nonsense", "--cases", "3 2x4", "--requests", "3",
                               "--set", "segment_mib=16", "--", "--read", "all",
                               env={**os.environ, "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            self.assertEqual([path.name for path in Path(folder).glob("gemmad-bench*")], [])
        self.assertEqual([(line["mode"], line["case"]) for line in lines],
                         [("batch_parallel", "3"), ("batch_parallel", "2x4"), ("nonsense", None)])
        self.assertEqual([line["tokens"] for line in lines[:2]], [9, 24])
        self.assertEqual([line["encoder_ranks"] for line in lines[:2]], [[0], [0]])
        self.assertIn("nonsense", lines[2]["refused"])


if __name__ == "__main__":
    unittest.main()
