"""Directories of the real programs that are damaged, of another run, or full:
one line that says what, where and what to do, and the documented exit code."""
import hashlib
import os
import signal
import shutil
import unittest

import bad_input
import harness

LONG = 100000  # More rounds than any of these tests waits for.

WAITS = "the start waits for disk space"


class BadState(bad_input.BadInput):

    def stopped_run(self, cluster, version):
        """Trains to `version` and stops everything."""
        cluster.start_all()
        cluster.wait_version(version)
        self.assertEqual(cluster.coordinator.terminate(), 0)
        for worker in cluster.workers.values():
            self.assertEqual(worker.terminate(), 0)
        cluster.workers.clear()

    @staticmethod
    def files_of(directory):
        """path -> digest of all files but LOCK, which names the last owner."""
        found = {}
        for folder, _, names in os.walk(directory):
            for name in set(names) - {"LOCK"}:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).hexdigest()
        return found

    # --- The coordinator's state directory. ---

    def test_C7_4_edited_run_file_is_refused_by_the_key(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 2)
            before = self.files_of(cluster.path("state"))
            for section, key, value in (("train", "tokens", 4096),
                                        ("model", "layers", 3),
                                        ("outer", "lr", 0.6),
                                        ("run", "seed", 9)):
                with self.subTest(f"{section}.{key}"):
                    was = cluster.settings[section].get(key)
                    cluster.settings[section][key] = value
                    self.assert_error(
                        cluster.start_coordinator(ready=False), 1,
                        cluster.path("state"), f"{section}.{key}", str(value))
                    cluster.settings[section].pop(key)
                    if was is not None:
                        cluster.settings[section][key] = was
            # Refused untouched, and good for what it was made with.
            self.assertEqual(self.files_of(cluster.path("state")), before)
            cluster.start_all()
            cluster.wait_version(3)

    def test_C7_4_state_directory_of_another_run_is_refused_untouched(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 1)
            before = self.files_of(cluster.path("state"))
            cluster.settings["run"]["name"] = "exodus"
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              cluster.path("state"), "genesis", "exodus",
                              "state.dir")
            self.assertEqual(self.files_of(cluster.path("state")), before)

    def test_C7_2_damage_inside_the_journal_stops_the_start(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 3)
            state = cluster.path("state")
            name = next(name for name in sorted(os.listdir(state))
                        if name.startswith("journal"))
            path = os.path.join(state, name)
            middle = os.path.getsize(path) // 2
            with open(path, "r+b") as journal:
                journal.seek(middle)
                byte = journal.read(1)[0]
                journal.seek(middle)
                journal.write(bytes([byte ^ 1]))
            before = self.files_of(state)
            self.assert_error(cluster.start_coordinator(ready=False), 1, path,
                              "offset", "record", "backup")
            self.assertEqual(self.files_of(state), before)

    def test_lost_journal_is_not_taken_for_a_new_run(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 2)
            for name in os.listdir(cluster.path("state")):
                if name.startswith("journal"):
                    os.remove(cluster.path("state", name))
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              cluster.path("state"), "journal", "backup")

    def test_damaged_image_is_made_up_for_by_an_older_one(self):
        rounds = 10
        undisturbed = harness.undisturbed_digest(rounds=rounds, workers=1)
        with harness.Cluster(workers=1, rounds=rounds) as cluster:
            self.stopped_run(cluster, 9)
            images = self.images(cluster)
            self.damage(images[-1])
            cluster.start_all()
            self.assertEqual(cluster.finish(), undisturbed)
            self.assertIn(os.path.basename(images[-1]),
                          cluster.coordinator.log())

    def test_state_without_a_good_image_is_named_with_its_files(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 6)
            for image in self.images(cluster):
                self.damage(image)
            self.assert_error(cluster.start_coordinator(ready=False), 1,
                              cluster.path("state"), "image", "backup")

    @staticmethod
    def images(cluster):
        """Images of theta, oldest first."""
        folder = cluster.path("state", "images")
        return [os.path.join(folder, name)
                for name in sorted(os.listdir(folder)) if "theta" in name]

    @staticmethod
    def damage(path):
        with open(path, "r+b") as image:
            image.seek(1000)
            image.write(b"damaged")

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small disk needs root")
    def start_that_waits(self, cluster):
        """Starts until the record of a start does not fit into what is left of
        the journal's last page."""
        for _ in range(60):
            process = cluster.start_coordinator(ready=False)
            cluster.wait(lambda: WAITS in process.log() or
                         cluster.try_status() is not None,
                         "a start that serves or waits")
            if WAITS in process.log():
                return process
            process.signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 0)
        return self.fail("60 starts found room on a full disk")

    def test_C7_1_start_on_a_full_disk_waits_and_loses_nothing(self):
        rounds = 8
        undisturbed = harness.undisturbed_digest(rounds=rounds, workers=1)
        with harness.Cluster(workers=1, rounds=rounds) as cluster, \
                harness.SmallDisk(cluster.path("disk"), "6m") as disk:
            http = f"127.0.0.1:{harness.free_port()}"
            cluster.settings["listen"]["metrics"] = http
            cluster.settings["state"]["dir"] = os.path.join(disk.path, "state")
            self.stopped_run(cluster, 2)
            disk.fill()
            waiting = self.start_that_waits(cluster)
            code, reason = harness.get(f"http://{http}/readyz")
            self.assertEqual(code, 503)
            for part in ("waits for disk space", disk.path, "No space left"):
                self.assertIn(part, reason)
            # A stop ends it as any other.
            waiting.signal(signal.SIGTERM)
            self.assertEqual(waiting.wait(), 0)
            self.start_that_waits(cluster)
            disk.empty()
            cluster.wait(lambda: cluster.try_status() is not None,
                         "the coordinator answers")
            cluster.start_worker(0)
            self.assertEqual(cluster.finish(), undisturbed)

    # --- A worker's scratch directory. ---

    def test_scratch_of_another_run_is_refused_with_what_to_do(self):
        with harness.Cluster(workers=1, rounds=LONG) as first, \
                harness.Cluster(workers=1, rounds=LONG) as second:
            self.stopped_run(first, 1)
            shutil.copytree(first.path("scratch-0"), second.path("scratch-0"))
            second.start_coordinator()
            self.assert_error(second.start_worker(0), 4, "another run",
                              "scratch")
            second.start_worker(0, change={"scratch": "fresh"})
            second.wait_version(1)

    def test_scratch_of_another_worker_is_refused_by_both_names(self):
        with harness.Cluster(workers=1, rounds=LONG) as cluster:
            self.stopped_run(cluster, 1)
            cluster.start_coordinator()
            worker = cluster.start_worker(
                1, change={"scratch": cluster.path("scratch-0")})
            self.assert_error(worker, 2, cluster.path("scratch-0"), "worker-0",
                              "worker-1")

    def test_damaged_outgoing_update_is_encoded_again(self):
        # Windows so long that the coordinator dies in the midst of one.
        change = {"sync": {"interval": 100},
                  "train": {"tokens": 3 * 100 * harness.BATCH_TOKENS}}
        undisturbed = harness.undisturbed_digest(workers=1, change=change)
        for what in ("damaged", "missing"):
            with self.subTest(what), \
                    harness.Cluster(workers=1, change=change) as cluster:
                cluster.start_all()
                # Of theta(0), then of the first change: round 2 has begun.
                worker = cluster.workers[0]
                cluster.wait(lambda: worker.log().count(" downloaded ") == 2,
                             "worker-0 holds version 1", pause=0.01)
                update = cluster.path("scratch-0", "update-0.part")
                first = os.stat(update).st_mtime_ns
                cluster.coordinator.kill()
                cluster.coordinator = None
                cluster.wait(lambda: os.stat(update).st_mtime_ns > first,
                             "the next update lies on the disk")
                self.assertEqual(cluster.workers[0].terminate(), 0)
                if what == "missing":
                    os.remove(update)
                else:
                    with open(update, "r+b") as file:
                        file.seek(5000)
                        file.write(b"damage")
                cluster.start_all()
                cluster.wait_log(cluster.workers[0], "is encoded again")
                self.assertIn(update, cluster.workers[0].log())
                self.assertEqual(cluster.finish(), undisturbed)

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small disk needs root")
    def test_full_scratch_ends_the_worker_with_75_and_the_run_waits(self):
        rounds = 8
        undisturbed = harness.undisturbed_digest(rounds=rounds, workers=1)
        with harness.Cluster(workers=1, rounds=rounds) as cluster, \
                harness.SmallDisk(cluster.path("disk"), "3m") as disk:
            scratch = os.path.join(disk.path, "scratch")
            cluster.start_coordinator()
            worker = cluster.start_worker(0, change={"scratch": scratch})
            cluster.wait_version(2)
            disk.fill()
            # The checkpoint beside the window may fail first.
            self.assert_error(worker, 75, scratch, "No space left", errors=2)
            self.assertIsNone(cluster.coordinator.code())
            disk.empty()
            cluster.start_worker(0, change={"scratch": scratch})
            self.assertEqual(cluster.finish(), undisturbed)


if __name__ == "__main__":
    harness.main()
