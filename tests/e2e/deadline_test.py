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
            back_after = self.open_round(cluster)
            folded = self.rounds_of(cluster, "worker-2")
            cluster.start_worker(2)
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
            self.assertTrue(
                any("worker-2" in self.members(record)
                    for number, record in closed.items()
                    if number > back_after))

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
