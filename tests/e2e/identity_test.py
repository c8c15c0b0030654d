"""One worker, outer rate 1: from a Hugging Face directory that train-local
wrote, with tied embeddings."""
import os

import harness
import identity


class Identity(identity.Identity):

    def test_from_a_directory_of_our_own(self):
        with harness.Cluster() as scratch:
            start = scratch.path("start")
            shard = os.path.join(harness.data_dir(), "train-0.bin")
            made = harness.run(
                [harness.WORKER, "train-local", "--layers", "2", "--hidden",
                 "32", "--heads", "2", "--ffn", "64", "--vocab",
                 str(harness.VOCAB), "--seq-len", str(harness.SEQ_LEN),
                 "--data", shard, "--steps", "3", "--out", start])
            self.assertEqual(made.returncode, 0, made.stderr)
            self.check(start, shard, harness.SEQ_LEN)


if __name__ == "__main__":
    harness.main()
