"""dilococtl against a live run, and a model that leaves it."""
import json
import os
import struct
import unittest

import harness

LONG = 100000  # More rounds than any of these tests waits for.


class Operator(unittest.TestCase):

    def ok(self, cluster, *arguments):
        done = cluster.ctl(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def version(self, cluster):
        return int(cluster.status()["rounds"][0]["version"])

    def worker(self, cluster, name):
        return next(worker for worker in cluster.status()["workers"]
                    if worker["name"] == name)

    def test_pause_holds_rounds_resume_goes_on_and_stop_ends_the_run(self):
        with harness.Cluster(rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(2)
            self.ok(cluster, "pause")
            cluster.wait(lambda: "PAUSED" in cluster.status()["phase"].upper()
                         and not int(cluster.status()["rounds"][0]
                                     .get("round", 0)),
                         "the open round is over and no other opens")
            held = self.version(cluster)
            self.ok(cluster, "resume")
            cluster.wait_version(held + 1)
            last = self.version(cluster) + 5
            self.ok(cluster, "stop", "--after-round", str(last))
            cluster.finish()
            self.assertEqual(self.version(cluster), last)

    def test_drain_lets_a_worker_hand_in_its_work_and_leave(self):
        with harness.Cluster(rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(2)
            self.ok(cluster, "drain", "worker-1")
            self.assertEqual(cluster.workers[1].wait(), 0)
            self.assertEqual(self.worker(cluster, "worker-1")["membership"],
                             "left")
            cluster.wait_version(self.version(cluster) + 2)
            self.ok(cluster, "stop")
            cluster.finish()

    def test_evicted_worker_ends_and_may_not_come_back(self):
        with harness.Cluster(rounds=LONG) as cluster:
            cluster.start_all()
            cluster.wait_version(2)
            self.ok(cluster, "evict", "worker-1")
            self.assertEqual(cluster.workers[1].wait(), 3)
            again = cluster.start_worker(1)
            self.assertEqual(again.wait(), 3)
            self.assertIn("evicted", again.log())
            del cluster.workers[1]
            cluster.wait_version(self.version(cluster) + 2)
            self.ok(cluster, "stop")
            cluster.finish()

    def test_status_and_watch_describe_the_run(self):
        with harness.Cluster(rounds=3) as cluster:
            cluster.start_all()
            digest = cluster.finish()
            status = json.loads(self.ok(cluster, "status", "--json"))
            self.assertEqual(status["run"], "genesis")
            self.assertEqual(
                [worker["name"] for worker in status["workers"]],
                ["worker-0", "worker-1"])
            text = self.ok(cluster, "status")
            self.assertIn("run genesis: finished", text)
            self.assertIn(digest[:12], text)
            watched = self.ok(cluster, "watch", "--from-start")
            for number in (1, 2, 3):
                self.assertIn(f"round {number} ", watched)
            rounds = self.ok(cluster, "watch", "--rounds", "--from-start",
                             "--json")
            self.assertEqual(len(rounds.splitlines()), 3)
            published = [event["record"]["version_published"]
                         for event in cluster.events()
                         if "version_published" in event["record"]]
            self.assertEqual(len(published), 3)
            self.assertEqual(published[-1]["digest"], digest)

    def test_report_sums_up_what_the_journal_says(self):
        with harness.Cluster(rounds=3) as cluster:
            cluster.start_all()
            cluster.finish()
            report = json.loads(self.ok(cluster, "report", "--json"))
            tokens = 3 * harness.INTERVAL * harness.BATCH_TOKENS * 2
            self.assertEqual(report["run"], "genesis")
            self.assertEqual(report["workers"], 2)
            self.assertEqual(report["folded_tokens"], tokens)
            self.assertEqual(report["inner_steps"], 3 * harness.INTERVAL * 2)
            # fp16 up: two bytes a parameter, worker and round, and a little
            # for the headers; synchronous: 2 (k - 1) / k x 4 bytes a step.
            payload = 2 * report["parameters"] * 3 * 2
            self.assertTrue(payload < report["bytes_sent"] < 1.2 * payload,
                            report)
            synchronous = 4 * report["parameters"] * report["inner_steps"]
            self.assertEqual(report["synchronous_bytes_sent"], synchronous)
            self.assertAlmostEqual(report["ratio_sent"],
                                   synchronous / report["bytes_sent"])
            self.assertAlmostEqual(
                report["ratio_total"], 2 * synchronous
                / (report["bytes_sent"] + report["bytes_received"]))
            self.assertTrue(0 < report["utilisation"] <= 1, report)
            text = self.ok(cluster, "report")
            for line in ("fewer bytes", "utilisation", "synchronous"):
                self.assertIn(line, text)

    def test_version_is_that_of_the_program_and_of_the_coordinator(self):
        with harness.Cluster() as cluster:
            cluster.start_coordinator()
            version = json.loads(self.ok(cluster, "version", "--json"))
            own = harness.run([harness.COORDINATOR, "--version"])
            self.assertEqual(own.returncode, 0)
            for text in (version["dilococtl"], version["coordinator"]):
                self.assertIn(text, own.stdout)
            self.assertIn(version["dilococtl"], self.ok(cluster, "version"))

    def test_wrong_address_is_temporary_and_names_the_address(self):
        address = f"127.0.0.1:{harness.free_port()}"
        done = harness.run([harness.CTL, "--coordinator", address, "status"])
        self.assertEqual(done.returncode, 75)
        self.assertEqual(done.stdout, "")
        self.assertIn(address, done.stderr)

    def test_exported_model_opens_and_samples_the_same_text_twice(self):
        with harness.Cluster(rounds=3) as cluster:
            cluster.start_all()
            cluster.finish()
            model = cluster.path("model")
            traffic = cluster.status()["bytes_sent"]
            self.ok(cluster, "export", "--out", model)
            # What an operator fetches is no traffic of the workers.
            self.assertEqual(cluster.status()["bytes_sent"], traffic)
            with open(os.path.join(model, "config.json"),
                      encoding="utf-8") as text:
                config = json.load(text)
            self.assertEqual(config["hidden_size"], 32)
            self.assertEqual(config["num_hidden_layers"], 2)
            with open(os.path.join(model, "model.safetensors"), "rb") as file:
                size = struct.unpack("<Q", file.read(8))[0]
                tensors = json.loads(file.read(size))
                data = len(file.read())
            tensors.pop("__metadata__", None)
            self.assertEqual(tensors["model.embed_tokens.weight"]["shape"],
                             [harness.VOCAB, 32])
            self.assertEqual(max(tensor["data_offsets"][1]
                                 for tensor in tensors.values()), data)
            texts = [self.sample(model, seed) for seed in (1, 1, 2)]
            self.assertTrue(texts[0].strip())
            self.assertEqual(texts[0], texts[1])
            self.assertNotEqual(texts[0], texts[2])

    def sample(self, model, seed):
        done = harness.run(
            [harness.WORKER, "sample", "--model", model, "--tokenizer",
             "bytes", "--prompt", "In the beginning", "--tokens", "40",
             "--seed", str(seed)], errors="replace")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    harness.main()
