#!/usr/bin/env python3
"""Checks the rules of structure that a compiler does not: who may include
whom, file sizes, ASCII, machine paths, READMEs, formatting. Run by ctest.

usage: lint.py [ROOT]     prints one line per finding, exit code 1 if any
"""

import os
import re
import shutil
import subprocess
import sys

MAX_BYTES = 30 * 1024
CLANG_FORMAT_MAJOR = "14"  # Debian 12's; other versions format differently.
SKIPPED_DIRS = {".git", ".deps", ".quickstart", "build", "__pycache__"}
CODE_SUFFIXES = (".h", ".cc", ".py", ".proto", ".cmake", ".sh")

# Which directories of ours each directory may include, besides itself.
COMMON_NO_RPC = ["common/base", "common/io", "common/config", "common/tensor",
                 "common/model", "common/metrics", "common/data"]
COMMON = COMMON_NO_RPC + ["common/rpc"]
MAY_INCLUDE = {
    "common/base": [],
    "common/io": ["common/base"],
    "common/data": ["common/base", "common/io"],
    "common/tensor": ["common/base", "common/io", "common/tensor/codec"],
    # Of the same library: kernels behind the one interface, codec.h.
    "common/tensor/codec": ["common/base", "common/tensor"],
    "common/model": ["common/base", "common/io", "common/tensor"],
    "common/config": ["common/base", "common/io", "common/tensor",
                      "common/model"],
    "common/metrics": ["common/base"],
    "common/rpc": COMMON_NO_RPC,
    "coordinator/core": ["common/base", "common/io", "common/tensor",
                         "common/config", "common/model"],
    "coordinator/store": COMMON_NO_RPC + ["coordinator/core"],
    "coordinator/aggregate": COMMON_NO_RPC + ["coordinator/core"],
    "coordinator/runtime": COMMON_NO_RPC + [
        "coordinator/core", "coordinator/store", "coordinator/aggregate"],
    "coordinator/offline": COMMON_NO_RPC + [
        "coordinator/core", "coordinator/store", "coordinator/aggregate"],
    "coordinator/service": COMMON + [
        "coordinator/core", "coordinator/store", "coordinator/runtime"],
    "coordinator/cli": COMMON + [
        "coordinator", "coordinator/core", "coordinator/store",
        "coordinator/offline"],
    "coordinator": COMMON + [
        "coordinator/core", "coordinator/store", "coordinator/aggregate",
        "coordinator/runtime", "coordinator/service"],
    "worker/core": ["common/base", "common/io", "common/tensor",
                    "common/config"],
    "worker/data": COMMON_NO_RPC + ["worker/data/sentencepiece"],
    "worker/data/sentencepiece": [],
    "worker/update": COMMON_NO_RPC + ["worker/core"],
    "worker/train": COMMON_NO_RPC,
    "worker/transport": COMMON + ["worker/core"],
    "worker/runtime": COMMON_NO_RPC + [
        "worker/core", "worker/data", "worker/update", "worker/train",
        "worker/transport"],
    "worker/tools": COMMON_NO_RPC + [
        "worker", "worker/core", "worker/data", "worker/update",
        "worker/train", "worker/runtime"],
    # A whole run in one process: both sides, without what lies between them.
    "worker/simulate": COMMON_NO_RPC + [
        "coordinator", "coordinator/core", "coordinator/runtime",
        "worker", "worker/tools", "worker/train", "worker/runtime", "worker/transport"],
    "worker": COMMON + [
        "worker/core", "worker/data", "worker/update", "worker/train",
        "worker/transport", "worker/runtime", "worker/tools",
        "worker/simulate"],
}
TORCH_DIRS = {"worker/train"}
GRPC_DIRS = {"common/rpc", "coordinator/service", "coordinator/cli",
             "worker/transport"}
PROTO_DIRS = GRPC_DIRS | {"coordinator/store"}
PURE_DIRS = {"coordinator/core", "worker/core"}

# What deciding code does not touch: files, threads, clocks, random numbers.
IMPURE_HEADERS = {
    "thread", "mutex", "shared_mutex", "condition_variable", "future",
    "fstream", "filesystem", "cstdio", "chrono", "ctime", "random",
    "common/base/mutex.h", "common/base/shutdown.h", "common/io/file_system.h",
}
IMPURE_CALLS = re.compile(
    r"Clock::Real\(|WallTime\(|RandomBytes\(|\bstd::rand\b|\bfopen\(")
CLOCK_FILES = {"common/base/clock.cc", "common/base/logging.cc"}
CLOCK_CALLS = re.compile(
    r"(steady|system|high_resolution)_clock::now|absl::Now\(|\btime\(nullptr\)"
    r"|\bclock_gettime\(|\bgettimeofday\(")
MACHINE_PATH = re.compile(
    r"(?<![\w.$}*-])/(home|root|work|Users|mnt|opt)/\w")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def list_files(root):
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_DIRS)
        for name in sorted(names):
            found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def is_code(path, data):
    name = os.path.basename(path)
    return (path.endswith(CODE_SUFFIXES) or name == "CMakeLists.txt"
            or data.startswith(b"#!"))


def project_dir(include):
    """The directory of ours that an include names, or None."""
    top = include.split("/")[0]
    if top not in ("common", "coordinator", "worker", "tests"):
        return None
    return os.path.dirname(include)


def check_includes(path, lines, report):
    folder = os.path.dirname(path)
    product = folder in MAY_INCLUDE
    sees_torch = sees_proto = 0
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(2)
        target = project_dir(header)
        is_torch = header.startswith(("torch/", "ATen/", "c10/"))
        is_proto = header.endswith(".pb.h") or header.startswith(
            "google/protobuf/")
        is_grpc = header.startswith(("grpcpp/", "grpc/")) or header.endswith(
            ".grpc.pb.h")
        sees_torch = sees_torch or (is_torch and number)
        sees_proto = sees_proto or (is_proto and number)
        if product:
            if target and target != folder and (
                    target not in MAY_INCLUDE[folder]):
                report(path, number, f"{folder} may not include {header}: "
                       "dependencies point inward (see MAY_INCLUDE)")
            if is_torch and folder not in TORCH_DIRS:
                report(path, number, f"{header}: torch only in worker/train")
            if is_grpc and folder not in GRPC_DIRS:
                report(path, number, f"{header}: gRPC only in "
                       + ", ".join(sorted(GRPC_DIRS)))
            elif is_proto and folder not in PROTO_DIRS:
                report(path, number, f"{header}: protobuf only in "
                       + ", ".join(sorted(PROTO_DIRS)))
            if folder in PURE_DIRS and header in IMPURE_HEADERS:
                report(path, number, f"{header}: {folder} is pure (no file, "
                       "thread, clock or random)")
        if header == "fstream" and product:
            report(path, number, "file I/O goes through common/io FileSystem")
    if sees_torch and sees_proto:
        report(path, sees_torch, "torch and protobuf headers in one file")


def check_calls(path, lines, report):
    folder = os.path.dirname(path)
    if folder not in MAY_INCLUDE:
        return
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        if folder in PURE_DIRS and IMPURE_CALLS.search(code):
            report(path, number, f"{folder} is pure: inject time and random")
        if path not in CLOCK_FILES and CLOCK_CALLS.search(code):
            report(path, number, "time comes from common/base/clock.h")


def check_shape(path, lines, report):
    """Opening paragraph and include guard of a header."""
    if path.endswith(("/main.cc", ".h")) and not lines[0].startswith("//"):
        report(path, 1, "a file opens with what it is and who uses it")
    if path.endswith(".h"):
        guard = re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
        text = "\n".join(lines)
        if f"#ifndef {guard}\n" not in text and path.split("/")[0] in (
                "common", "coordinator", "worker"):
            if "#ifndef" in text or "#pragma once" in text:
                report(path, 1, f"include guard should be {guard}")


def check_file(root, path, report):
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    code = is_code(path, data)
    if not code and not path.endswith((".md", ".yaml", ".yml", ".json")):
        return
    if (code or path.endswith(".md")) and len(data) > MAX_BYTES:
        report(path, 1, f"{len(data)} bytes, more than {MAX_BYTES}")
    if code and not data.isascii():
        line = data[:next(i for i, b in enumerate(data) if b > 127)].count(
            b"\n") + 1
        report(path, line, "code and comments are ASCII")
    lines = data.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, 1):
        match = MACHINE_PATH.search(line)
        if match:
            report(path, number, f"path of one machine: {match.group(0)}")
    if path.endswith((".h", ".cc")):
        check_includes(path, lines, report)
        check_calls(path, lines, report)
        check_shape(path, lines, report)


def check_readmes(files, report):
    with_sources = {os.path.dirname(path) for path in files
                    if path.split("/")[0] in ("common", "coordinator", "worker")
                    and path.endswith((".h", ".cc"))}
    for folder in sorted(with_sources | {"proto", "deploy", "tests"}):
        if f"{folder}/README.md" not in files:
            report(folder, 0, "has no README.md")


def format_tool():
    """clang-format of the version whose formatting counts, or None."""
    tool = shutil.which("clang-format")
    if not tool:
        return None
    version = subprocess.run([tool, "--version"], capture_output=True,
                             text=True, check=True).stdout
    return tool if f"version {CLANG_FORMAT_MAJOR}." in version else None


def check_format(root, files, report):
    tool = format_tool()
    if not tool:
        print("lint: formatting not checked: no clang-format "
              f"{CLANG_FORMAT_MAJOR} here")
        return
    sources = [path for path in files if path.endswith((".h", ".cc"))]
    for start in range(0, len(sources), 100):
        result = subprocess.run(
            [tool, "--dry-run", "-Werror", *sources[start:start + 100]],
            cwd=root, capture_output=True, text=True, check=False)
        bad = sorted(set(re.findall(r"^(.*?):\d+:\d+: error", result.stderr,
                                    re.MULTILINE)))
        for path in bad:
            report(path, 0, f"not formatted: clang-format -i {path}")
        if result.returncode and not bad:
            report(".", 0, f"clang-format: {result.stderr.strip()}")


def main(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    root = argv[1] if len(argv) > 1 else os.path.join(here, "..", "..")
    root = os.path.abspath(root)
    findings = []

    def report(path, line, message):
        where = f"{path}:{line}" if line else path
        findings.append(f"{where}: {message}")

    files = list_files(root)
    for path in files:
        check_file(root, path, report)
    check_readmes(set(files), report)
    check_format(root, files, report)
    for finding in findings:
        print(finding)
    print(f"lint: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
