"""scripts/gpu_check.sh against stand-ins for the GPU's tools, and the table that it makes."""

import json
import shutil
import sys
import tempfile
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
case ${0##*/} in
  torchrun) echo "it sees $CUDA_VISIBLE_DEVICES" >> "$FAKE/calls"; cat "$FAKE/ltx.json" ;;
  stage_bench) cat "$FAKE/shares.txt" ;;
  mpirun) [[ -z ${FAKE_NO_PEERS:-} ]] || exit 77; cat "$FAKE/sums.txt" ;;
esac
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
SPEED[2]["stages_ms"]["compute"] = 7.2
ACCURACY = [{"kind": "accuracy", "part": "random", "layout": "2:tensor", "passed": True, "summary": "worst ratio 1.010"}]
LTX = {"mode": "accelerate", "world": 2, "lens": [128, 128], "encode_ms_median": 319.0, "forward_only_ms": 254.0}
SHARES = """NVIDIA H200, bf16, 48 layers, 1 of 2 slices; weights made and loaded in 3.1 s, products tuned in 9.9 s
tokens         pass ms    qkv us norm_rope
128              4.010      12.1       2.0
128+128          6.000      20.1       2.5
"""
SUMS = """    rows  no sum us   one step  two steps       NCCL
       1       2.30       4.50       5.50       9.50
     128       3.20       8.40       9.10      15.70
2 ranks: all as it must be
"""
BEST = {"eager 1x128": 75.9, "eager 2x128": 76.4, "compile 1x128": 12.8}


def lines(records):
    return "".join(json.dumps(line) + "\n" for line in records)


class GpuCheck(ScriptTree):
    def setUp(self):
        super().setUp()
        shutil.copytree(TESTS / "bench", self.root / "tests/bench", ignore=shutil.ignore_patterns("__pycache__", "baselines"))
        tools = {f"fake/bin/{name}": TOOL for name in ("cmake", "ctest", "torchrun", "mpirun")}
        tools["build/release/tests/bench/stage_bench"] = TOOL
        tools.update({"fake/bin/python3": PYTHON, "fake/bin/nvidia-smi": SMI})
        self.add({**tools, "peers/peer_best.py": "", "fake/speed.jsonl": "a warning\n" + lines(SPEED),
                  "fake/accuracy.jsonl": lines(ACCURACY), "fake/best.json": lines([BEST]), "fake/ltx.json": lines([LTX]),
                  "fake/shares.txt": SHARES, "fake/sums.txt": SUMS})
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
        for told in ("-DGEMMAD_CUDA=ON", "-L ^gpu$", "--layouts 1 2:tensor 2:layer --deep", "--ranks 1 2 --layers 48",
                     "stage_bench --slices 2 --layers 48 --tokens 128,128+128,1024,1024+1024 --rounds 20\n", "mpirun -n 2 ",
                     "peer_best.py", "--nproc-per-node=2", "peer_ltx.py accelerate 128,128\n", "peer_ltx.py batch 1024,1024\n"):
            self.assertIn(told, calls)
        self.assertRegex(output, r"\| 2 \| tensor \| per_rank \| 2x128 \| all \| 7\.50 \|.* \| 17 % \| - \| - \| 319 \|\n")
        self.assertIn("| GPUs | rows | no sum us | one step | two steps | NCCL |", output)
        self.assertIn("\n| 2 | 128 | 3.20 | 8.40 | 9.10 | 15.70 |\n", output)
        self.assertIn((self.root / "build/gpu_check/gpu_check.md").read_text().strip(), output)
        self.assertRegex(output.splitlines()[-1], r"^gpu_check: PASS in \d+ s: build tests accuracy speed shares enhance peers;")
        first = self.baselines()[0]
        self.assertEqual((first["gpu"], first["driver"], first["commit"], first["median_ms"], first["peers"]),
                         ("NVIDIA H200", "580.1", "abc", 8.0, {"eager_ms": 75.9, "compiled_ms": 12.8, "ltx_ms": None}))
        tensor = self.baselines()[2]
        self.assertEqual((tensor["floor_ms"], tensor["floor_of"], tensor["sums_share"]), (3.49, "products", 0.167))

    def test_four_gpus_run_four_ranks_in_replicas_too(self):
        status, output, calls = self.check("--peers", str(self.root / "peers"), FAKE_GPUS="5", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(status, 0, output)
        for told in ("--layouts 1 2:tensor 2:layer 4:tensor 4:layer 4:tensor:2 --deep", "--ranks 1 2 4 --layers",
                     "gpu_enhance.py --ranks 4 ", "stage_bench --slices 4 ", "mpirun -n 4 ",
                     "--nproc-per-node=4 %s/peer_ltx.py accelerate %s\n" % (self.root / "peers", ",".join(["128"] * 64)),
                     "--nproc-per-node=1 %s/peer_ltx.py batch %s\n" % (self.root / "peers", ",".join(["1024"] * 8)),
                     "--nproc-per-node=2 %s/peer_ltx.py accelerate 128\nit sees 0,1\n" % (self.root / "peers")):
            self.assertIn(told, calls)
        self.assertNotIn("8:tensor", calls)

    def test_ranks_can_be_chosen(self):
        status, output, calls = self.check("--ranks", "8,2", "--peers", str(self.root / "peers"), FAKE_GPUS="8")
        self.assertEqual(status, 0, output)
        self.assertIn("--layouts 2:tensor 2:layer 8:tensor 8:layer 8:tensor:2 ", calls)
        self.assertIn("--ranks 2 8 --layers", calls)
        self.assertNotIn("--nproc-per-node=1 ", calls)
        status, output, calls = self.check("--ranks", "4", "--only", "speed", FAKE_GPUS="2")
        self.assertEqual(status, 2)
        self.assertIn("--ranks: 4 needs as many GPUs, and here are 2", output)

    def test_gpus_that_cannot_read_each_other_are_no_failure(self):
        status, output, _ = self.check("--only", "shares", FAKE_NO_PEERS="1")
        self.assertEqual(status, 0, output)
        self.assertIn("left out: sums-2", output)

    def test_one_gpu_runs_what_one_gpu_can(self):
        status, output, calls = self.check("--peers", str(self.root / "peers"), FAKE_GPUS="1")
        self.assertEqual(status, 0, output)
        self.assertIn("--layouts 1 --deep-layers", calls)
        self.assertIn("--ranks 1 --layers", calls)
        self.assertNotIn("accelerate", calls)
        self.assertNotIn("mpirun", calls)
        self.assertIn("stage_bench --slices 1 ", calls)

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
        self.assertRegex(output.splitlines()[-1], r": tests accuracy speed shares enhance;")
        self.assertIn("--requests 10 --large-requests 3\n", calls)
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
        for arguments in [["--only", "all"], ["--peers", "/nowhere"], ["--layers", "0"], ["--requests", "x"], ["--ranks", "3"],
                          ["--what"]]:
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

    def measured(self, one_gpu=None):
        measured = gpu_table.Measured(one_gpu=one_gpu or {})
        for line in (BEST, LTX, {**LTX, "mode": "batch", "encode_ms_median": 82.0}):
            measured.peers.add(line)
        return measured

    def peers(self):
        return self.measured().peers

    def cells(self, number):
        return gpu_table.row(SPEED[number], self.FACTS, self.measured({("2x128", "all"): 15.0, ("1x128", "all"): 8.0}))

    def test_a_row_has_floor_share_and_peers(self):
        self.assertEqual(self.cells(0), ["1", "one rank", "per_rank", "1x128", "all", "8.00", "7.50", "8.50", "-", "1.25", "1.25",
                                         "5.92 weights, states", "74 %", "-", "-", "75.9", "12.80", "-"])
        self.assertEqual(len(self.cells(0)), len(gpu_table.COLUMNS))

    def test_adaptive_is_held_against_the_better_of_its_ways(self):
        self.assertEqual(self.cells(4)[11:], ["3.49 products", "46 %", "1.96", "-", "-", "-", "82.0"])
        self.assertEqual(gpu_table.adaptive_lines(SPEED), ["2 GPUs 2x128 (per_rank) 1.02"])

    def test_the_last_state_alone_stands_beside_forward_passes(self):
        self.assertEqual(self.peers().of(record(2, "tensor", "2x128", 4.0, "last"))["ltx_ms"], 254.0)

    def test_floors_are_for_the_whole_model_on_that_gpu_alone(self):
        for other in ({"layers": 6}, {"gpu": "NVIDIA A100"}):
            facts = gpu_table.Facts(**{**vars(self.FACTS), **other})
            self.assertEqual(gpu_table.row(SPEED[0], facts, self.measured())[11:13], ["-", "-"])

    def test_a_case_that_was_rested_too_shows_both_times(self):
        row = gpu_table.row({**SPEED[0], "rested_ms": 6.5}, self.FACTS, self.measured())
        self.assertEqual((row[5], row[8]), ("8.00", "6.50"))

    def test_embeddings_stand_beside_nobody(self):
        beside = self.peers().of(record(1, "one rank", "1x128", 12.0, "embeddings"))
        self.assertEqual(set(beside.values()), {None})

    def test_what_failed_is_in_the_document(self):
        error = {"kind": "error", "ranks": 2, "segments": "per_node", "error": "AssertionError: no"}
        text = gpu_table.document(self.FACTS, [*SPEED, error], ACCURACY, self.measured())
        self.assertIn("FAILED: AssertionError: no (2 GPUs, per_node)", text)
        self.assertIn("| random | 2:tensor | worst ratio 1.010 | pass |", text)


# Least milliseconds on H200s as they were worked out one by one, and what takes them.
KNOWN_FLOORS = [
    (1, "one rank", "1x16", "all", 5.2, "weights, states"), (1, "one rank", "1x128", "all", 5.9, "weights, states"),
    (1, "one rank", "1x128", "last", 5.05, "weights"), (1, "one rank", "2x128", "all", 7.0, "products"),
    (1, "one rank", "1x1024", "all", 28.0, "products"), (1, "one rank", "2x1024", "all", 57.0, "products"),
    (1, "one rank", "2x1024", "last", 57.0, "products"), (2, "tensor", "1x128", "all", 3.4, "weights, states"),
    (2, "tensor", "1x128", "last", 2.5, "weights"), (2, "tensor", "2x128", "all", 3.5, "products"),
    (2, "tensor", "2x1024", "all", 28.0, "products"), (2, "batch_parallel", "1x128", "all", 5.9, "weights, states"),
    (2, "batch_parallel", "2x128", "all", 5.9, "weights, states"), (2, "batch_parallel", "2x1024", "all", 28.0, "products")]


class Floors(unittest.TestCase):
    def floor(self, ranks, mode, case, states="all", segments="per_rank"):
        return Table.FACTS.floor(record(ranks, mode, case, 9.0, states, segments))

    def test_they_are_those_that_were_worked_out_for_one_and_two_gpus(self):
        for *case, ms, takes in KNOWN_FLOORS:
            with self.subTest(case=case):
                found, found_takes = self.floor(*case)
                self.assertLessEqual(abs(found - ms), max(0.15, 0.03 * ms))
                self.assertEqual(found_takes, takes)

    def test_products_are_shared_by_all_ranks_that_have_prompts(self):
        whole, _ = self.floor(1, "one rank", "8x1024", "last")
        for ranks, mode, share in [(4, "tensor", 4), (4, "batch_parallel", 4), (4, "tensor 2 x 2", 4), (4, "adaptive", 4),
                                   (4, "layer", 4 * 8 / 11)]:
            with self.subTest(mode=mode):
                found, takes = self.floor(ranks, mode, "8x1024", "last")
                self.assertEqual(takes, "products")
                self.assertAlmostEqual(found, whole / share, places=6)

    def test_many_gpus_wait_for_their_own_states_unless_they_share_a_segment(self):
        self.assertEqual(self.floor(8, "tensor", "8x1024"), self.floor(8, "tensor 4 x 2", "64x128"))
        self.assertEqual(self.floor(8, "tensor", "8x1024")[1], "states")
        self.assertEqual(self.floor(8, "batch_parallel", "8x1024", segments="per_node")[1], "products")

    def test_one_prompt_is_shared_by_the_ranks_of_a_replica_alone(self):
        found = [self.floor(ranks, mode, "1x128", "last")[0] for ranks, mode in
                 [(1, "one rank"), (4, "layer"), (8, "batch_parallel"), (2, "tensor"), (8, "tensor 4 x 2"), (4, "adaptive")]]
        self.assertEqual([round(found[0] / each, 3) for each in found], [1, 1, 1, 2, 2, 4])

    def test_more_tokens_take_no_less(self):
        for ranks, mode in [(ranks, way.name) for ranks in (1, 2, 4, 8)
                            for way in gpu_speed.runs_for(ranks, processes=False)[0].ways]:
            floors = [self.floor(ranks, mode, case)[0] for case in ("1x16", "1x128", "2x128", "2x1024", "8x1024")]
            self.assertEqual(floors, sorted(floors), mode)

    def test_what_has_none_says_nothing(self):
        self.assertIsNone(self.floor(2, "tensor", "1x128", "embeddings"))
        self.assertIsNone(self.floor(2, "another", "1x128"))


class Comparisons(unittest.TestCase):
    """What a folder's logs say of cases on several GPUs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "shares-2.log").write_text("a warning\n" + SHARES)
        (self.folder / "shares-4.log").write_text("stage_bench: out of memory\n")
        (self.folder / "sums-2.log").write_text(SUMS)
        (self.folder / "sums-4.log").write_text(SUMS.replace("8.40", "9.40"))
        (self.folder / "sums-8.log").write_text("SKIPPED: these GPUs cannot read each other's memory\n")
        self.speed = [record(1, "one rank", "2x128", 10.0), record(2, "tensor", "2x128", 8.0),
                      record(4, "tensor", "2x128", 5.0), record(4, "tensor 2 x 2", "2x128", 6.0),
                      record(4, "layer", "8x1024", 90.0), record(2, "tensor", "2x128", 8.0, "embeddings")]
        for line in self.speed:
            line["stages_ms"] = {**line["stages_ms"], "compute": 0.9375 * line["median_ms"]}
        self.measured = gpu_table.read_measured(self.folder, self.speed)

    def found(self, key, facts=Table.FACTS):
        return [self.measured.of(line, facts)[key] for line in self.speed]

    def test_times_as_fast_as_one_gpu(self):
        self.assertEqual(self.found("x_one_gpu"), [None, 1.25, 2.0, 1.667, None, None])

    def test_sums_are_what_a_slice_alone_does_not_take(self):
        self.assertEqual(self.found("sums_share"), [None, 0.2, None, 0.287, None, None])
        other = gpu_table.Facts(**{**vars(Table.FACTS), "layers": 6})
        self.assertEqual(set(self.found("sums_share", other)), {None})

    def test_sums_over_gpus_are_in_the_document_by_gpus(self):
        text = gpu_table.document(Table.FACTS, self.speed, [], self.measured)
        self.assertIn("| GPUs | rows | no sum us | one step | two steps | NCCL |", text)
        self.assertEqual([row[0] for row in self.measured.sums], ["2", "2", "4", "4"])
        self.assertIn("\n| 4 | 128 | 3.20 | 9.40 | 9.10 | 15.70 |\n", text)

    def test_nothing_is_no_number(self):
        kept = gpu_table.baseline_lines(Table.FACTS, self.speed, self.measured)
        for text in (gpu_table.document(Table.FACTS, self.speed, [], self.measured), json.dumps(kept)):
            self.assertNotRegex(text.lower(), r"\b(nan|inf|infinity)\b")
        self.assertEqual(kept[4]["floor_of"], "products")
        zero = {**self.speed[1], "median_ms": 0.0, "stages_ms": {**self.speed[1]["stages_ms"], "compute": 0.0}}
        self.assertIn("- | - | - |", " | ".join(gpu_table.row(zero, Table.FACTS, self.measured)))

    def test_without_logs_there_is_no_comparison(self):
        for file in self.folder.iterdir():
            file.unlink()
        measured = gpu_table.read_measured(self.folder, self.speed[1:])
        self.assertEqual(gpu_table.row(self.speed[1], Table.FACTS, measured)[13:], ["-"] * 5)

    def test_replicas_stand_beside_the_better_of_ltx_ways(self):
        for way, ms in (("batch", 90.0), ("accelerate", 80.0)):
            self.measured.peers.add({**LTX, "world": 4, "mode": way, "encode_ms_median": ms})
        self.assertEqual([self.measured.peers.of(line)["ltx_ms"] for line in self.speed[2:4]], [80.0, 80.0])


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
        self.assertEqual([way.name for way in runs[0].ways], ["tensor", "layer", "batch_parallel", "adaptive"])
        self.assertEqual([way.name for way in runs[1].ways], ["tensor", "batch_parallel", "adaptive"])

    def test_four_and_eight_gpus_have_replicas_too(self):
        for ranks, replicas in ((4, 2), (8, 4)):
            apart, together = gpu_speed.runs_for(ranks, processes=True)
            self.assertEqual([way.name for way in apart.ways],
                             ["tensor", "layer", "batch_parallel", "adaptive", f"tensor {replicas} x 2"])
            self.assertEqual(apart.ways[-1].settings, {"mode": "sharded", "strategy": "tensor", "ranks_per_replica": 2})
            self.assertEqual({tuple((case.name, case.states, case.rests) for case in way.cases) for way in apart.ways},
                             {tuple((case, "all", False) for case in ("1x128", "2x128", "2x1024", "8x1024", "64x128"))})
            self.assertEqual([[case.name for case in way.cases] for way in together.ways], [["2x1024"]] * 3)

    def test_every_way_has_the_cases_that_all_have(self):
        for ranks in (1, 2, 4, 8):
            for way in gpu_speed.runs_for(ranks, processes=False)[0].ways:
                cases = [case.name for case in way.cases if case.states == "all"]
                self.assertLessEqual({"1x128", "2x128", "2x1024", "8x1024", "64x128"}, set(cases), way.name)
                self.assertEqual(len(cases), len(set(cases)))

    def test_a_segment_holds_the_largest_result_and_little_more(self):
        config = gpu_speed.config_12b()
        for ranks in (1, 2, 4, 8):
            for run, tokens in zip(gpu_speed.runs_for(ranks, processes=True), (8192, 2048)):
                spare = run.segment_mib(config) * 2 ** 20 - tokens * 49 * 3840 * 2
                self.assertTrue(64 * 2 ** 20 <= spare <= 65 * 2 ** 20, spare)

    def test_large_cases_have_few_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text('{"num_hidden_layers": 1, "hidden_size": 8}')
            for requests, large, sent in ((30, 5, 7), (10, 3, 5), (2, 5, 4)):
                bench, calls = gpu_speed.Bench(folder, {}, requests, large, seed=1), []
                bench.measure(gpu_speed.Case(64, 128), lambda: calls.append(1))
                self.assertEqual(len(calls), sent)
                self.assertEqual(len(bench.measure(gpu_speed.Case(2, 1024), lambda: None)), requests)

    def test_embeddings_are_timed_where_there_is_a_processor(self):
        def outputs(processes):
            return {case.states for run in gpu_speed.runs_for(1, processes) for way in run.ways for case in way.cases}

        self.assertEqual(outputs(True) - outputs(False), {"embeddings"})


if __name__ == "__main__":
    unittest.main()
