"""dilococtl on state directories: looking, checking, copying, going back."""
import json
import os
import shutil
import unittest

import harness

ROUNDS = 8


class StateDirectory(unittest.TestCase):

    def ctl(self, cluster, *arguments):
        done = cluster.ctl(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def json(self, cluster, *arguments):
        lines = self.ctl(cluster, *arguments, "--json").splitlines()
        return [json.loads(line) for line in lines]

    def refused(self, cluster, code, part, *arguments):
        done = cluster.ctl(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(harness.one_line(done.stderr), done.stderr)
        self.assertIn(part, done.stderr)

    def go_on(self, cluster):
        """Starts everything on what the state directory holds, to the end."""
        cluster.workers.clear()
        cluster.start_all()
        digest = cluster.finish()
        status = cluster.status()
        self.assertEqual(int(status["folded_tokens"]),
                         int(status["train_tokens"]))
        cluster.coordinator.terminate()
        self.ctl(cluster, "verify", cluster.path("state"))
        return digest

    def test_a_run_is_inspected_checked_copied_and_taken_back(self):
        with harness.Cluster(rounds=ROUNDS) as cluster:
            state = cluster.path("state")
            backup = cluster.path("backup")
            cluster.start_all()
            cluster.wait_version(3)
            [copied] = self.json(cluster, "backup", state, "--out", backup)
            digest = cluster.finish()
            # Beside the coordinator, which still runs.
            [inspected] = self.json(cluster, "inspect", state)
            self.assertTrue(inspected["finished"])
            self.assertEqual(inspected["fragments"][0]["digest"], digest)
            self.ctl(cluster, "verify", state)
            self.refused(cluster, 1, "LOCK", "rollback", state, "--to", "4")
            cluster.coordinator.terminate()

            rounds = self.json(cluster, "history", state)
            self.assertEqual([row["version"] for row in rounds],
                             list(range(1, ROUNDS + 1)))
            self.assertEqual(rounds[-1]["digest"], digest)
            self.assertEqual({member["worker"]: member["share"]
                              for member in rounds[0]["members"]},
                             {"worker-0": 0.5, "worker-1": 0.5})
            last = self.ctl(cluster, "inspect", state, "--records")
            self.assertIn("run finished", last)

            model = cluster.path("without")
            [refolded] = self.json(
                cluster, "refold", "--config", cluster.path("run.yaml"),
                "--round", str(ROUNDS), "--without", "worker-1", "--out", model)
            self.assertGreater(refolded["distance"], 0)
            self.assertTrue(os.path.exists(
                os.path.join(model, "model.safetensors")))
            self.refused(cluster, 2, "worker-7", "refold", "--config",
                         cluster.path("run.yaml"), "--round", "1", "--without",
                         "worker-7", "--out", cluster.path("nothing"))

            # Back, and on again with the workers' own scratch directories.
            self.refused(cluster, 1, "no version 99", "rollback", state,
                         "--to", "99")
            [rolled] = self.json(cluster, "rollback", state, "--to",
                                 str(ROUNDS - 2))
            self.assertEqual(rolled["digest"], rounds[ROUNDS - 3]["digest"])
            self.assertNotEqual(rolled["lineage"], inspected["lineage"])
            self.go_on(cluster)

            # Out of the backup, which no coordinator starts in.
            shutil.rmtree(state)
            self.refused(cluster, 1, "not exist", "inspect", state)
            shutil.copytree(backup, state)
            refused = cluster.start_coordinator(ready=False)
            self.assertEqual(refused.wait(), 1)
            self.assertIn("dilococtl restore", refused.log())
            shutil.rmtree(state)
            [restored] = self.json(cluster, "restore", backup, "--out", state)
            self.assertEqual(restored["version"], copied["version"])
            # The backup does not know the lineage of the rollback: its workers
            # could have been ahead of it. They start with new scratch.
            for number in range(2):
                shutil.rmtree(cluster.path(f"scratch-{number}"))
            self.go_on(cluster)

    def test_live_workers_follow_two_rollbacks(self):
        with harness.Cluster(rounds=100000) as cluster:
            cluster.start_all()
            for version in (2, 3):
                cluster.wait_version(version + 2)
                cluster.coordinator.terminate()
                [rolled] = self.json(cluster, "rollback", cluster.path("state"),
                                     "--to", str(version))
                cluster.start_coordinator()
                cluster.wait_version(version + 1)
            self.assertEqual([worker.code() for worker in
                              cluster.workers.values()], [None, None])
            cluster.ctl("stop")
            cluster.finish()

    def test_a_fork_is_a_run_of_its_own(self):
        with harness.Cluster(rounds=3) as cluster:
            cluster.start_all()
            digest = cluster.finish()
            cluster.coordinator.terminate()
            origin = cluster.path("origin")
            os.rename(cluster.path("state"), origin)
            cluster.settings["run"]["name"] = "forked"
            cluster.settings["train"]["optimizer"]["lr"] = 0.001
            [forked] = self.json(cluster, "fork", origin, "--at", "3",
                                 "--config", cluster.write_run_file())
            self.assertEqual(forked["digest"], digest)
            for number in range(2):
                shutil.rmtree(cluster.path(f"scratch-{number}"))
            cluster.workers.clear()
            cluster.start_all()
            cluster.finish()
            self.assertEqual(cluster.status()["run"], "forked")


if __name__ == "__main__":
    harness.main()
