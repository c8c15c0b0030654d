"""tests/experiments runs, and its table says what it should: tiny, for that only."""
import json
import os
import sys
import tempfile
import unittest

import harness

EXPERIMENTS = os.path.join(harness.ROOT, "tests", "experiments")
sys.path.insert(0, EXPERIMENTS)
import judge  # pylint: disable=wrong-import-position


def report(loss, wait=0.0):
    return {"eval_loss": loss, "workers": [
        {"train_seconds": 10 - wait, "transfer_seconds": 0,
         "wait_seconds": wait, "bytes_sent": 2000000}]}


class Experiments(unittest.TestCase):

    def test_table_of_a_tiny_comparison(self):
        with tempfile.TemporaryDirectory(prefix="diloco-e2e-") as out:
            command = [sys.executable, "-B",
                       os.path.join(EXPERIMENTS, "compare.py"),
                       "--data", harness.data_dir(), "--out", out,
                       "--settings",
                       "diloco,streaming-fp32,adamw-reset,no-exchange,"
                       "fragment-unmerged", "--workers", "2",
                       "--steps", "6", "--interval", "3", "--seq-len", "32",
                       "--batch-tokens", "128", "--layers", "2", "--hidden",
                       "32", "--heads", "2", "--ffn", "64", "--eval-tokens",
                       "2048", "--seeds", "1"]
            env = {**os.environ, "DILOCO_BIN": harness.BIN}
            # Nothing is trained in no minutes, and what was is kept.
            waits = harness.run([*command, "--minutes", "-1"], env=env)
            self.assertEqual(waits.returncode, 1)
            self.assertIn("the same command goes on", waits.stderr)
            done = harness.run(command, env=env)
            rows = done.stdout.splitlines()
            self.assertEqual([row.split()[0] for row in rows],
                             ["setting", "alone", "synchronous", "diloco",
                              "streaming-fp32", "adamw-reset", "no-exchange",
                              "fragment-unmerged"], done.stderr)
            self.assertIn("planted mistake", rows[-1])
            # The mistakes have an effect, and the same batches one after the
            # other have another one than together.
            losses = [row.split()[1] for row in rows[1:]]
            self.assertEqual(len(set(losses)), 7, losses)
            with open(os.path.join(out, "diloco-1", "report.json"),
                      encoding="utf-8") as file:
                tokens = json.load(file)["folded_tokens"]
            self.assertEqual(tokens, 2 * 6 * 128)
            again = harness.run([*command, "--minutes", "-1"], env=env)
            self.assertEqual(again.stdout, done.stdout)
            with open(os.path.join(out, "losses.svg"),
                      encoding="utf-8") as file:
                self.assertEqual(file.read().count("<circle"), 7)
            other = harness.run([*command, "--lr", "0.1"], env=env)
            self.assertIn("trained with other settings", other.stderr)

    def test_recovered_share(self):
        reports = {"alone": {1: report(4.0), 2: report(5.0)},
                   "synchronous": {1: report(3.0), 2: report(4.5)},
                   "diloco": {1: report(3.25, 1), 2: report(4.875, 1)}}
        row = judge.table(reports)[3].split()
        self.assertEqual(row[:6], ["diloco", "4.0625", "1.1490", "0.500",
                                   "10.0%", "2.0"])

    def test_limits_are_judged_in_pairs_and_mistakes_must_show(self):
        reports = {"alone": {1: report(4.0)}, "synchronous": {1: report(3.0)},
                   "diloco": {1: report(3.4)},
                   "streaming-fp32": {1: report(3.5)},
                   "streaming": {1: report(3.52)},
                   "slow": {1: report(3.4, 0.6)},
                   "adamw-reset": {1: report(3.49)},
                   "no-exchange": {1: report(3.6)}}
        verdicts = {name: judge.verdict(reports, name)[0] for name in reports}
        self.assertEqual(verdicts, {
            "alone": True, "synchronous": True, "diloco": True,
            "streaming-fp32": True,  # 2.9 % above diloco.
            "streaming": False,      # 0.6 % above fp32.
            "slow": False,           # Waits 6 %.
            "adamw-reset": False,    # G 0.51: would pass for diloco.
            "no-exchange": True})    # G 0.4.


if __name__ == "__main__":
    harness.main()
