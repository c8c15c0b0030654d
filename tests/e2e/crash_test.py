"""Processes that are killed with SIGKILL and started again: the run goes on,
and where no deadline decides it ends with the theta of an undisturbed run.

DILOCO_E2E_KILLS sets how often a process is killed (default 6), and
DILOCO_E2E_SEED at which moments."""
import os
import random
import re
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

    def test_C7_3_killed_worker_loses_at_most_checkpoint_every_of_work(self):
        # Windows of several seconds, checkpoints in the middle of them.
        every = 1.0
        interval = 3000
        change = {"sync": {"interval": interval}, "train": {
            "tokens": 2 * 2 * interval * harness.BATCH_TOKENS}}
        undisturbed = harness.undisturbed_digest(change=change)
        draw = random.Random(13)
        with harness.Cluster(change=change) as cluster:
            cluster.start_coordinator()
            cluster.start_worker(0)
            port = harness.free_port()
            settings = {"checkpoint": {"every": f"{every}s"},
                        "listen": {"metrics": f"127.0.0.1:{port}"}}

            def totals():
                text = harness.get(f"http://127.0.0.1:{port}/metrics")[1]
                steps = re.search(r"^diloco_worker_inner_steps_total (\S+)",
                                  text, re.M)
                seconds = re.search(
                    r"^diloco_worker_step_seconds_sum (\S+)", text, re.M)
                return float(steps[1]), float(seconds[1])

            worker = cluster.start_worker(1, change=settings)
            before = 0
            for kill in range(3):
                cluster.wait_log(worker, "downloaded" if kill == 0
                                 else "goes on from a checkpoint")
                # Anywhere from the first checkpoint of this life on.
                cluster.wait(lambda: totals()[1] > every, "work is done")
                time.sleep(draw.uniform(0, every))
                steps, seconds = totals()
                worker.kill()
                worker = cluster.start_worker(1, change=settings)
                cluster.wait_log(worker, "goes on from a checkpoint")
                kept = int(re.search(r"goes on from a checkpoint.*"
                                     r"inner_steps=(\d+)", worker.log())[1])
                lost = (before + steps - kept) * seconds / steps
                # The write itself, and what was done after the look.
                self.assertLess(lost, every + 0.5)
                self.assertGreater(kept, before)
                before = kept
            self.assertEqual(cluster.finish(), undisturbed)


if __name__ == "__main__":
    harness.main()
