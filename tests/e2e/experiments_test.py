"""tests/experiments runs, and its table says what it should: tiny, for that only."""
import json
import os
import sys
import tempfile
import unittest

import harness

EXPERIMENTS = os.path.join(harness.ROOT, "tests", "experiments")
sys.path.insert(0, EXPERIMENTS)
import compare  # pylint: disable=wrong-import-position


class Experiments(unittest.TestCase):

    def test_table_of_a_tiny_comparison(self):
        with tempfile.TemporaryDirectory(prefix="diloco-e2e-") as out:
            command = [sys.executable, "-B",
                       os.path.join(EXPERIMENTS, "compare.py"),
                       "--data", harness.data_dir(), "--out", out,
                       "--settings", "diloco,adamw-reset", "--workers", "2",
                       "--steps", "6", "--interval", "2", "--seq-len", "32",
                       "--batch-tokens", "128", "--layers", "1", "--hidden",
                       "32", "--heads", "2", "--ffn", "64", "--eval-tokens",
                       "2048", "--seeds", "1"]
            done = harness.run(
                command, env={**os.environ, "DILOCO_BIN": harness.BIN})
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = done.stdout.splitlines()
            self.assertEqual([row.split()[0] for row in rows],
                             ["setting", "alone", "synchronous", "diloco",
                              "adamw-reset"])
            self.assertIn("planted mistake", rows[-1])
            # The mistake has an effect, and the same batches one after the
            # other have another one than together.
            losses = [row.split()[1] for row in rows[1:]]
            self.assertEqual(len(set(losses)), 4, losses)
            with open(os.path.join(out, "diloco-1", "report.json"),
                      encoding="utf-8") as file:
                tokens = json.load(file)["folded_tokens"]
            self.assertEqual(tokens, 2 * 6 * 128)

    def test_recovered_share(self):
        reports = {name: {1: {"eval_loss": loss, "workers": [
            {"train_seconds": 9, "transfer_seconds": 0, "wait_seconds": 1,
             "bytes_sent": 2000000}]}} for name, loss in (
                 ("alone", 4.0), ("synchronous", 3.0), ("diloco", 3.25))}
        rows = [row.split() for row in compare.table(reports, [1])]
        self.assertEqual(rows[3], ["diloco", "3.2500", "0.0000", "0.750",
                                   "10.0%", "2.0"])


if __name__ == "__main__":
    harness.main()
