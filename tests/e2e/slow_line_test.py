"""Real processes over slow lines: processes that die in the middle of a transfer
go on where it was, and workers on 10 Mbit/s are never taken for lost.

DILOCO_E2E_LONG adds 25 M parameters in fp16 over 10 Mbit/s: about seven
minutes."""
import os
import threading
import time
import unittest

import harness
import proxy

MIB = 1 << 20
# Rows that the data does not use: an update of 4 MiB from a model that trains
# in no time.
LARGE = {"model": {"vocab": 32768}, "sync": {"up": "fp32", "interval": 1},
         "train": {"tokens": 3 * harness.BATCH_TOKENS}}
UPDATE = 4.2 * MIB


class SlowLine(unittest.TestCase):

    def test_C5_5_upload_goes_on_after_either_side_was_killed_in_the_middle(self):
        undisturbed = harness.undisturbed_digest(workers=1, change=LARGE)
        with harness.Cluster(workers=1, change=LARGE) as cluster, \
                proxy.Proxy(cluster.port, rate=MIB, queue=65536) as line:
            cluster.start_coordinator()
            change = {"coordinator": line.address}
            cluster.start_worker(0, change=change)
            cluster.wait(lambda: line.stats()["up"] > UPDATE / 2,
                         "half of the first update")
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait(lambda: line.stats()["up"] > 1.6 * UPDATE,
                         "half of the second update")
            cluster.workers[0].kill()
            cluster.start_worker(0, change=change)
            self.assertEqual(cluster.finish(), undisturbed)
            self.assertLess(line.stats()["up"], 1.2 * 3 * UPDATE)

    @unittest.skipUnless(os.environ.get("DILOCO_E2E_LONG"), "long")
    def test_25M_parameters_over_10_Mbit_never_lose_a_worker(self):
        change = {"model": {"hidden": 512, "heads": 8, "ffn": 1376,
                            "vocab": 36864},
                  "sync": {"interval": 2, "up": "fp16", "deadline": "20m"},
                  "train": {"tokens": 2 * 2 * 2 * harness.BATCH_TOKENS},
                  "join": {"lease": "30s"}}
        with harness.Cluster(workers=2, change=change) as cluster, \
                proxy.Proxy(cluster.port, rate=1250000, queue=262144) as first, \
                proxy.Proxy(cluster.port, rate=1250000, queue=262144) as second:
            cluster.start_coordinator()
            start = time.monotonic()
            for number, line in enumerate((first, second)):
                cluster.start_worker(
                    number, change={"coordinator": line.address,
                                    "checkpoint": {"every": "1h"}})
            seen = Watcher(cluster)
            digest = cluster.finish(timeout=1200)
            seen.stop()
            self.assertTrue(digest)
            print(f"\n{time.monotonic() - start:.0f} s, "
                  f"up {first.stats()['up'] / 1e6:.0f} MB, "
                  f"down {first.stats()['down'] / 1e6:.0f} MB a worker, "
                  f"longest silence {seen.longest:.1f} s, "
                  f"suspect in {seen.suspect} of {seen.samples} looks")
            for worker in cluster.workers.values():
                print("\n".join(line.split(" ", 1)[1]
                                for line in worker.log().splitlines()
                                if "loaded bytes=" in line))
            # Two rounds of 50 MB and more went through, and nobody was lost.
            self.assertGreater(first.stats()["up"], 2 * 50e6)
            self.assertEqual(seen.lost, 0)
            self.assertLess(seen.longest, 10)
            for event in cluster.events():
                self.assertNotIn("worker_returned", event["record"])
                if "round_closed" in event["record"]:
                    self.assertEqual(
                        len(event["record"]["round_closed"]["members"]), 2)


class Watcher:
    """Looks at the workers until it is stopped."""

    def __init__(self, cluster):
        self.longest = 0.0
        self.samples = self.suspect = self.lost = 0
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.5):
            status = self._cluster.try_status()
            for worker in (status or {}).get("workers", []):
                if worker["membership"] == "left":
                    continue
                self.samples += 1
                self.longest = max(self.longest, float(
                    worker.get("seconds_since_heard", 0)))
                self.suspect += worker["membership"] == "suspect"
                self.lost += worker["membership"] == "lost"


if __name__ == "__main__":
    harness.main()
