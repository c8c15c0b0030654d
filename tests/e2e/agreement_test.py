"""Runs that nothing disturbs: same seed, same workers, same theta; and a copy
of theta that is damaged is found and replaced."""
import unittest

import harness


class Agreement(unittest.TestCase):

    def test_two_runs_with_the_same_seed_end_with_the_same_digest(self):
        first = harness.undisturbed_digest(rounds=5, seed=7)
        second = harness.undisturbed_digest(rounds=5, seed=7)
        other = harness.undisturbed_digest(rounds=5, seed=8)
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)


if __name__ == "__main__":
    harness.main()
