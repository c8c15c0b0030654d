"""Real processes over a line that is cut, and workers that fall silent: what
was sent is not sent again, and a round does not wait."""
import signal
import unittest

import harness
import journal
import proxy

MIB = 1 << 20
# Rows that the data does not use: an update of 4 MiB from a model that trains
# in no time.
LARGE = {"model": {"vocab": 32768}, "sync": {"up": "fp32", "interval": 1},
         "train": {"tokens": 4 * harness.BATCH_TOKENS}}


class Network(unittest.TestCase):

    def test_C5_5_upload_over_a_line_that_is_cut_again_and_again_arrives(self):
        undisturbed = harness.undisturbed_digest(workers=1, change=LARGE)
        with harness.Cluster(workers=1, change=LARGE) as cluster, \
                proxy.Proxy(cluster.port, rate=8 * MIB,
                            cut_every=3 * MIB // 2) as line:
            # No connection lives long enough for one upload.
            cluster.start_coordinator()
            cluster.start_worker(0, change={"coordinator": line.address})
            self.assertEqual(cluster.finish(), undisturbed)
            # Four uploads of four MiB, each cut twice or more. What a cut
            # loses is what was on its way and less than a chunk, so less than
            # half is sent twice.
            stats = line.stats()
            self.assertGreaterEqual(stats["cuts"], 8)
            self.assertLess(stats["up"], 1.5 * 4 * 4.3 * MIB)

    def test_C6_3_silent_workers_are_not_waited_for_and_come_back(self):
        with harness.Cluster(workers=3, rounds=100000, change={
                "sync": {"deadline": "5s"}, "join": {"lease": "5s"}}) as cluster, \
                proxy.Proxy(cluster.port) as line:
            cluster.start_coordinator()
            cluster.start_worker(0)
            cluster.start_worker(1)
            worker = cluster.start_worker(
                2, change={"coordinator": line.address})
            cluster.wait_version(2)
            # As a machine that is suspended, or swaps.
            worker.signal(signal.SIGSTOP)
            self.two_rounds_without(cluster)
            worker.signal(signal.SIGCONT)
            self.back_again(cluster)
            # As a line that is down; the worker trains on.
            line.block()
            self.two_rounds_without(cluster)
            line.unblock()
            self.back_again(cluster)
            self.assertIsNone(worker.code())
            cluster.ctl("stop")
            cluster.finish()
            self.check_journal(cluster)

    def two_rounds_without(self, cluster):
        """Two rounds close without worker-2. At most one update of it was
        under way, and counts in the first round that closes."""
        start = self.folded(cluster)
        version = int(cluster.status()["rounds"][0]["version"])
        cluster.wait_version(version + 3)
        self.assertLessEqual(self.folded(cluster), start + 1)

    def back_again(self, cluster):
        folded = self.folded(cluster)
        cluster.wait(lambda: self.folded(cluster) >= folded + 2,
                     "worker-2 is in two more folds")

    @staticmethod
    def folded(cluster):
        return next(int(worker["rounds_folded"])
                    for worker in cluster.status()["workers"]
                    if worker["name"] == "worker-2")

    def check_journal(self, cluster):
        """Nothing counts twice, and only worker-2 was ever missing."""
        journal.check(self, cluster)
        closed = journal.closed_rounds(cluster)
        for one in closed:
            for name in one["missing"]:
                self.assertEqual(name, "worker-2")
                self.assertIn("worker-2", one["reason"])
        without = [one for one in closed
                   if all(member["worker"] != "worker-2"
                          for member in one["members"])]
        self.assertGreaterEqual(len(without), 4)


if __name__ == "__main__":
    harness.main()
