"""Faults of the machine a daemon runs on: files it cannot use, addresses it
cannot have, peers that only hold a connection open."""
import os
import socket
import time
import unittest

import bad_input
import harness


class LocalFaults(bad_input.BadInput):

    def test_worker_whose_files_cannot_be_used_names_them_and_exits_with_2(
            self):
        with harness.Cluster(workers=1) as cluster:
            directory = cluster.path("directory")
            os.mkdir(directory)
            pipe = cluster.path("pipe")
            os.mkfifo(pipe)
            for place in directory, pipe:
                worker = cluster.start_worker(0, change={"shard": place})
                self.assert_error(worker, 2, place)
            worker = cluster.start_worker(0, change={"scratch": pipe})
            self.assert_error(worker, 2, pipe)
            scratch = cluster.path("scratch")
            os.makedirs(os.path.join(scratch, "LOCK"))
            worker = cluster.start_worker(0, change={"scratch": scratch})
            self.assert_error(worker, 2, scratch)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_worker_that_may_not_read_its_files_exits_with_2(self):
        with harness.Cluster(workers=1) as cluster:
            shard = cluster.path("shard.bin")
            secret = cluster.path("secret.bin")
            for path in shard, secret:
                with open(path, "wb") as out:
                    out.write(bytes(1000))
            os.chmod(secret, 0)
            closed = cluster.path("closed")
            os.mkdir(closed, 0o700)
            own = cluster.path("own")
            os.mkdir(own)
            os.chmod(own, 0o777)
            os.chmod(cluster.dir, 0o755)
            for paths, named in (({"shard": secret, "scratch": own}, secret),
                                 ({"shard": shard, "scratch": closed}, closed)):
                file = cluster.write_worker_file(0, paths)
                worker = cluster.start_program(
                    ["setpriv", "--reuid", "65534", "--regid", "65534",
                     "--clear-groups", harness.WORKER, "run", "--config",
                     file], "nobody")
                self.assert_error(worker, 2, named)

    def test_worker_tells_an_address_that_is_taken_from_one_that_never_works(
            self):
        with harness.Cluster(workers=1) as cluster, socket.socket() as holder:
            # An address for documentation, which no machine has.
            worker = cluster.start_worker(
                0, change={"listen": {"metrics": "192.0.2.1:7601"}})
            self.assert_error(worker, 2, "192.0.2.1:7601", "listen.metrics")
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            worker = cluster.start_worker(
                0, change={"listen": {"metrics": address}})
            self.assert_error(worker, 75, address, "listen.metrics")

    def test_start_on_a_busy_port_leaves_nothing_and_the_run_file_may_change(
            self):
        with harness.Cluster() as cluster, socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            busy = f"127.0.0.1:{holder.getsockname()[1]}"
            free = dict(cluster.settings["listen"])
            for listen in {"control": busy}, {"metrics": busy}:
                cluster.settings["listen"] = {**free, **listen}
                coordinator = cluster.start_coordinator(ready=False)
                self.assert_error(coordinator, 1, busy)
                # No line of a library's beside ours.
                self.assertTrue(harness.one_line("\n".join(
                    line for line in coordinator.log().splitlines()
                    if " warning coordinator" not in line)),
                    coordinator.log())
                self.assertFalse(os.path.exists(cluster.path("state")))
            cluster.settings["listen"] = free
            cluster.settings["outer"]["momentum"] = 0.25
            log = cluster.start_coordinator().log()
            self.assertIn("serving run=genesis", log)
            cluster.coordinator.terminate()
            # A run file that really differs: its key, and no more.
            cluster.settings["outer"]["momentum"] = 0.5
            coordinator = cluster.start_coordinator(ready=False)
            self.assert_error(coordinator, 1, "outer.momentum", "0.5", "0.25")
            self.assertNotIn("offset", coordinator.log())

    def test_silent_connections_delay_neither_livez_nor_the_stop(self):
        with harness.Cluster() as cluster:
            metrics = harness.free_port()
            cluster.settings["listen"]["metrics"] = f"127.0.0.1:{metrics}"
            cluster.start_coordinator()
            silent = [socket.create_connection(("127.0.0.1", port))
                      for port in (metrics, cluster.port) for _ in range(40)]
            try:
                start = time.monotonic()
                page = harness.get(f"http://127.0.0.1:{metrics}/livez")
                self.assertEqual(page, (200, "ok\n"))
                self.assertLess(time.monotonic() - start, 3)
                start = time.monotonic()
                self.assertEqual(cluster.coordinator.terminate(), 0)
                self.assertLess(time.monotonic() - start, 4)
            finally:
                for connection in silent:
                    connection.close()


if __name__ == "__main__":
    harness.main()
