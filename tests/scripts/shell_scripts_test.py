"""The shell scripts that start a daemon, against stand-ins for mpirun, cmake, gemmad and gemmactl."""

import configparser
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "scripts"))
from fake_tree import FakeTree  # noqa: E402

# Runs until gemmactl shuts it down or a signal comes. Where it was started with what lies in $FAKE/mpirun.
MPIRUN = """#!/usr/bin/env bash
echo "$OMPI_ALLOW_RUN_AS_ROOT $*" > "$FAKE/mpirun"
echo $$ > "$FAKE/pid"
trap 'exit 0' TERM
echo "gemmad: loading 100 %" >&2
[[ -z ${FAKE_DEAD:-} ]] || { echo "gemmad: no memory" >&2; exit 3; }
until [[ -e $FAKE/stop ]]; do sleep 0.02; done
exit "${FAKE_STATUS:-0}"
"""
GEMMACTL = """#!/usr/bin/env bash
case " $* " in
  *" health "*) until [[ -s $FAKE/pid ]]; do sleep 0.02; done; [[ -z ${FAKE_DEAD:-} ]] || exec sleep 60 ;;
  *" encode "*) [[ -z ${FAKE_HANG:-} ]] || { touch "$FAKE/hanging"; while :; do sleep 0.02; done; }
    [[ -z ${FAKE_REFUSES:-} ]] || { echo "gemmactl: refused" >&2; exit 1; }
    echo "$*" > "$FAKE/encode"; echo "prompt tokens" ;;
  *" info "*) until [[ -s $FAKE/pid ]]; do sleep 0.02; done; [[ -z ${FAKE_DEAD:-} ]] || exec sleep 60
    cat "$FAKE/info.json" ;;
  *" bench "*) [[ -z ${FAKE_HANG:-} ]] || { touch "$FAKE/hanging"; while :; do sleep 0.02; done; }
    [[ -z ${FAKE_REFUSES:-} ]] || { echo "gemmactl: refused" >&2; exit 2; }
    echo "$*" >> "$FAKE/bench"; cat "$FAKE/bench.json"; exit "${FAKE_STATUS:-0}" ;;
  *" shutdown "*) touch "$FAKE/stop" ;;
esac
"""
# Makes a venv whose pip reaches nothing; all else goes to the real one.
PYTHON = """#!/usr/bin/env bash
if [[ $1 == -m && $2 == venv ]]; then
  echo venv >> "$FAKE/venv"
  mkdir -p "${!#}/bin"; printf '#!/bin/sh\\nexit 1\\n' > "${!#}/bin/pip"; chmod +x "${!#}/bin/pip"
else
  exec %s "$@"
fi
""" % sys.executable


class ScriptTree(FakeTree):
    """A copy of scripts/ in a tree that is built with stand-ins."""

    def setUp(self):
        super().setUp()
        shutil.copytree(TESTS.parent / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        self.fake = self.root / "fake"
        self.add({"config/examples/cpu_quickstart.json": "{}", "build/release/build.ninja": "",
                  "scripts/install_deps.sh": "true\n", "model/config.json": '{"hidden_size": 64}'})
        programs = {"fake/bin/mpirun": MPIRUN, "fake/bin/cmake": "#!/bin/sh\n", "fake/bin/python3": PYTHON,
                    "build/release/daemon/gemmad": "#!/bin/sh\n", "build/release/daemon/ctl/gemmactl": GEMMACTL,
                    "build/release/comm/reader/gemmad_reader_example": "#!/bin/sh\necho mapped ${1##*.} $2\n"}
        self.add(programs)
        for name in programs:
            (self.root / name).chmod(0o755)
        (self.root / "tmp").mkdir()
        self.environment = {**os.environ, "PATH": f"{self.fake}/bin:{os.environ['PATH']}", "FAKE": str(self.fake),
                            "TMPDIR": str(self.root / "tmp"), "XDG_CACHE_HOME": str(self.root / "cache")}
        self.environment.pop("OMPI_ALLOW_RUN_AS_ROOT", None)

    def start(self, script, *arguments, **environment):
        process = subprocess.Popen(["bash", self.root / "scripts" / script, *arguments], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env={**self.environment, **environment})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def run_script(self, script, *arguments, **environment):
        process = self.start(script, *arguments, **environment)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def wait_for(self, path):
        deadline = time.monotonic() + 60
        while not path.exists():
            self.assertLess(time.monotonic(), deadline, f"{path.name} never came")
            time.sleep(0.01)

    def assert_nothing_left(self):
        self.assertEqual(list((self.root / "tmp").iterdir()), [])
        self.assertRaises(ProcessLookupError, os.kill, int((self.fake / "pid").read_text()), 0)


class Launch(ScriptTree):
    def launched(self, *arguments):
        self.add({"fake/stop": ""})
        status, output = self.run_script("launch.sh", *arguments)
        self.assertEqual(status, 0, output)
        return (self.fake / "mpirun").read_text().split()

    def test_options_after_its_own_go_to_gemmad(self):
        words = self.launched("-n", "3", "--config", "a.json", "--set", "x=1")
        gemmad = str(self.root / "build/release/daemon/gemmad")
        self.assertEqual(words[words.index(gemmad) + 1:], ["--config", "a.json", "--set", "x=1"])
        self.assertEqual(words[words.index("-n") + 1], "3")

    def test_ranks_are_not_bound_to_a_core_and_cores_not_oversubscribed(self):
        words = self.launched("-n", "1", "--config", "a.json")
        self.assertEqual(words[words.index("--bind-to") + 1], "none")
        self.assertNotIn("--oversubscribe", words)

    def test_oversubscribing_is_passed_on_when_asked_for(self):
        self.assertIn("--oversubscribe", self.launched("--oversubscribe", "-n", "1", "--config", "a.json"))

    def test_only_root_is_allowed_to_run_as_root(self):
        words = self.launched("-n", "1", "--config", "a.json")
        self.assertEqual(words[0] == "1", os.geteuid() == 0)

    def test_a_hostfile_goes_to_mpirun(self):
        self.add({"hosts": "localhost slots=2\n"})
        words = self.launched("-n", "2", "--hostfile", str(self.root / "hosts"), "--config", "a.json")
        self.assertEqual(words[words.index("--hostfile") + 1], str(self.root / "hosts"))
        self.assertLess(words.index("--hostfile"), words.index(str(self.root / "build/release/daemon/gemmad")))

    def test_the_slurm_example_launches_what_the_allocation_has(self):
        self.add({"fake/stop": ""})
        status, output = self.run_script("gemmad.sbatch", "a.json", SLURM_NTASKS="16", SLURM_SUBMIT_DIR=str(self.root))
        self.assertEqual(status, 0, output)
        words = (self.fake / "mpirun").read_text().split()
        self.assertEqual(words[words.index("-n") + 1], "16")
        self.assertEqual(words[-2:], ["--config", "a.json"])

    def test_the_unit_example_starts_the_launcher_and_reloads_by_sighup(self):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str
        unit.read(self.root / "scripts/gemmad.service")
        self.assertTrue(unit["Service"]["ExecStart"].startswith("/opt/gemmad/scripts/launch.sh -n 2 --config /"))
        self.assertEqual(unit["Service"]["ExecReload"], "/bin/kill -HUP $MAINPID")
        self.assertEqual(unit["Service"]["KillMode"], "mixed")

    def test_wrong_use_is_refused_before_anything_starts(self):
        for arguments in [[], ["-n", "0", "--config", "a"], ["-n", "two", "--config", "a"], ["-n", "2"], ["-n"],
                          ["-n", "1", "--build", "/nowhere", "--config", "a"],
                          ["-n", "1", "--hostfile", "/nowhere", "--config", "a"]]:
            with self.subTest(arguments=arguments):
                status, output = self.run_script("launch.sh", *arguments)
                self.assertEqual(status, 2)
                self.assertRegex(output, "^launch: ")
        self.assertFalse((self.fake / "mpirun").exists())


class Quickstart(ScriptTree):
    def quickstart(self, *arguments, **environment):
        return self.run_script("quickstart.sh", *(arguments or ("--model", str(self.root / "model"))), **environment)

    def test_it_encodes_and_stops_the_daemon(self):
        status, output = self.quickstart()
        self.assertEqual(status, 0, output)
        self.assertIn("gemmad: loading 100 %", output)
        self.assertIn("prompt tokens", output)
        self.assertIn("mapped reader-1 quickstart", output)
        self.assertIn("quickstart_prompts.json", (self.fake / "encode").read_text())
        self.assert_nothing_left()

    def test_the_socket_lies_in_a_folder_of_its_own(self):
        self.quickstart("--model", str(self.root / "model"), "--ranks", "3")
        words = (self.fake / "mpirun").read_text().split()
        self.assertTrue(words[words.index("--socket") + 1].startswith(f"{self.root}/tmp/gemmad-quickstart."))
        self.assertEqual(words[words.index("-n") + 1], "3")

    def test_a_daemon_that_dies_while_loading_ends_it_with_the_reason(self):
        status, output = self.quickstart(FAKE_DEAD="1")
        self.assertNotEqual(status, 0)
        self.assertIn("gemmad: no memory", output)
        self.assertIn("ended before it was ready", output)
        self.assertIn("gemmad.log", output)
        self.assert_nothing_left()

    def test_a_refused_request_ends_it_and_the_daemon(self):
        status, output = self.quickstart(FAKE_REFUSES="1")
        self.assertNotEqual(status, 0)
        self.assertIn("failed (status 1) while: encoding", output)
        self.assert_nothing_left()

    def test_a_daemon_that_ends_badly_makes_it_fail(self):
        status, output = self.quickstart(FAKE_STATUS="7")
        self.assertNotEqual(status, 0)
        self.assertIn("gemmad ended with status 7", output)

    def test_a_signal_takes_the_daemon_down_too(self):
        process = self.start("quickstart.sh", "--model", str(self.root / "model"), FAKE_HANG="1")
        self.wait_for(self.fake / "hanging")
        # Ctrl-C reaches the whole foreground group; here the waiting client and the script get theirs one by one.
        process.send_signal(signal.SIGTERM)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            if b"encode" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                os.kill(int(child), signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, output)
        self.assert_nothing_left()

    def test_without_a_package_index_it_makes_a_tiny_model_and_says_so(self):
        status, output = self.quickstart("--ranks", "1")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("cannot be reached"), 1)
        self.assertTrue((self.root / "cache/gemmad/models/tiny-random/model.safetensors").exists())

    def test_a_model_that_is_there_is_not_fetched_again(self):
        self.add({"cache/gemmad/models/gemma-3-270m/config.json": "{}"})
        status, output = self.quickstart("--ranks", "1")
        self.assertEqual(status, 0, output)
        self.assertIn("Gemma Terms of Use", output)
        self.assertFalse((self.fake / "venv").exists())

    def test_wrong_use_is_refused_before_anything_starts(self):
        for arguments in [["--ranks", "0"], ["--prompts", "/nowhere"], ["--model"], ["--what"], ["--model", "/nowhere"]]:
            with self.subTest(arguments=arguments):
                status, output = self.quickstart(*arguments)
                self.assertNotEqual(status, 0)
                self.assertIn(arguments[-1].lstrip("-"), output)
        self.assertFalse((self.fake / "mpirun").exists())

    def test_the_segment_grows_with_the_prompts(self):
        self.add({"many.json": json.dumps(["x" * 2000] * 100),
                  "model/config.json": '{"text_config": {"hidden_size": 3840, "num_hidden_layers": 48}}'})
        self.quickstart("--model", str(self.root / "model"), "--prompts", str(self.root / "many.json"))
        setting = next(word for word in (self.fake / "mpirun").read_text().split() if word.startswith("segment_mib="))
        self.assertGreater(int(setting.partition("=")[2]), 100 * 1024 * 49 * 3840 * 4 // 2**20)


class BenchModes(ScriptTree):
    INFO = {"version": "1.2", "strategy": "tensor", "ranks_per_replica": 0, "encoder_ranks": [],
            "ranks": [{"device": "H200"}, {"device": "H200"}]}
    BENCH = {"done": 5, "failed": 0, "request_ms": {"p50": 1.5, "p99": 2}, "per_second": {"tokens": 3}}

    def setUp(self):
        super().setUp()
        self.add({"fake/info.json": json.dumps(self.INFO), "fake/bench.json": json.dumps(self.BENCH)})
        self.out = self.root / "out.jsonl"

    def arguments(self, *more):
        return ["--model", str(self.root / "model"), "--out", str(self.out), "--requests", "5", *more]

    def measure(self, *more, **environment):
        """Exit status, output, and the lines of the file."""
        status, output = self.run_script("bench_modes.sh", *self.arguments(*more), **environment)
        return status, output, [json.loads(line) for line in self.out.read_text().splitlines()]

    def test_every_mode_at_every_number_of_ranks_runs_every_case(self):
        status, output, lines = self.measure("--ranks", "1 2", "--modes", "sharded:layer batch_parallel",
                                             "--cases", "8x20 7,9")
        self.assertEqual(status, 0, output)
        self.assertEqual([(line["ranks"], line["mode"], line["case"]) for line in lines],
                         [(ranks, mode, case) for ranks in (1, 2) for mode in ("sharded", "batch_parallel")
                          for case in ("8x20", "7,9")])
        self.assertIn("p50 1.5 ms", output)
        self.assert_nothing_left()

    def test_a_line_tells_what_ran_and_what_it_took(self):
        _, _, (line,) = self.measure("--ranks", "2", "--modes", "sharded:tensor", "--cases", "128")
        expected = {"mode": "sharded", "strategy": "tensor", "ranks": 2, "ranks_per_replica": 0,
                    "encoder_ranks": [0, 1], "model": str(self.root / "model"), "case": "128",
                    "cores": len(os.sched_getaffinity(0)), "devices": ["H200"], "version": "1.2"}
        self.assertEqual({key: line[key] for key in expected}, expected)
        self.assertEqual({key: line[key] for key in self.BENCH}, self.BENCH)
        self.assertRegex(line["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

    def test_options_reach_the_daemon_and_the_benchmark(self):
        self.measure("--ranks", "4", "--modes", "adaptive", "--cases", "3", "--oversubscribe",
                     "--set", "segment_mib=64", "--", "--read", "all")
        words = (self.fake / "mpirun").read_text().split()
        settings = [after for word, after in zip(words, words[1:]) if word == "--set"]
        # Kept results would answer what is to be measured; who asks for them comes last, and wins.
        self.assertEqual(settings, ["result_cache_mib=0", "segment_mib=64"])
        self.assertIn("--oversubscribe", words)
        self.assertRegex((self.fake / "bench").read_text(),
                         r"bench --tokens 3 --requests 5 --read all --json$")

    def test_a_daemon_that_refuses_gives_a_line_and_the_run_goes_on(self):
        status, output, lines = self.measure("--ranks", "1 2", "--modes", "adaptive", "--cases", "3 4",
                                             FAKE_DEAD="1")
        self.assertEqual(status, 0, output)
        self.assertEqual([(line["ranks"], line["refused"]) for line in lines],
                         [(1, "no memory"), (2, "no memory")])
        self.assert_nothing_left()

    def test_a_case_that_cannot_be_measured_gives_a_line_with_the_reason(self):
        status, _, lines = self.measure("--ranks", "1", "--modes", "adaptive", "--cases", "3 4",
                                        FAKE_REFUSES="1")
        self.assertEqual(status, 1)
        self.assertEqual([line["error"] for line in lines], ["gemmactl: refused"] * 2)

    def test_lines_are_added_to_what_is_there(self):
        self.add({"out.jsonl": "{}\n"})
        self.assertEqual(len(self.measure("--ranks", "1", "--modes", "adaptive", "--cases", "3")[2]), 2)

    def test_a_signal_takes_daemon_and_benchmark_down_at_once(self):
        process = self.start("bench_modes.sh", *self.arguments("--ranks", "1"), FAKE_HANG="1")
        self.wait_for(self.fake / "hanging")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, output)
        self.assert_nothing_left()

    def test_wrong_use_is_refused_before_anything_starts(self):
        for arguments in [["--ranks", "0"], ["--modes", "a:b:c"], ["--cases", "12x"], ["--requests", "no"],
                          ["--what"], ["--build", "/nowhere"], ["--model", "/nowhere"],
                          ["--out", "/nowhere/out"], ["--set"]]:
            with self.subTest(arguments=arguments):
                status, output = self.run_script("bench_modes.sh", *self.arguments(*arguments))
                self.assertNotEqual(status, 0)
                self.assertIn(arguments[-1].lstrip("-"), output)
        self.assertFalse((self.fake / "mpirun").exists())


if __name__ == "__main__":
    unittest.main()
