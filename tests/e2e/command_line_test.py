"""Command lines of the real programs: what they refuse, and how they end."""
import os
import subprocess
import unittest

import harness


class CommandLine(unittest.TestCase):

    def test_counts_that_no_machine_has_are_refused_by_their_flag(self):
        for flags in (["train-local", "--data", "x", "--threads", "100000"],
                      ["train-local", "--data", "x", "--seq-len", "5000000000"],
                      ["train-local", "--data", "x", "--batch",
                       "4611686018427387904"],
                      ["train-local", "--data", "x", "--lr", "nan"],
                      ["sample", "--model", "x", "--threads", "0"],
                      ["sample", "--model", "x", "--tokens",
                       "18446744073709551615"]):
            done = harness.run([harness.WORKER] + flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(flags[-2] + " is " + flags[-1], done.stderr)

    def test_flag_that_would_do_nothing_is_refused(self):
        done = harness.run([harness.WORKER, "train-local", "--data", "x",
                            "--tokenizer", "t.model"])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--out", done.stderr)

    def test_mistyped_command_or_flag_names_the_nearest_one(self):
        for program, words, nearest in (
                (harness.WORKER, ["tokenise"], "tokenize"),
                (harness.WORKER, ["versoin"], "version"),
                (harness.WORKER, ["run", "--confg", "x"], "--config"),
                (harness.COORDINATOR, ["--confg", "x"], "--config"),
                (harness.CTL, ["statsu"], "status")):
            done = harness.run([program] + words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("did you mean " + nearest, done.stderr)
            self.assertTrue(harness.one_line(done.stderr), done.stderr)
        for program in harness.WORKER, harness.COORDINATOR:
            done = harness.run([program, "version"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(os.path.basename(program), done.stdout)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([harness.WORKER, "run", "--help"],
                                  stdout=full, stderr=subprocess.PIPE,
                                  timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)


if __name__ == "__main__":
    harness.main()
