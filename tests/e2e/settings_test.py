"""Settings that change in mid-run, with real processes: dilococtl set and decay,
restarts, a finished run that goes on, an edited run file."""
import unittest

import harness


class Settings(unittest.TestCase):

    def ok(self, cluster, *arguments):
        done = cluster.ctl(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, cluster, words, *arguments):
        done = cluster.ctl(*arguments)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(words, done.stderr)
        self.assertTrue(harness.one_line(done.stderr), done.stderr)

    def rounds(self, events):
        """Steps of each round's leases, by round."""
        return {int(event["record"]["round_opened"]["round"]):
                event["record"]["round_opened"]["leases"][0]["steps"]
                for event in events if "round_opened" in event["record"]}

    def test_set_outlasts_a_kill_and_makes_a_finished_run_go_on(self):
        with harness.Cluster(rounds=120) as cluster:
            tokens = cluster.settings["train"]["tokens"]
            per_step = harness.BATCH_TOKENS * cluster.count
            cluster.start_all()
            cluster.wait_version(1)
            self.refused(cluster, "did you mean train.tokens?",
                         "set", "train.token", "5M")
            self.refused(cluster, "model.layers is fixed",
                         "set", "model.layers", "3")
            self.refused(cluster, "sync.interval: got 0",
                         "set", "sync.interval", "0")
            self.refused(cluster, f"train.tokens is {tokens} already",
                         "set", "train.tokens", str(tokens))
            self.assertIn("train.tokens", self.ok(cluster, "set", "--list"))
            longer = tokens + 12 * per_step
            said = self.ok(cluster, "set", "train.tokens", str(longer),
                           "--reason", "more data")
            self.assertIn(f"train.tokens {tokens} -> {longer}", said)
            interval = harness.INTERVAL + 3
            self.ok(cluster, "set", "sync.interval", str(interval))
            self.ok(cluster, "set", "train.optimizer.lr", "1.0e-3")
            cluster.coordinator.kill()
            cluster.start_coordinator()
            self.assertEqual(int(cluster.status()["train_tokens"]), longer)
            cluster.finish()
            self.assertEqual(int(cluster.status()["folded_tokens"]), longer)
            self.assertIn("settings  revision 3", self.ok(cluster, "status"))
            events = cluster.events()
            changes = [event["record"]["settings_changed"] for event in events
                       if "settings_changed" in event["record"]]
            self.assertEqual([int(change["revision"]) for change in changes],
                             [1, 2, 3])
            self.assertEqual(changes[0]["reason"], "more data")
            self.assertIn("@", changes[0]["by"])
            steps = self.rounds(events)
            begin = int(changes[1]["from_round"])
            for number, count in steps.items():
                if number < begin:
                    self.assertEqual(count, harness.INTERVAL)
                elif number < max(steps):
                    self.assertEqual(count, interval)
            for worker in cluster.workers.values():
                self.assertIn("takes over changed settings", worker.log())

            # It has finished and goes on.
            longest = longer + 2 * interval * per_step
            said = self.ok(cluster, "set", "train.tokens", str(longest))
            self.assertIn("the run goes on", said)
            for number in range(cluster.count):
                cluster.start_worker(number)
            cluster.finish()
            # Up to a step more: the workers come back one after the other.
            folded = int(cluster.status()["folded_tokens"])
            self.assertTrue(longest <= folded < longest + per_step, folded)
            state = cluster.path("state")
            cluster.coordinator.terminate()
            self.ok(cluster, "verify", state)
            self.assertIn(f"train.tokens {tokens} -> {longer}: more data",
                          self.ok(cluster, "history", state))

    def test_an_edited_run_file_is_refused_until_it_is_accepted(self):
        with harness.Cluster(rounds=60) as cluster:
            tokens = cluster.settings["train"]["tokens"]
            cluster.start_all()
            cluster.wait_version(1)
            cluster.coordinator.kill()
            cluster.settings["train"]["tokens"] = tokens // 2
            edited = cluster.start_coordinator(ready=False)
            self.assertEqual(edited.wait(), 1)
            self.assertIn(f"train.tokens is {tokens // 2} in the run file, "
                          f"{tokens} in the state directory", edited.log())
            self.assertIn("--accept", edited.log())
            cluster.settings["model"]["layers"] = 3
            fixed = cluster.start_coordinator(ready=False, flags=("--accept",))
            self.assertEqual(fixed.wait(), 1)
            self.assertIn("model.layers is 3 in the run file, 2 in the state "
                          "directory", fixed.log())
            cluster.settings["model"]["layers"] = 2
            cluster.start_coordinator(flags=("--accept",))
            self.assertEqual(int(cluster.status()["settings_revision"]), 1)
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.finish()
            self.assertEqual(int(cluster.status()["folded_tokens"]),
                             tokens // 2)

    def test_decay_begins_now_and_ends_the_run(self):
        with harness.Cluster(rounds=400) as cluster:
            cluster.start_all()
            cluster.wait_version(2)
            tokens = 4 * harness.INTERVAL * harness.BATCH_TOKENS * cluster.count
            said = self.ok(cluster, "decay", "--tokens", str(tokens))
            self.assertIn("train.schedule.decay_share", said)
            cluster.finish()
            events = cluster.events()
            change = [event["record"]["settings_changed"] for event in events
                      if "settings_changed" in event["record"]][0]
            begin = int(change["from_round"])
            rounds = self.rounds(events)
            self.assertEqual(max(rounds), begin + 3)
            # From the peak to min_lr: the last step has a tenth of it.
            for worker in cluster.workers.values():
                self.assertIn("lr 3.00e-04", worker.log())


if __name__ == "__main__":
    harness.main()
