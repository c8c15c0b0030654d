"""A state directory that was copied comes alive beside the first: whoever has
seen the later start changes nothing at the earlier one, which stops."""
import shutil
import signal
import unittest

import harness


class Fencing(unittest.TestCase):

    def test_a_copy_that_comes_alive_stops_the_first_coordinator(self):
        with harness.Cluster(rounds=100000, change={
                "sync": {"deadline": "5s"},
                "join": {"lease": "5s"}}) as cluster:
            cluster.start_all()
            cluster.wait_version(3)
            # As a machine that is moved: the first is frozen, not dead.
            first, first_port = cluster.coordinator, cluster.port
            first.signal(signal.SIGSTOP)
            shutil.copytree(cluster.path("state"), cluster.path("copy"))
            self.use(cluster, harness.free_port(), "copy")
            cluster.start_coordinator()
            version = self.version(cluster)
            cluster.workers[0].kill()
            cluster.start_worker(0)
            cluster.wait_version(version + 3)
            second, second_port = cluster.coordinator, cluster.port
            # The first wakes up, and somebody who knows of the second comes.
            first.signal(signal.SIGCONT)
            self.use(cluster, first_port, "state")
            cluster.workers[0].kill()
            worker = cluster.start_worker(0)
            self.assertEqual(worker.wait(), 4, worker.log())
            self.assertIn("epoch", worker.log())
            self.assertEqual(first.wait(), 1)
            self.assertIn("another coordinator has gone on with this run",
                          first.log())
            # It stays stopped, also where something starts it again.
            again = cluster.start_coordinator(ready=False)
            self.assertEqual(again.wait(), 1)
            self.assertIn("SUPERSEDED", again.log())
            self.assertIn("dilococtl restore", again.log())
            # Both workers go on with the second.
            cluster.coordinator = second
            self.use(cluster, second_port, "copy")
            cluster.workers[1].kill()
            for number in range(2):
                cluster.start_worker(number)
            cluster.wait(lambda: self.leased(cluster) == 2,
                         "a round of both workers")

    @staticmethod
    def use(cluster, port, state):
        cluster.port = port
        cluster.settings["listen"]["control"] = f"127.0.0.1:{port}"
        cluster.settings["state"]["dir"] = state

    @staticmethod
    def version(cluster):
        return int(cluster.status()["rounds"][0]["version"])

    @staticmethod
    def leased(cluster):
        return sum(bool(worker.get("leased"))
                   for worker in cluster.status()["workers"])


if __name__ == "__main__":
    harness.main()
