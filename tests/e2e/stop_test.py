"""SIGTERM: every daemon ends with exit code 0, nothing is lost, and the run
goes on where it was."""
import glob
import re
import signal
import time
import unittest

import harness

ROUNDS = 40
# Steps of a window that takes several seconds.
LONG = 3000


def long_windows(rounds):
    return {"sync": {"interval": LONG},
            "train": {"tokens": 2 * rounds * LONG * harness.BATCH_TOKENS}}


class Stop(unittest.TestCase):

    def test_C5_4_everything_stopped_with_sigterm_goes_on_to_the_same_theta(
            self):
        undisturbed = harness.undisturbed_digest(rounds=ROUNDS)
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(5)
            # The coordinator first: no worker can tell it that it leaves, so
            # no round goes on without one.
            self.assertEqual(cluster.coordinator.terminate(), 0)
            for worker in cluster.workers.values():
                self.assertEqual(worker.terminate(), 0)
            cluster.start_all()
            self.assertEqual(cluster.finish(), undisturbed)
            self.assertIn("state=checkpoint", cluster.workers[0].log())

    def test_C5_4_worker_stopped_with_sigterm_leaves_and_the_others_go_on(
            self):
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            self.assertEqual(cluster.workers[1].terminate(), 0)
            cluster.wait_log(cluster.coordinator, "worker-1 left")
            version = int(cluster.status()["rounds"][0]["version"])
            # No deadline could close these rounds.
            cluster.wait_version(version + 3)
            cluster.start_worker(1)
            cluster.finish()

    def in_mid_window(self, cluster, number):
        """Returns when that worker is in its first window for a second."""
        cluster.wait(lambda: glob.glob(cluster.path(f"scratch-{number}",
                                                    "checkpoint-*.ckpt")),
                     f"worker-{number} has written a checkpoint")

    def test_C5_4_worker_stopped_in_mid_window_hands_in_its_steps(self):
        change = long_windows(rounds=2)
        with harness.Cluster(change=change) as cluster:
            cluster.start_all()
            self.in_mid_window(cluster, 1)
            self.assertEqual(cluster.workers[1].terminate(), 0)
            log = cluster.workers[1].log()
            steps = int(re.search(r"hands in (\d+) steps of round 1", log)[1])
            self.assertGreater(steps, 0)
            self.assertLess(steps, LONG)
            self.assertIn("nothing is left to hand in", log)
            # The round does not wait for it, and has its tokens.
            cluster.wait_log(cluster.coordinator, "round 1 closed")
            again = cluster.start_worker(1)
            cluster.finish()
            self.assertIn("state=checkpoint", again.log())
            records = [event["record"] for event in cluster.events()]
            closed = [record["round_closed"] for record in records
                      if "round_closed" in record]
            members = {m["worker"]: int(m["weight"])
                       for m in closed[0]["members"]}
            self.assertEqual(members, {
                "worker-0": LONG * harness.BATCH_TOKENS,
                "worker-1": steps * harness.BATCH_TOKENS})

    def test_C5_4_worker_ends_in_drain_timeout_though_nobody_answers(self):
        change = long_windows(rounds=1)
        undisturbed = harness.undisturbed_digest(change=change)
        for timeout, word in ((3, "ends at once"),
                              (30, "kept in a checkpoint")):
            with self.subTest(timeout), harness.Cluster(change=change) as cluster:
                cluster.start_coordinator()
                cluster.start_worker(0)
                worker = cluster.start_worker(
                    1, change={"drain_timeout": f"{timeout}s"})
                self.in_mid_window(cluster, 1)
                # It accepts connections and says nothing.
                cluster.coordinator.signal(signal.SIGSTOP)
                asked = time.monotonic()
                self.assertEqual(worker.terminate(), 0)
                self.assertLess(time.monotonic() - asked, timeout + 5)
                self.assertIn(word, worker.log())
                cluster.coordinator.signal(signal.SIGCONT)
                cluster.start_worker(1)
                self.assertEqual(cluster.finish(), undisturbed)

    def test_C5_4_second_signal_ends_a_worker_at_once_and_it_recovers(self):
        undisturbed = harness.undisturbed_digest(rounds=ROUNDS)
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            # Both are there when it wakes up.
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT,
                           signal.SIGCONT):
                cluster.workers[1].signal(number)
            self.assertIn(cluster.workers[1].wait(30),
                          (128 + signal.SIGTERM, 128 + signal.SIGINT))
            cluster.start_worker(1)
            self.assertEqual(cluster.finish(), undisturbed)

    def test_worker_writes_a_checkpoint_on_sigusr1_and_trains_on(self):
        with harness.Cluster(workers=1, rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(1)
            cluster.workers[0].signal(signal.SIGUSR1)
            cluster.wait_log(cluster.workers[0], "checkpoint asked for")
            cluster.finish()

    def test_C5_4_coordinator_ends_though_a_worker_is_frozen_or_asked_twice(
            self):
        undisturbed = harness.undisturbed_digest(rounds=ROUNDS)
        with harness.Cluster(rounds=ROUNDS) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            # It holds a long poll, or half an upload, and does not answer.
            cluster.workers[1].signal(signal.SIGSTOP)
            cluster.coordinator.signal(signal.SIGTERM)
            # Ten seconds of grace, and a busy machine.
            self.assertEqual(cluster.coordinator.wait(30), 0)
            cluster.workers[1].signal(signal.SIGCONT)
            cluster.start_coordinator()
            version = int(cluster.status()["rounds"][0]["version"])
            cluster.wait_version(version + 2)
            # Twice while it is frozen: both are there when it wakes up.
            cluster.coordinator.signal(signal.SIGSTOP)
            cluster.coordinator.signal(signal.SIGTERM)
            cluster.coordinator.signal(signal.SIGINT)
            cluster.coordinator.signal(signal.SIGCONT)
            self.assertIn(cluster.coordinator.wait(30),
                          (128 + signal.SIGTERM, 128 + signal.SIGINT))
            cluster.start_coordinator()
            self.assertEqual(cluster.finish(), undisturbed)

    def test_C5_4_coordinator_stopped_during_a_fold_folds_to_the_same_theta(
            self):
        # Two million parameters, nearly all of them rows that the data does
        # not use: a fold that takes a while, from windows that do not.
        change = {"model": {"vocab": 65536}, "sync": {"interval": 1},
                  "train": {"tokens": 8 * harness.BATCH_TOKENS},
                  "state": {"image_every": 1}}
        undisturbed = harness.undisturbed_digest(workers=1, change=change)
        with harness.Cluster(workers=1, change=change) as cluster:
            cluster.start_all()
            hits = 0
            for number in range(2, 6):
                closed = f"round {number} closed"
                cluster.wait(lambda: closed in cluster.coordinator.log(),
                             closed, pause=0.002)
                self.assertEqual(cluster.coordinator.terminate(), 0)
                # What was asked before the next round opened, was asked
                # before this one was published.
                before = cluster.coordinator.log().split("stopping")[0]
                hits += f"round {number + 1} opened" not in before
                cluster.start_coordinator()
            self.assertGreater(hits, 0)
            self.assertEqual(cluster.finish(), undisturbed)


if __name__ == "__main__":
    harness.main()
