"""`diloco-worker simulate`: the same theta as real processes, bit for bit; kills,
speeds and lines; what it writes and what it refuses."""
import collections
import json
import os
import unittest

import harness


def simulate(cluster, out, *flags, data=None, names=True):
    """Simulates the cluster's run file; what the command said."""
    shards = ",".join(os.path.join(harness.data_dir(), f"train-{n % 3}.bin")
                      for n in range(cluster.count))
    command = [harness.WORKER, "simulate", "--config",
               cluster.write_run_file(), "--data", data or shards,
               "--out", cluster.path(out)]
    if names:
        command += ["--names", ",".join(f"worker-{n}"
                                        for n in range(cluster.count))]
    return harness.run(command + list(flags))


def digests(cluster, out):
    """By fragment and its version; a row's own is theta's."""
    found = {}
    newest = collections.Counter()
    with open(cluster.path(out, "rounds.json"), encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            fragment = row.get("fragment", 0)
            newest[fragment] += 1
            found[fragment, newest[fragment]] = row["digest"]
    return found


def report(cluster, out):
    with open(cluster.path(out, "report.json"), encoding="utf-8") as file:
        return json.load(file)


class Simulate(unittest.TestCase):

    def ok(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def same_theta(self, change):
        with harness.Cluster(workers=2, rounds=4, seed=5,
                             change=change) as cluster:
            self.ok(simulate(cluster, "simulated"))
            cluster.start_all()
            cluster.finish()
            real = {}
            for event in cluster.events():
                fact = event["record"].get("version_published")
                if fact is not None:
                    place = fact.get("fragment", 0), int(fact["version"])
                    real[place] = fact["digest"]
            self.assertGreaterEqual(len(real), 4)
            self.assertEqual(digests(cluster, "simulated"), real)

    def test_theta_is_that_of_real_processes(self):
        self.same_theta({})

    def test_theta_is_that_of_real_processes_with_small_updates(self):
        self.same_theta({"sync": {"up": "e3m0", "error_feedback": "on"}})

    def test_theta_is_that_of_real_processes_with_overlap(self):
        # Real processes take, send and fetch beside training; what arrives when
        # does not matter.
        self.same_theta({"sync": {"overlap": 3, "mix": 0.5}})

    def test_theta_is_that_of_real_processes_with_fragments(self):
        self.same_theta({"sync": {"fragments": 2, "pattern": "balanced",
                                  "overlap": 2, "mix": 0.5}})

    def test_kill_speeds_lines_and_files(self):
        change = {"sync": {"deadline": "auto"}, "join": {"lease": "15s"}}
        with harness.Cluster(workers=3, rounds=4, change=change) as cluster:
            flags = ("--speeds", "1,0.5", "--links", "none,100k/10ms",
                     "--kill", "w2@2", "--back-after", "20s")
            done = self.ok(simulate(cluster, "one", *flags, names=False))
            self.assertIn("w2 is killed in round 2", done.stderr)
            again = self.ok(simulate(cluster, "two", *flags, names=False))
            self.assertIn("MB sent", again.stdout)
            self.assertEqual(digests(cluster, "one"), digests(cluster, "two"))
            workers = {worker["name"]: worker
                       for worker in report(cluster, "one")["workers"]}
            self.assertEqual(set(workers), {"w1", "w2", "w3"})
            # On a line without limits nothing takes time; half as fast, a
            # step takes two seconds.
            self.assertEqual(workers["w1"]["transfer_seconds"], 0)
            self.assertGreater(workers["w3"]["transfer_seconds"], 0)
            self.assertAlmostEqual(workers["w1"]["train_seconds"],
                                   workers["w1"]["inner_steps"])
            self.assertAlmostEqual(workers["w3"]["train_seconds"],
                                   2 * workers["w3"]["inner_steps"])
            self.assertGreater(workers["w1"]["wait_seconds"], 0)
            # It is a run like any other.
            verified = harness.run([harness.CTL, "verify",
                                    cluster.path("one", "state")])
            self.assertEqual(verified.returncode, 0, verified.stderr)

    def test_what_cannot_be_is_refused(self):
        with harness.Cluster(workers=2, rounds=1) as cluster:
            for flags, words in (
                    (("--speeds", "0"), "--speeds"),
                    (("--links", "fast"), "--links"),
                    (("--kill", "w1"), "--kill"),
                    (("--kill", "nobody@1"), "no worker nobody"),
                    (("--workers", "1", "--names", "a"), "join.wait_for is 2")):
                done = simulate(cluster, "out", *flags, names=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)
            self.ok(simulate(cluster, "out"))
            done = simulate(cluster, "out")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("has a run already", done.stderr)


if __name__ == "__main__":
    harness.main()
