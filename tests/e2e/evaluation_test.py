"""Theta is evaluated by real workers; its loss, and what /metrics says of the
run while it goes on."""
import json
import math
import os
import re
import unittest

import harness

LONG = 100000  # More rounds than this test waits for.
SERIES = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


def parse_metrics(text):
    """{(name, labels): value} of the Prometheus text format."""
    series = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = SERIES.match(line).groups()
            key = name, labels or ""
            assert key not in series, line
            series[key] = float(value)
    return series


class Evaluation(unittest.TestCase):

    def test_loss_of_theta_is_that_of_the_exported_model(self):
        valid = os.path.join(harness.data_dir(), "valid.bin")
        self.http = f"http://127.0.0.1:{harness.free_port()}"
        with harness.Cluster(rounds=LONG, change={
                "eval": {"shard": valid, "every": "1 round"},
                "listen": {"metrics": self.http[len("http://"):]}}) as cluster:
            cluster.start_all()
            self.assertEqual(harness.get(self.http + "/livez")[0], 200)
            self.assertEqual(harness.get(self.http + "/readyz")[0], 200)
            cluster.wait_version(2)
            # Held, so that what is read of the workers is of one moment.
            self.assertEqual(cluster.ctl("pause").returncode, 0)
            for worker in ("worker-0", "worker-1"):
                self.check_worker(cluster, f'worker="{worker}"')
            last = int(cluster.status()["rounds"][0]["version"]) + 2
            cluster.ctl("stop", "--after-round", str(last))
            cluster.ctl("resume")
            cluster.finish()
            status = cluster.wait(
                lambda: (lambda status: int(status["eval"]["version"])
                         == last and status)(cluster.status()),
                "the last version is evaluated")
            model = cluster.path("model")
            self.assertEqual(
                cluster.ctl("export", "--out", model).returncode, 0)
            loss, tokens = self.evaluate(model, valid)
            self.assertEqual(int(status["eval"]["tokens"]), tokens)
            self.assertAlmostEqual(status["eval"]["loss"], loss, delta=1e-5)
            # It has learnt something, and not everything.
            self.assertTrue(1 < loss < math.log(harness.VOCAB), loss)
            self.check_rounds(cluster, last, status["eval"]["loss"])
            self.check_metrics(last, status["eval"]["loss"])

    def metrics(self):
        code, text = harness.get(self.http + "/metrics")
        self.assertEqual(code, 200)
        return parse_metrics(text)

    def check_worker(self, cluster, labels):
        series = cluster.wait(
            lambda: (lambda series: series.get(
                ("diloco_worker_inner_steps", labels)) and series)(
                    self.metrics()),
            f"steps of {labels} in /metrics")
        steps = series["diloco_worker_inner_steps", labels]
        self.assertEqual(steps, int(steps))
        loss = series["diloco_worker_loss", labels]
        self.assertTrue(1 < loss < 1.2 * math.log(harness.VOCAB), loss)
        self.assertGreater(series["diloco_worker_step_seconds", labels], 0)
        rate = series["diloco_worker_learning_rate", labels]
        self.assertTrue(0 < rate <= 0.003, rate)
        self.assertEqual(series["diloco_worker_skipped_steps", labels], 0)
        self.assertEqual(
            series["diloco_coordinator_workers", 'state="active"'], 2)

    @staticmethod
    def evaluate(model, shard):
        """train-local with rate 0 leaves the model as it is."""
        done = harness.run(
            [harness.WORKER, "train-local", "--init-from", model, "--data",
             shard, "--seq-len", str(harness.SEQ_LEN), "--batch", "1",
             "--steps", "1", "--lr", "0", "--eval", shard, "--eval-tokens",
             "0", "--json"])
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        report = json.loads(done.stdout)
        return report["eval_loss"], report["eval_tokens"]

    def check_rounds(self, cluster, last, loss):
        done = cluster.ctl("watch", "--rounds", "--from-start", "--json")
        losses = [json.loads(line)["eval_loss"]
                  for line in done.stdout.splitlines()]
        self.assertEqual(len(losses), last)
        self.assertLess(losses[-1], losses[0] - 1)
        self.assertEqual(losses[-1], loss)

    def check_metrics(self, rounds, loss):
        series = self.metrics()
        tokens = rounds * harness.INTERVAL * harness.BATCH_TOKENS * 2
        for name, labels, value in (
                ("diloco_coordinator_round", "", rounds),
                ("diloco_coordinator_version", "", rounds),
                ("diloco_coordinator_folded_tokens", "", tokens),
                ("diloco_coordinator_rounds_total", 'result="folded"', rounds),
                ("diloco_coordinator_updates_total", 'result="accepted"',
                 2 * rounds),
                ("diloco_coordinator_updates_total", 'result="refused"', 0),
                ("diloco_coordinator_digest_mismatches_total", "", 0),
                ("diloco_coordinator_workers", 'state="active"', 0),
                ("diloco_coordinator_eval_loss", "", loss),
                ("diloco_coordinator_fold_seconds_count", "", rounds),
                ("diloco_coordinator_fold_seconds_bucket", 'le="+Inf"',
                 rounds)):
            with self.subTest(name):
                self.assertAlmostEqual(series[name, labels], value, delta=1e-4)
        parameters = series["diloco_coordinator_received_bytes_total", ""] / (
            2 * 2 * rounds)  # Two workers, two bytes each.
        self.assertTrue(20000 < parameters < 60000, parameters)


if __name__ == "__main__":
    harness.main()
