#!/usr/bin/env python3
"""Shows that lint.py sees each kind of fault: one planted at a time in a tree
that is otherwise clean. Run by ctest."""

import contextlib
import io
import os
import tempfile
import unittest

import lint

GUARD = "// Opens.\n#ifndef {0}\n#define {0}\n#endif // {0}\n"
CLEAN = {
    "common/base/clock.h": GUARD.format("COMMON_BASE_CLOCK_H_"),
    "common/base/README.md": "# base: \u03b8\n",
    "proto/README.md": "# proto\n",
    "deploy/README.md": "# deploy\n",
    "tests/README.md": "# tests\n",
}


def findings(files):
    """Runs lint over a tree of `files`; exit code and output."""
    with tempfile.TemporaryDirectory() as root:
        for path, content in {**CLEAN, **files}.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            readme = os.path.join(os.path.dirname(full), "README.md")
            if not os.path.exists(readme):
                with open(readme, "w", encoding="utf-8") as file:
                    file.write("# here\n")
            if content is None:
                os.remove(full)
                continue
            with open(full, "w", encoding="utf-8") as file:
                file.write(content)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = lint.main(["lint.py", root])
        return code, output.getvalue()


class LintTest(unittest.TestCase):

    def expect(self, path, content, message):
        code, output = findings({path: content})
        self.assertEqual(code, 1, output)
        lines = [line for line in output.splitlines()
                 if not line.startswith("lint:") and (
                     "not formatted" in message or "not formatted" not in line)]
        self.assertEqual(len(lines), 1, output)
        self.assertIn(message, lines[0])

    def test_clean_tree_passes(self):
        code, output = findings({})
        self.assertEqual(code, 0, output)

    def test_core_may_not_include_runtime(self):
        self.expect("coordinator/core/a.cc",
                    '#include "coordinator/runtime/b.h"\n', "point inward")

    def test_coordinator_and_worker_are_apart(self):
        self.expect("coordinator/runtime/a.cc",
                    '#include "worker/core/b.h"\n', "point inward")

    def test_torch_stays_in_train(self):
        self.expect("worker/runtime/a.cc", "#include <ATen/ATen.h>\n",
                    "torch only in worker/train")

    def test_protobuf_stays_out_of_train(self):
        self.expect("worker/train/a.cc",
                    '#include "diloco/v1/model.pb.h"\n', "protobuf only in")

    def test_torch_and_protobuf_never_meet(self):
        self.expect("tests/unit/x/a.cc",
                    "#include <torch/types.h>\n"
                    '#include "diloco/v1/model.pb.h"\n', "in one file")

    def test_grpc_stays_at_the_edges(self):
        self.expect("worker/runtime/a.cc", "#include <grpcpp/grpcpp.h>\n",
                    "gRPC only in")

    def test_core_is_pure(self):
        self.expect("worker/core/a.cc", "#include <thread>\n", "is pure")
        self.expect("coordinator/core/a.cc",
                    '#include "common/io/file_system.h"\n', "is pure")
        self.expect("coordinator/core/a.cc",
                    "absl::Time t = clock->WallTime();\n", "is pure")

    def test_time_has_one_source(self):
        self.expect("worker/runtime/a.cc",
                    "auto t = std::chrono::steady_clock::now();\n",
                    "time comes from")

    def test_large_file(self):
        self.expect("common/base/a.cc", "// x\n" * 7000, "bytes, more than")

    def test_code_is_ascii(self):
        self.expect("common/base/a.cc", "// \u03b8\n", "ASCII")

    def test_machine_path(self):
        self.expect("deploy/a.yaml", "dir: /ho" "me/me/data\n", "one machine")

    def test_header_opens_with_a_paragraph(self):
        self.expect("common/base/a.h",
                    "#ifndef COMMON_BASE_A_H_\n#define COMMON_BASE_A_H_\n"
                    "#endif  // COMMON_BASE_A_H_\n", "opens with")

    def test_include_guard(self):
        self.expect("common/base/a.h", GUARD.format("WRONG_H_"), "guard")

    def test_missing_readme(self):
        self.expect("common/base/README.md", None, "no README.md")

    def test_unformatted(self):
        if not lint.format_tool():
            self.skipTest("no clang-format of the right version")
        self.expect("common/base/a.cc", "int  a  = 1 ;\n", "not formatted")


if __name__ == "__main__":
    unittest.main()
