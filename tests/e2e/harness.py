"""Real processes under test: a coordinator, workers and dilococtl on free ports.

Used by every e2e test. A Cluster is one run in a temporary directory; leaving
it ends every process it started. Waiting is always for a condition, with a
deadline; a missed one prints the status and the ends of all logs.

    with harness.Cluster(rounds=6, workers=2) as cluster:
        cluster.start_all()
        digest = cluster.finish()
"""
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("DILOCO_BIN", os.path.join(ROOT, "build", "release", "bin"))
# A sanitized one may take its place: workers need LibTorch, which has none.
COORDINATOR = os.environ.get("DILOCO_COORDINATOR",
                             os.path.join(BIN, "diloco-coordinator"))
WORKER = os.path.join(BIN, "diloco-worker")
CTL = os.path.join(BIN, "dilococtl")

VOCAB = 256
SEQ_LEN = 32
BATCH_TOKENS = 128
INTERVAL = 8
# Generous: several tests may share two cores with a compiler.
PATIENCE = 180

_data_dir = None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(command, timeout=PATIENCE, **more):
    """Runs a command to its end; stdout and stderr are text."""
    return subprocess.run(command, capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, **more)


def data_dir():
    """Shards of Genesis, a verse a document, as bytes: made once a process."""
    global _data_dir
    if _data_dir is None:
        _data_dir = tempfile.mkdtemp(prefix="diloco-e2e-data-")
        atexit.register(shutil.rmtree, _data_dir, ignore_errors=True)
        verses = run(["bible", "-f", "Ge1:1-Ge50:26"])
        text = os.path.join(_data_dir, "text.txt")
        with open(text, "w", encoding="utf-8") as out:
            for verse in verses.stdout.splitlines():
                out.write(verse.split(" ", 1)[1] + "\n")
        made = run([WORKER, "tokenize", "--in", text, "--out", _data_dir,
                    "--tokenizer", "bytes", "--document-per-line",
                    "--valid-every", "20", "--parts", "3"])
        if made.returncode != 0:
            raise AssertionError("tokenize failed: " + made.stderr)
    return _data_dir


def get(url):
    """Status code and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def one_line(text):
    """Whether a program said what it had to say in one line."""
    return len(text.strip().splitlines()) == 1


class SmallDisk:
    """A file system of a few megabytes at `path`; a test is skipped where none
    can be mounted. Unmounted lazily: what runs on it may still be there."""

    def __init__(self, path, size):
        self.path = path
        self._size = size
        self._ballast = os.path.join(path, "ballast")

    def __enter__(self):
        os.mkdir(self.path)
        done = run(["mount", "-t", "tmpfs", "-o", f"size={self._size}",
                    "tmpfs", self.path])
        if done.returncode != 0:
            raise unittest.SkipTest("cannot mount a tmpfs: " + done.stderr)
        return self

    def __exit__(self, *_):
        run(["umount", "--lazy", self.path])

    def fill(self):
        """Leaves not a byte free."""
        run(["dd", "if=/dev/zero", f"of={self._ballast}", "bs=4k"])

    def empty(self):
        os.remove(self._ballast)


class Process:
    """A program in a process group of its own, its output in a file."""

    def __init__(self, command, log, env=None):
        self.log_path = log
        with open(log, "wb") as out:
            # Ends with the test even when that is killed.
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, env={**os.environ, **(env or {})})

    @property
    def pid(self):
        return self._child.pid

    def code(self):
        return self._child.poll()

    def signal(self, number):
        if self._child.poll() is None:
            os.killpg(self._child.pid, number)

    def kill(self):
        """SIGKILL, and waits until it is gone."""
        self.signal(signal.SIGKILL)
        return self._child.wait(timeout=PATIENCE)

    def terminate(self):
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout=PATIENCE):
        try:
            return self._child.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self._child.args} did not end in {timeout} s:\n"
                + tail(self.log_path)) from None

    def log(self):
        """What this process has written so far."""
        with open(self.log_path, encoding="utf-8", errors="replace") as text:
            return text.read()


def tail(path, lines=25):
    with open(path, encoding="utf-8", errors="replace") as text:
        return f"--- {path}\n" + "".join(text.readlines()[-lines:])


def merged(base, change):
    """`base` with the sections of `change` laid over its own."""
    result = dict(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def yaml(value):
    """A value in YAML's flow style; words stay unquoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


class Cluster:
    """One run: its files, its coordinator and its workers by number."""

    def __init__(self, workers=2, rounds=6, seed=1, change=None):
        self.dir = tempfile.mkdtemp(prefix="diloco-e2e-")
        self.port = free_port()
        self.count = workers
        self.workers = {}
        self.coordinator = None
        self._started = []
        self.settings = merged({
            "run": {"name": "genesis", "seed": seed},
            "model": {"from": "config", "layers": 2, "hidden": 32, "heads": 2,
                      "ffn": 64, "vocab": VOCAB, "tied": True},
            "data": {"seq_len": SEQ_LEN},
            "train": {"tokens": rounds * INTERVAL * BATCH_TOKENS * workers,
                      "batch_tokens": BATCH_TOKENS,
                      "optimizer": {"lr": 0.003}},
            # Far beyond a test's length, so that no deadline decides.
            "sync": {"interval": INTERVAL, "deadline": "10m"},
            "outer": {"momentum": 0.5},
            "join": {"wait_for": workers, "lease": "2m"},
            "eval": {"every": "never"},
            "listen": {"control": f"127.0.0.1:{self.port}", "metrics": "none"},
            "state": {"dir": "state", "image_every": 4},
            # Some tests have the state on a disk of a few megabytes.
            "keep": {"free_space": 0},
        }, change or {})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._started:
            process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def _write(self, name, settings):
        with open(self.path(name), "w", encoding="utf-8") as out:
            for key, value in settings.items():
                out.write(f"{key}: {yaml(value)}\n")
        return self.path(name)

    def start_program(self, command, name, env=None):
        log = self.path(f"{len(self._started):02}-{name}.log")
        process = Process(command, log, env)
        self._started.append(process)
        return process

    def write_run_file(self):
        return self._write("run.yaml", self.settings)

    def write_worker_file(self, number, change=None):
        return self._write(f"worker-{number}.yaml", merged({
            "coordinator": f"127.0.0.1:{self.port}",
            "name": f"worker-{number}",
            "threads": 1,
            "data_dir": data_dir(),
            "shard": f"train-{number % 3}.bin",
            "scratch": f"scratch-{number}",
            "checkpoint": {"every": "1s"},
        }, change or {}))

    def start_coordinator(self, ready=True, flags=()):
        """Starts it; with `ready`, returns when it answers."""
        self.coordinator = self.start_program(
            [COORDINATOR, "--config", self.write_run_file(), *flags],
            "coordinator")
        if ready:
            self.wait(lambda: self.try_status() is not None,
                      "the coordinator answers")
        return self.coordinator

    def start_worker(self, number, env=None, flags=(), change=None):
        self.workers[number] = self.start_program(
            [WORKER, "run", "--config",
             self.write_worker_file(number, change), *flags],
            f"worker-{number}", env)
        return self.workers[number]

    def start_all(self):
        self.start_coordinator()
        for number in range(self.count):
            self.start_worker(number)

    def ctl(self, *arguments, timeout=PATIENCE):
        return run([CTL, "--coordinator", f"127.0.0.1:{self.port}",
                    *arguments], timeout=timeout)

    def try_status(self):
        done = self.ctl("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self):
        status = self.try_status()
        if status is None:
            self.fail("dilococtl status failed")
        return status

    def events(self):
        """The journal's records as dilococtl prints them, of a finished run."""
        done = self.ctl("watch", "--json", "--from-start")
        if done.returncode != 0:
            self.fail("dilococtl watch failed: " + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def wait(self, condition, what, timeout=PATIENCE, pause=0.05):
        """Polls until `condition` gives a true value, which is returned."""
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            if self.coordinator is not None and self.coordinator.code():
                self.fail(f"the coordinator ended while waiting for: {what}")
            if time.monotonic() > end:
                self.fail(f"not within {timeout} s: {what}")
            time.sleep(pause)

    def wait_log(self, process, text, timeout=PATIENCE):
        self.wait(lambda: text in process.log(),
                  f"'{text}' in {process.log_path}", timeout)

    def wait_version(self, version, timeout=PATIENCE):
        """Returns when that version of theta, or a newer one, is published."""
        return self.wait(
            lambda: int((self.try_status() or {"rounds": [{}]})["rounds"][0]
                        .get("version", 0)) >= version,
            f"version {version} is published", timeout)

    def finish(self, timeout=PATIENCE):
        """Waits until the run is over and all workers have ended well; the
        digest of the final theta."""
        self.wait(lambda: "FINISHED" in str((self.try_status() or {})
                                            .get("phase", "")).upper(),
                  "the run is finished", timeout)
        for number, worker in self.workers.items():
            if worker.wait(timeout) != 0:
                self.fail(f"worker {number} ended with code {worker.code()}")
        return self.status()["rounds"][0]["digest"]

    def fail(self, why):
        status = self.ctl("status")
        raise AssertionError("\n".join(
            [why, status.stdout + status.stderr] +
            [tail(process.log_path) for process in self._started[-6:]]))


def undisturbed_digest(**settings):
    """The final digest of the same run when nothing happens to it."""
    with Cluster(**settings) as cluster:
        cluster.start_all()
        return cluster.finish()


def main():
    """Exit code 77 when all tests were skipped, which ctest shows."""
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if len(result.skipped) == result.testsRun else 0)
