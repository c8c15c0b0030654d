"""deploy/setup on a machine that is ready: does nothing, in under 5 s, and
says so. Only in the long runs: the first of two may install packages."""
import os
import time
import unittest

import harness

SETUP = os.path.join(harness.ROOT, "deploy", "setup")


class SetupAgain(unittest.TestCase):

    def test_second_run_is_quick_and_changes_nothing(self):
        first = harness.run([SETUP], timeout=500)
        self.assertEqual(first.returncode, 0, first.stderr)
        begin = time.monotonic()
        second = harness.run([SETUP])
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("ready", second.stdout)
        self.assertNotIn("installing", second.stdout)
        self.assertNotIn("fetching", second.stdout)

    def test_unknown_argument_is_refused(self):
        done = harness.run([SETUP, "--no-such-flag"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--no-such-flag", done.stderr)


if __name__ == "__main__":
    harness.main()
