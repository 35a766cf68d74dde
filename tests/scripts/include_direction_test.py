"""Tests of tests/include_direction.py on small trees that are right or wrong in one way."""

import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "scripts")]
import include_direction  # noqa: E402
from fake_tree import FakeTree  # noqa: E402

HEADERS = ["config/c.h", "kernels/base/b.h", "kernels/k.h", "comm/m.h", "comm/collectives.h",
           "comm/shared_memory.h", "daemon/d.h",
           "comm/reader/gemmad_reader.h", "daemon/model/w.h", "daemon/tokenizer/t.h", "daemon/image/i.h", "daemon/ctl/x.h",
           "tests/support/s.h"]


class Direction(FakeTree):
    def findings(self, path, text):
        self.add({name: "#pragma once\n" for name in HEADERS})
        self.add({path: text})
        return include_direction.check(self.root)

    def assert_allowed(self, path, target):
        self.assertEqual(self.findings(path, f'#include "{target}"\n'), [])

    def assert_refused(self, path, target, reason="must not include"):
        findings = self.findings(path, f'#pragma once\n\n#include "{target}"\n')
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(f"{path}:3: "), findings[0])
        self.assertIn(reason, findings[0])

    def test_includes_along_the_layers_are_allowed(self):
        for path, target in [("kernels/o.cpp", "kernels/base/b.h"), ("kernels/cpu/o.cpp", "kernels/k.h"),
                             ("comm/o.cpp", "config/c.h"), ("comm/o.cpp", "kernels/base/b.h"),
                             ("daemon/model/o.cpp", "kernels/k.h"), ("daemon/model/o.cpp", "comm/collectives.h"),
                             ("daemon/model/o.cpp", "comm/shared_memory.h"),
                             ("daemon/tokenizer/o.cpp", "config/c.h"), ("daemon/o.cpp", "daemon/model/w.h"),
                             ("daemon/image/o.cpp", "kernels/base/b.h"), ("daemon/o.cpp", "daemon/image/i.h"),
                             ("daemon/o.cpp", "comm/m.h"), ("daemon/ctl/o.cpp", "comm/reader/gemmad_reader.h"),
                             ("daemon/ctl/o.cpp", "daemon/d.h"), ("tests/o.cpp", "daemon/ctl/x.h")]:
            with self.subTest(path=path, target=target):
                self.assert_allowed(path, target)

    def test_includes_against_the_layers_are_refused(self):
        for number, (folder, target) in enumerate([
                ("config", "kernels/base/b.h"), ("config", "daemon/d.h"), ("kernels/base", "config/c.h"),
                ("kernels/base", "kernels/k.h"), ("kernels", "comm/m.h"), ("kernels", "config/c.h"),
                ("kernels/cpu", "daemon/model/w.h"), ("comm", "daemon/d.h"), ("comm", "kernels/k.h"),
                ("comm", "daemon/model/w.h"), ("comm", "comm/reader/gemmad_reader.h"), ("daemon/model", "daemon/d.h"),
                ("daemon/model", "daemon/tokenizer/t.h"), ("daemon/tokenizer", "daemon/model/w.h"),
                ("daemon/model", "comm/m.h"), ("daemon", "daemon/ctl/x.h"), ("comm/reader/example", "comm/m.h"),
                ("daemon/image", "config/c.h"), ("daemon/image", "kernels/k.h"), ("daemon/image", "comm/shared_memory.h"),
                ("daemon/image", "daemon/d.h"), ("daemon/image", "daemon/model/w.h"), ("daemon/model", "daemon/image/i.h"),
                ("daemon", "tests/support/s.h")]):
            with self.subTest(folder=folder, target=target):
                path = f"{folder}/wrong{number}.cpp"
                self.assert_refused(path, target)
                (self.root / path).unlink()

    def test_the_public_header_of_the_reader_stands_alone(self):
        self.assert_refused("comm/reader/gemmad_reader.h", "kernels/base/b.h", "stand alone")

    def test_the_public_header_of_the_reader_takes_the_standard_library_only(self):
        path = "comm/reader/gemmad_reader.h"
        self.assertEqual(self.findings(path, "#include <string>\n"), [])
        self.assertIn("stand alone", self.findings(path, "#include <nlohmann/json.hpp>\n")[0])

    def test_project_headers_in_angle_brackets_count_too(self):
        self.assertIn("must not include", self.findings("config/o.cpp", "#include <daemon/d.h>\n")[0])

    def test_a_path_with_dots_is_refused(self):
        self.assert_refused("kernels/o.cpp", "../config/c.h", "from the root")

    def test_a_path_from_the_own_folder_is_refused(self):
        self.assert_refused("kernels/o.cpp", "k.h", "is not there")

    def test_an_include_through_a_macro_is_refused(self):
        self.assertIn("macro", self.findings("kernels/o.cpp", "#include HEADER\n")[0])

    def test_spaces_in_the_directive_do_not_hide_it(self):
        self.assertIn("must not", self.findings("config/o.cpp", '  #  include   "daemon/d.h"\n')[0])

    def test_a_comment_before_the_path_does_not_hide_it(self):
        self.assertIn("must not", self.findings("config/o.cpp", '#include /* x */ "daemon/d.h"\n')[0])

    def test_commented_includes_do_not_count(self):
        text = '// #include "daemon/d.h"\n/*\n#include "daemon/d.h"\n*/\n'
        self.assertEqual(self.findings("config/o.cpp", text), [])

    def test_a_comment_sign_in_a_string_hides_nothing(self):
        text = 'const char* glob = "/*";\n#include "daemon/d.h"\n'
        self.assertIn("config/o.cpp:2:", self.findings("config/o.cpp", text)[0])


class Outside(FakeTree):
    def finding(self, path, header):
        self.add({path: f"#include <{header}>\n"})
        findings = include_direction.check(self.root)
        (self.root / path).unlink()
        return findings

    def test_each_outside_header_has_its_places(self):
        for path, header in [("comm/bootstrap_mpi.cpp", "mpi.h"), ("comm/o.cpp", "sys/socket.h"),
                             ("daemon/model/o.cpp", "nlohmann/json.hpp"), ("daemon/o.cpp", "spdlog/spdlog.h"),
                             ("kernels/cpu/o.cpp", "cblas.h"), ("tests/o.cpp", "sys/un.h"),
                             ("daemon/image/o.cpp", "png.h")]:
            with self.subTest(path=path, header=header):
                self.assertEqual(self.finding(path, header), [])

    def test_elsewhere_it_is_refused(self):
        for path, header in [("comm/bootstrap.h", "mpi.h"), ("daemon/main.cpp", "mpi.h"), ("tests/o.cpp", "mpi.h"),
                             ("daemon/o.cpp", "nccl.h"), ("kernels/o.cpp", "nlohmann/json_fwd.hpp"),
                             ("kernels/base/o.h", "nlohmann/json.hpp"), ("daemon/model/o.cpp", "sys/socket.h"),
                             ("kernels/o.cpp", "netinet/in.h"), ("config/o.cpp", "spdlog/spdlog.h"),
                             ("daemon/tokenizer/o.cpp", "spdlog/fmt/fmt.h"), ("daemon/o.cpp", "jpeglib.h"),
                             ("daemon/image/o.cpp", "nlohmann/json.hpp")]:
            with self.subTest(path=path, header=header):
                self.assertEqual(len(self.finding(path, header)), 1)


class Cycles(FakeTree):
    def test_two_headers_that_include_each_other_are_refused(self):
        self.add({"config/a.h": '#include "config/b.h"\n', "config/b.h": '#include "config/a.h"\n'})
        self.assertEqual(include_direction.check(self.root),
                         ["config/a.h: includes itself: config/a.h -> config/b.h -> config/a.h"])

    def test_a_longer_ring_behind_a_file_is_found(self):
        self.add({"config/0.cpp": '#include "config/a.h"\n', "config/a.h": '#include "config/b.h"\n',
                  "config/b.h": '#include "config/c.h"\n', "config/c.h": '#include "config/a.h"\n'})
        self.assertIn("config/a.h -> config/b.h -> config/c.h -> config/a.h", include_direction.check(self.root)[0])

    def test_a_header_reached_on_two_ways_is_no_cycle(self):
        self.add({"config/a.h": '#include "config/b.h"\n#include "config/c.h"\n', "config/b.h": '#include "config/d.h"\n',
                  "config/c.h": '#include "config/d.h"\n', "config/d.h": ""})
        self.assertEqual(include_direction.check(self.root), [])


class Program(FakeTree):
    def run_check(self):
        return subprocess.run([sys.executable, TESTS / "include_direction.py", self.root], capture_output=True, text=True)

    def test_a_finding_makes_the_program_fail(self):
        self.add({"config/a.h": "#include <mpi.h>\n"})
        self.assertEqual(self.run_check().returncode, 1)

    def test_a_clean_tree_makes_it_succeed(self):
        self.add({"config/a.h": "#include <vector>\n"})
        self.assertEqual(self.run_check().returncode, 0)

    def test_a_tree_without_sources_is_not_a_success(self):
        self.assertEqual(self.run_check().returncode, 1)


if __name__ == "__main__":
    unittest.main()
