"""Runs that nothing disturbs: same seed, same workers, same theta; and a copy
of theta that is damaged is found and replaced."""
import re
import unittest

import harness


class Agreement(unittest.TestCase):

    def test_two_runs_with_the_same_seed_end_with_the_same_digest(self):
        first = harness.undisturbed_digest(rounds=5, seed=7)
        second = harness.undisturbed_digest(rounds=5, seed=7)
        other = harness.undisturbed_digest(rounds=5, seed=8)
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)

    def test_flipped_bit_in_a_copy_is_named_and_the_copy_replaced(self):
        with harness.Cluster(workers=2, rounds=8) as cluster:
            cluster.start_coordinator()
            cluster.start_worker(0)
            cluster.start_worker(
                1, env={"DILOCO_TEST_FLIP_BIT_AT_VERSION": "3"})
            cluster.finish()
            alarms = [line for line in cluster.coordinator.log().splitlines()
                      if "digest differs" in line]
            self.assertEqual(len(alarms), 1, alarms)
            self.assertIn("worker=worker-1", alarms[0])
            self.assertIn("version=4", alarms[0])
            digests = re.search(r"worker_digest=(\w+) published=(\w+)",
                                alarms[0])
            self.assertNotEqual(digests.group(1), digests.group(2))
            log = cluster.workers[1].log()
            self.assertIn("downloaded afresh", log)
            # Afresh: the version in which it was found is held again, whole.
            after = log.split("downloaded afresh", 1)[1]
            self.assertIn(f"holds theta version=4 digest={digests.group(2)}",
                          after)
            self.assertNotIn("damaged", cluster.workers[0].log())


if __name__ == "__main__":
    harness.main()
