"""Tests of tests/check_tree.py on small trees that are right or wrong in one way."""

import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "scripts")]
import check_tree  # noqa: E402
from fake_tree import FakeTree  # noqa: E402

CLEAN = {
    "CMakeLists.txt": "add_subdirectory(config)\n",
    "README.md": "Run `scripts/go.sh --fast`, see `config/a.cpp`.\n",
    "config/CMakeLists.txt": "add_library(config a.cpp)\n",
    "config/a.cpp": "int a;\n",
    "scripts/go.sh": "echo\n",
    "tests/CMakeLists.txt": "t(config/a_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/scripts/b_test.py)\n",
    "tests/config/a_test.cpp": "",
    "tests/scripts/b_test.py": "",
}


class Tree(FakeTree):
    def setUp(self):
        super().setUp()
        self.add(CLEAN)

    def assert_one_finding(self, files, *parts):
        self.add(files)
        findings = check_tree.check(self.root)
        self.assertEqual(len(findings), 1, findings)
        for part in parts:
            self.assertIn(part, findings[0])

    def assert_clean(self, files):
        self.add(files)
        self.assertEqual(check_tree.check(self.root), [])

    def test_a_clean_tree_gives_no_finding(self):
        self.assert_clean({})

    def test_a_cpp_that_no_cmake_file_names_is_found(self):
        self.assert_one_finding({"tests/config/b_test.cpp": ""}, "tests/config/b_test.cpp", "CMakeLists")

    def test_a_python_test_that_no_cmake_file_names_is_found(self):
        self.assert_one_finding({"tests/scripts/c_test.py": ""}, "tests/scripts/c_test.py")

    def test_the_same_name_in_another_folder_does_not_count(self):
        self.assert_one_finding({"tests/other/a_test.cpp": ""}, "tests/other/a_test.cpp")

    def test_a_name_in_a_cmake_comment_does_not_count(self):
        self.assert_one_finding({"config/CMakeLists.txt": "# a.cpp\n"}, "config/a.cpp")

    def test_a_path_from_the_project_root_counts(self):
        self.assert_clean({"tests/fuzz/f.cpp": "", "config/CMakeLists.txt": "x(a.cpp ${PROJECT_SOURCE_DIR}/tests/fuzz/f.cpp)"})

    def test_a_missing_path_in_the_readme_is_found(self):
        self.assert_one_finding({"README.md": "See `config/gone.h`.\n"}, "README.md", "config/gone.h")

    def test_a_missing_script_in_a_code_block_is_found(self):
        for text in ("```\n$ bash ./scripts/gone.sh -x\n```\n", "So:\n\n    ./scripts/gone.sh -x\n"):
            with self.subTest(text=text):
                self.assert_one_finding({"README.md": text}, "./scripts/gone.sh")

    def test_folders_patterns_and_other_paths_in_the_readme_are_fine(self):
        self.assert_clean({"README.md": "`config/`, `config/*.cpp`, `/dev/shm/x`, `build/release/a`, `a/b`\n"})

    def test_a_tree_without_readme_is_found(self):
        (self.root / "README.md").unlink()
        self.assert_one_finding({}, "README.md: missing")

    def test_a_long_source_is_found(self):
        self.assert_one_finding({"config/a.cpp": "\n" * 401}, "config/a.cpp", "401 lines")

    def test_a_long_source_that_says_why_is_fine(self):
        self.assert_clean({"config/a.cpp": "// Long because it is one table.\n" + "\n" * 500})

    def test_a_long_test_is_fine(self):
        self.assert_clean({"tests/config/a_test.cpp": "\n" * 500})

    def test_paths_of_one_machine_are_found(self):
        self.assert_one_finding({"config/a.cpp": "\n// see " + "/" + "work/shared/x\n"}, "config/a.cpp:2", "machine")

    def test_such_a_path_inside_a_longer_one_is_fine(self):
        self.assert_clean({"config/a.cpp": "// tests/root/a, my" + "/root" + "/b\n"})

    def test_addresses_of_package_registries_are_found(self):
        self.assert_one_finding({"scripts/go.sh": "curl https://" + "pypi" + ".org/simple\n"}, "scripts/go.sh:1", "registry")

    def test_a_stray_file_at_the_top_is_found(self):
        self.assert_one_finding({"notes.txt": ""}, "notes.txt", "top")

    def test_build_outputs_are_not_looked_at(self):
        self.assert_clean({"build/release/x.cpp": "", "compile_commands.json": "{}"})

    def test_a_huge_file_is_found(self):
        self.assert_one_finding({"tests/data/big.bin": b"\0" * ((4 << 20) + 1)}, "tests/data/big.bin", "bytes")

    def test_binary_files_are_not_read_as_text(self):
        self.assert_clean({"config/x.bin": b"\xff\xfe" + b"/" + b"root/"})

    def test_a_script_that_cannot_be_executed_is_found(self):
        self.assert_one_finding({"scripts/run.sh": "#!/bin/bash\n"}, "scripts/run.sh", "executable")

    def test_the_program_fails_on_a_finding_and_on_an_empty_tree(self):
        program = [sys.executable, TESTS / "check_tree.py"]
        self.assertEqual(subprocess.run([*program, self.root], stdout=subprocess.DEVNULL).returncode, 0)
        self.add({"notes.txt": ""})
        self.assertEqual(subprocess.run([*program, self.root], stdout=subprocess.DEVNULL).returncode, 1)
        self.assertEqual(subprocess.run([*program, self.root / "tests/data"], stdout=subprocess.DEVNULL).returncode, 1)


if __name__ == "__main__":
    unittest.main()
