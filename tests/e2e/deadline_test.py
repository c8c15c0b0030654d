"""A worker that vanishes in mid-round: the round closes at its deadline with
the others' updates, and the worker finds its way back."""
import unittest

import harness


class Deadline(unittest.TestCase):

    def test_C6_3_killed_worker_misses_its_round_and_is_back_in_a_later_one(
            self):
        # Long windows first: round 2 is still going on when the worker dies.
        with harness.Cluster(workers=3, rounds=100000, change={
                "sync": {"deadline": "10s", "interval_first": 100,
                         "rounds_first": 2}}) as cluster:
            cluster.start_all()
            cluster.wait(lambda: self.open_round(cluster) == 2,
                         "round 2 is open", pause=0.01)
            cluster.workers[2].kill()
            cluster.wait_log(cluster.coordinator, "round 2 closed")
            folded = self.rounds_of(cluster, "worker-2")
            worker = cluster.start_worker(2)
            cluster.wait_log(worker, "joined run=")
            joined_in = self.open_round(cluster)
            cluster.wait(lambda: self.rounds_of(cluster, "worker-2") > folded,
                         "worker-2 is in a fold again")
            cluster.ctl("stop")
            cluster.finish()

            records = [event["record"] for event in cluster.events()]
            closed = {int(record["round_closed"]["round"]):
                      record["round_closed"]
                      for record in records if "round_closed" in record}
            second = closed[2]
            self.assertEqual(self.members(second), ["worker-0", "worker-1"])
            self.assertEqual(second["missing"], ["worker-2"])
            self.assertIn("deadline", second["reason"])
            self.assertIn("worker-2 (silent for", second["reason"])
            # The divisor is the two accepted updates', and nothing else grew.
            window = 100 * harness.BATCH_TOKENS
            self.assertEqual(
                [(int(member["tokens"]), int(member["weight"]))
                 for member in second["members"]], [(window, window)] * 2)
            folded = {int(record["version_published"]["round"]):
                      int(record["version_published"]["folded_tokens"])
                      for record in records if "version_published" in record}
            self.assertEqual(folded[1], 3 * window)
            self.assertEqual(folded[2], folded[1] + 2 * window)
            # A member of the first round that opened after it was back.
            leased = {int(record["round_opened"]["round"]):
                      [lease["worker"]
                       for lease in record["round_opened"]["leases"]]
                      for record in records if "round_opened" in record}
            first = min(number for number in leased if number > joined_in)
            self.assertIn("worker-2", leased[first], (joined_in, leased))
            self.assertIn("worker-2", self.members(closed[first]))

    @staticmethod
    def rounds_of(cluster, name):
        return next(int(worker["rounds_folded"])
                    for worker in cluster.status()["workers"]
                    if worker["name"] == name)

    @staticmethod
    def open_round(cluster):
        return int(cluster.status()["rounds"][0].get("round", 0))

    @staticmethod
    def members(closed):
        return [member["worker"] for member in closed["members"]]


if __name__ == "__main__":
    harness.main()
