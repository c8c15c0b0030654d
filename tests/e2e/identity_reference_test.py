"""One worker, outer rate 1: from the reference checkpoint, which another
library wrote; untied, with grouped-query attention."""
import os
import unittest

import harness
import identity

FIXTURES = os.environ.get("DILOCO_FIXTURES")


class IdentityReference(identity.Identity):

    @unittest.skipUnless(FIXTURES, "DILOCO_FIXTURES names no folder")
    def test_from_the_reference_checkpoint(self):
        folder = os.path.join(FIXTURES, "llama_tiny")
        self.check(folder, os.path.join(folder, "tokens.bin"), 64)


if __name__ == "__main__":
    harness.main()
