"""SIGTERM: every daemon ends with exit code 0, nothing is lost, and the run
goes on where it was."""
import unittest

import harness

ROUNDS = 40


class Stop(unittest.TestCase):

    def test_C5_4_everything_stopped_with_sigterm_goes_on_to_the_same_theta(
            self):
        undisturbed = harness.undisturbed_digest(rounds=ROUNDS)
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(5)
            # The coordinator first: no worker can tell it that it leaves, so
            # no round goes on without one.
            self.assertEqual(cluster.coordinator.terminate(), 0)
            for worker in cluster.workers.values():
                self.assertEqual(worker.terminate(), 0)
            cluster.start_all()
            self.assertEqual(cluster.finish(), undisturbed)
            self.assertIn("state=checkpoint", cluster.workers[0].log())

    def test_C5_4_worker_stopped_with_sigterm_leaves_and_the_others_go_on(
            self):
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            self.assertEqual(cluster.workers[1].terminate(), 0)
            cluster.wait_log(cluster.coordinator, "worker-1 left")
            version = int(cluster.status()["rounds"][0]["version"])
            # No deadline could close these rounds.
            cluster.wait_version(version + 3)
            cluster.start_worker(1)
            cluster.finish()


if __name__ == "__main__":
    harness.main()
