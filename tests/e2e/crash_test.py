"""Processes that are killed with SIGKILL and started again: the run goes on,
and where no deadline decides it ends with the theta of an undisturbed run.

DILOCO_E2E_KILLS sets how often a process is killed (default 6), and
DILOCO_E2E_SEED at which moments."""
import os
import random
import time
import unittest

import harness

KILLS = int(os.environ.get("DILOCO_E2E_KILLS", "6"))
SEED = int(os.environ.get("DILOCO_E2E_SEED", "11"))
ROUNDS = 12 + 5 * KILLS


class Crash(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.undisturbed = harness.undisturbed_digest(rounds=ROUNDS)

    def kill_at_random(self, cluster, random_seed, victim, start):
        """Kills `victim()` and calls `start()`, KILLS times, each after some
        new versions and a moment anywhere in a round."""
        draw = random.Random(random_seed)
        version = 0
        for _ in range(KILLS):
            version += draw.randint(2, 4)
            cluster.wait_version(version)
            # Any moment will do: this is when the process dies, not a wait
            # for something to happen.
            time.sleep(draw.uniform(0, 0.15))
            victim().kill()
            start()

    def test_C7_1_coordinator_killed_at_random_moments_ends_with_the_same_theta(
            self):
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            self.kill_at_random(cluster, SEED, lambda: cluster.coordinator,
                                cluster.start_coordinator)
            self.assertEqual(cluster.finish(), self.undisturbed)
            self.assertGreaterEqual(
                int(cluster.status()["fencing"]["epoch"]), KILLS + 1)

    def test_C7_3_worker_killed_at_random_moments_ends_with_the_same_theta(
            self):
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            self.kill_at_random(cluster, SEED + 1, lambda: cluster.workers[1],
                                lambda: cluster.start_worker(1))
            self.assertEqual(cluster.finish(), self.undisturbed)


if __name__ == "__main__":
    harness.main()
