"""scripts/gpu_check.sh against stand-ins for the GPU's tools, and the table that it makes."""

import json
import shutil
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "scripts"), str(TESTS / "bench")]
import gpu_speed  # noqa: E402
import gpu_table  # noqa: E402
from shell_scripts_test import ScriptTree  # noqa: E402

SMI = """#!/usr/bin/env bash
[[ -z ${FAKE_NO_GPU:-} ]] || exit 9
for ((i = 0; i < ${FAKE_GPUS:-2}; ++i)); do echo "NVIDIA H200, 580.1"; done
"""
# Every tool notes what it was told; python3 answers for the programs that need a GPU.
TOOL = """#!/usr/bin/env bash
echo "${0##*/} $*" >> "$FAKE/calls"
[[ " ${FAKE_FAILS:-} " != *" ${0##*/} "* ]] || { echo "${0##*/} broke"; exit 4; }
[[ ${0##*/} != torchrun ]] || cat "$FAKE/ltx.json"
"""
PYTHON = """#!/usr/bin/env bash
case $1 in
  */gpu_table.py) exec %s "$@" ;;
  */gpu_accuracy.py) cp "$FAKE/accuracy.jsonl" "${!#}" ;;
  */gpu_speed.py) cat "$FAKE/speed.jsonl" ;;
  */peer_best.py) cat "$FAKE/best.json" ;;
esac
echo "python3 $*" >> "$FAKE/calls"
[[ " ${FAKE_FAILS:-} " != *" $(basename "$1") "* ]] || exit 1
""" % sys.executable


def record(ranks, mode, case, ms, states="all", segments="per_rank"):
    stages = dict.fromkeys(gpu_speed.STAGES, 1.25)
    return {"kind": "speed", "ranks": ranks, "segments": segments, "mode": mode, "case": case, "states": states,
            "requests": 30, "median_ms": ms, "p10_ms": ms - 0.5, "p90_ms": ms + 0.5, "stages_ms": stages,
            "cuts": {"deal": 30}}


SPEED = [record(1, "one rank", "1x128", 8.0), record(1, "one rank", "1x128", 7.0, "last"),
         record(2, "tensor", "2x128", 7.5), record(2, "batch_parallel", "2x128", 9.0), record(2, "adaptive", "2x128", 7.65)]
ACCURACY = [{"kind": "accuracy", "part": "random", "layout": "2:tensor", "passed": True, "summary": "worst ratio 1.010"}]
LTX = {"mode": "accelerate", "world": 2, "lens": [128, 128], "encode_ms_median": 319.0, "forward_only_ms": 254.0}
BEST = {"eager 1x128": 75.9, "eager 2x128": 76.4, "compile 1x128": 12.8}


def lines(records):
    return "".join(json.dumps(line) + "\n" for line in records)


class GpuCheck(ScriptTree):
    def setUp(self):
        super().setUp()
        shutil.copytree(TESTS / "bench", self.root / "tests/bench", ignore=shutil.ignore_patterns("__pycache__", "baselines"))
        tools = {f"fake/bin/{name}": TOOL for name in ("cmake", "ctest", "torchrun")}
        tools.update({"fake/bin/python3": PYTHON, "fake/bin/nvidia-smi": SMI})
        self.add({**tools, "peers/peer_best.py": "", "fake/speed.jsonl": "a warning\n" + lines(SPEED),
                  "fake/accuracy.jsonl": lines(ACCURACY), "fake/best.json": lines([BEST]), "fake/ltx.json": lines([LTX])})
        for name in tools:
            (self.root / name).chmod(0o755)

    def check(self, *arguments, **environment):
        """Exit status, output, and what the tools were told."""
        status, output = self.run_script("gpu_check.sh", *arguments, **environment)
        calls = self.fake / "calls"
        return status, output, calls.read_text() if calls.exists() else ""

    def baselines(self):
        return [json.loads(line) for line in (self.root / "tests/bench/baselines/nvidia-h200.jsonl").read_text().splitlines()]

    def test_all_parts_run_and_the_figures_are_kept(self):
        status, output, calls = self.check("--peers", str(self.root / "peers"), "--commit", "abc")
        self.assertEqual(status, 0, output)
        for told in ("-DGEMMAD_CUDA=ON", "-L ^gpu$", "--layouts 1 2:tensor 2:layer", "--ranks 1 2 --layers 48",
                     "peer_best.py", "--nproc-per-node=2", "peer_ltx.py accelerate 128,128", "peer_ltx.py batch 1024,1024"):
            self.assertIn(told, calls)
        self.assertRegex(output, r"\| 2 \| tensor \| per_rank \| 2x128 \| all \| 7\.50 \|.* \| 319 \|\n")
        self.assertIn((self.root / "build/gpu_check/gpu_check.md").read_text().strip(), output)
        self.assertRegex(output.splitlines()[-1], r"^gpu_check: PASS in \d+ s: build tests accuracy speed enhance peers;")
        first = self.baselines()[0]
        self.assertEqual((first["gpu"], first["driver"], first["commit"], first["median_ms"], first["peers"]),
                         ("NVIDIA H200", "580.1", "abc", 8.0, {"eager_ms": 75.9, "compiled_ms": 12.8, "ltx_ms": None}))

    def test_one_gpu_runs_what_one_gpu_can(self):
        status, output, calls = self.check("--peers", str(self.root / "peers"), FAKE_GPUS="1")
        self.assertEqual(status, 0, output)
        self.assertIn("--layouts 1 --deep-layers", calls)
        self.assertIn("--ranks 1 --layers", calls)
        self.assertNotIn("accelerate", calls)

    def test_a_part_that_fails_is_named_at_the_end_and_the_others_run(self):
        status, output, calls = self.check("--peers", str(self.root / "peers"), FAKE_FAILS="ctest gpu_accuracy.py")
        self.assertEqual(status, 1)
        self.assertIn("gpu_speed.py", calls)
        self.assertRegex(output.splitlines()[-1], r"^gpu_check: FAIL after \d+ s: tests accuracy; logs are in /")

    def test_a_build_that_fails_ends_it(self):
        status, output, calls = self.check(FAKE_FAILS="cmake")
        self.assertEqual(status, 1)
        self.assertIn("cmake broke", output)
        self.assertNotIn("ctest", calls)

    def test_parts_can_be_chosen(self):
        status, output, calls = self.check("--only", "speed,tests")
        self.assertEqual(status, 0, output)
        self.assertNotIn("cmake", calls)
        self.assertNotIn("gpu_accuracy", calls)
        self.assertIn("gpu_speed", calls)

    def test_quick_and_no_build_leave_parts_out(self):
        _, output, calls = self.check("--quick", "--no-build", "--peers", str(self.root / "peers"))
        self.assertRegex(output.splitlines()[-1], r": tests accuracy speed enhance;")
        self.assertIn("--requests 10", calls)
        self.assertIn("--parts tiny random lengths processor", calls)

    def test_without_peers_it_says_so(self):
        status, output, _ = self.check()
        self.assertEqual(status, 0, output)
        self.assertIn("left out: peers", output)

    def test_a_table_made_again_replaces_its_lines(self):
        self.check("--only", "speed", FAKE_GPUS="1")
        self.check("--only", "tests", FAKE_GPUS="1")
        self.assertEqual(len(self.baselines()), len(SPEED))

    def test_wrong_use_is_refused_before_anything_runs(self):
        for arguments in [["--only", "all"], ["--peers", "/nowhere"], ["--layers", "0"], ["--requests", "x"], ["--what"]]:
            with self.subTest(arguments=arguments):
                status, output, calls = self.check(*arguments)
                self.assertEqual((status, calls), (2, ""))
                self.assertIn(arguments[-1].lstrip("-"), output)

    def test_without_a_gpu_it_says_so(self):
        status, output, _ = self.check(FAKE_NO_GPU="1")
        self.assertEqual(status, 2)
        self.assertIn("no NVIDIA GPU", output)


class Table(unittest.TestCase):
    FACTS = gpu_table.Facts("NVIDIA H200", "580.1", "abc", "scripts/gpu_check.sh", 48, "2026-01-01T00:00:00+00:00")

    def peers(self):
        peers = gpu_table.Peers()
        for line in (BEST, LTX, {**LTX, "mode": "batch", "encode_ms_median": 82.0}):
            peers.add(line)
        return peers

    def cells(self, number):
        return gpu_table.row(SPEED[number], self.FACTS, self.peers())

    def test_a_row_has_floor_share_and_peers(self):
        self.assertEqual(self.cells(0), ["1", "one rank", "per_rank", "1x128", "all", "8.00", "7.50", "8.50", "-", "1.25", "1.25",
                                         "5.90 weights, states", "74 %", "75.9", "12.80", "-"])

    def test_adaptive_is_held_against_the_better_of_its_ways(self):
        self.assertEqual(self.cells(4)[11:], ["3.50 products", "46 %", "-", "-", "82.0"])
        self.assertEqual(gpu_table.adaptive_lines(SPEED), ["2x128 (per_rank) 1.02"])

    def test_the_last_state_alone_stands_beside_forward_passes(self):
        self.assertEqual(self.peers().of(record(2, "tensor", "2x128", 4.0, "last"))["ltx_ms"], 254.0)

    def test_floors_are_for_the_whole_model_on_that_gpu_alone(self):
        for other in ({"layers": 6}, {"gpu": "NVIDIA A100"}):
            facts = gpu_table.Facts(**{**vars(self.FACTS), **other})
            self.assertEqual(gpu_table.row(SPEED[0], facts, self.peers())[11:13], ["-", "-"])

    def test_a_case_that_was_rested_too_shows_both_times(self):
        row = gpu_table.row({**SPEED[0], "rested_ms": 6.5}, self.FACTS, self.peers())
        self.assertEqual((row[5], row[8]), ("8.00", "6.50"))

    def test_embeddings_stand_beside_nobody(self):
        beside = self.peers().of(record(1, "one rank", "1x128", 12.0, "embeddings"))
        self.assertEqual(set(beside.values()), {None})

    def test_what_failed_is_in_the_document(self):
        error = {"kind": "error", "ranks": 2, "segments": "per_node", "error": "AssertionError: no"}
        text = gpu_table.document(self.FACTS, [*SPEED, error], ACCURACY, self.peers())
        self.assertIn("FAILED: AssertionError: no (2 GPUs, per_node)", text)
        self.assertIn("| random | 2:tensor | worst ratio 1.010 | pass |", text)


class Speed(unittest.TestCase):
    def test_figures_are_medians_and_nearest_ranks(self):
        samples = [gpu_speed.Sample(float(ms), dict.fromkeys(gpu_speed.STAGES, ms / 2), "deal") for ms in range(1, 21)]
        found = gpu_speed.figures(samples)
        self.assertEqual((found["requests"], found["median_ms"], found["p10_ms"], found["p90_ms"]), (20, 10.5, 2.0, 18.0))
        self.assertEqual((found["stages_ms"]["compute"], found["cuts"]), (5.25, {"deal": 20}))

    def test_a_request_asks_for_what_the_case_says(self):
        request = gpu_speed.Case(2, 16, "last").request(gpu_speed.random.Random(1), 100)
        self.assertEqual([len(prompt["input_ids"]) for prompt in request["prompts"]], [16, 16])
        self.assertEqual(request["outputs"], ["last_hidden_state"])

    def test_several_gpus_go_through_every_mode_in_both_kinds_of_segments(self):
        runs = gpu_speed.runs_for(2, processes=False)
        self.assertEqual([run.segments for run in runs], ["per_rank", "per_node"])
        for run in runs:
            self.assertEqual([way.name for way in run.ways], ["tensor", "batch_parallel", "adaptive"])

    def test_embeddings_are_timed_where_there_is_a_processor(self):
        def outputs(processes):
            return {case.states for run in gpu_speed.runs_for(1, processes) for way in run.ways for case in way.cases}

        self.assertEqual(outputs(True) - outputs(False), {"embeddings"})


if __name__ == "__main__":
    unittest.main()
