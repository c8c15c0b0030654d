"""DiLoCo with one worker, outer rate 1 and no momentum is plain training: the
run's theta equals that of train-local from the same Hugging Face directory.
Used by identity_test.py and identity_reference_test.py."""
import array
import json
import math
import os
import struct
import unittest

import harness

INTERVAL, ROUNDS, BATCH, LR = 5, 4, 4, 0.003


def read_safetensors(path):
    """name -> values of a file of F32 tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F32", (name, entry)
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", data[begin:end])
    return tensors


def relative_distance(one, other):
    """|one - other| / |other| over all tensors."""
    assert one.keys() == other.keys()
    difference = norm = 0.0
    for name, values in other.items():
        assert len(one[name]) == len(values), name
        difference += math.fsum((a - b) ** 2
                                for a, b in zip(one[name], values))
        norm += math.fsum(b * b for b in values)
    return math.sqrt(difference / norm)


class Identity(unittest.TestCase):

    def check(self, start, shard, seq_len):
        """A run from the directory `start`, and the same steps without one."""
        tokens = INTERVAL * ROUNDS * BATCH * seq_len
        with harness.Cluster(workers=1, change={
                "data": {"seq_len": seq_len},
                "train": {"tokens": tokens, "batch_tokens": BATCH * seq_len,
                          "optimizer": {"lr": LR},
                          "schedule": {"shape": "constant"}},
                "sync": {"interval": INTERVAL, "up": "fp32"},
                "outer": {"rule": "sgd", "lr": 1.0, "momentum": 0.0}}) as run:
            run.settings["model"] = {"from": start}
            run.start_coordinator()
            run.start_worker(0, change={"shard": shard})
            run.finish()
            self.assertEqual(int(run.status()["rounds"][0]["version"]), ROUNDS)
            exported = run.path("exported")
            done = run.ctl("export", "--out", exported)
            self.assertEqual(done.returncode, 0, done.stderr)
            theta = self.weights(exported)
            local = self.train(run, start, shard, seq_len, INTERVAL * ROUNDS)
            self.assertLess(relative_distance(theta, local), 2e-7)
            # So it can fail: one step less is somewhere else, and so is where
            # both began.
            fewer = self.train(run, start, shard, seq_len,
                               INTERVAL * ROUNDS - 1)
            self.assertGreater(relative_distance(theta, fewer), 1e-4)
            self.assertGreater(
                relative_distance(theta, self.weights(start)), 1e-3)

    def train(self, run, start, shard, seq_len, steps):
        out = run.path(f"local-{steps}")
        done = harness.run(
            [harness.WORKER, "train-local", "--init-from", start, "--data",
             shard, "--seq-len", str(seq_len), "--batch", str(BATCH),
             "--steps", str(steps), "--lr", str(LR), "--schedule", "constant",
             "--seed", "1", "--threads", "1", "--out", out])
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.weights(out)

    @staticmethod
    def weights(directory):
        return read_safetensors(os.path.join(directory, "model.safetensors"))
