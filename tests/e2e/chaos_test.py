"""Real processes, real text, and everything that can be done to them: SIGKILL
and SIGSTOP of coordinator and workers, a full disk, lines that are cut, stand
still or are slow.

The plan of faults is drawn up front from a seed and printed.
DILOCO_E2E_FAULTS: how many (default 10); DILOCO_E2E_SEED: which plan."""
import json
import os
import random
import signal
import sys
import time
import unittest

import harness
import journal
import proxy

FAULTS = int(os.environ.get("DILOCO_E2E_FAULTS", "10"))
SEED = int(os.environ.get("DILOCO_E2E_SEED", "1"))
WORKERS = 3
LONG = 100000  # Rounds: a run ends when it is told to.


def say(text):
    print(text, file=sys.stderr, flush=True)


class Fault:
    """One line of the plan. Moments and lengths are drawn, not waits for
    something to happen: any moment will do."""

    def __init__(self, draw, number, kinds):
        # Each kind comes up once before any comes up again.
        self.kind = kinds[number % len(kinds)]
        self.worker = draw.randrange(WORKERS)
        self.after_versions = draw.randint(1, 3)
        self.moment = draw.uniform(0, 0.2)
        self.seconds = draw.uniform(0.2, 2.0)

    def __str__(self):
        return (f"{self.kind} worker={self.worker} after={self.after_versions}"
                f" versions + {self.moment:.3f} s for {self.seconds:.1f} s")


def draw_plan(seed, faults, kinds):
    draw = random.Random(seed)
    kinds = list(kinds)
    draw.shuffle(kinds)
    plan = [Fault(draw, number, kinds) for number in range(faults)]
    for number, fault in enumerate(plan):
        say(f"plan seed={seed} {number + 1}: {fault}")
    return plan


class Site:
    """A run whose state lies on a small disk and whose workers sit behind a
    line each; every fault has a method of its name."""

    def __init__(self, rounds, change):
        self.http = f"127.0.0.1:{harness.free_port()}"
        self.cluster = harness.Cluster(
            workers=WORKERS, rounds=rounds,
            change=harness.merged({
                "listen": {"metrics": self.http},
                "state": {"dir": "disk/state", "image_every": 4},
            }, change))
        self.disk = harness.SmallDisk(self.cluster.path("disk"), "24m")
        self.state = self.cluster.path("disk", "state")
        self.lines = [proxy.Proxy(self.cluster.port) for _ in range(WORKERS)]

    def __enter__(self):
        self.cluster.__enter__()
        self.disk.__enter__()
        for line in self.lines:
            line.__enter__()
        return self

    def __exit__(self, *error):
        self.cluster.__exit__(*error)
        for line in self.lines:
            line.__exit__(*error)
        self.disk.__exit__(*error)

    def start(self):
        self.cluster.start_coordinator()
        for number in range(WORKERS):
            self.start_worker(number)

    def start_worker(self, number):
        self.cluster.start_worker(
            number, change={"coordinator": self.lines[number].address})

    def version(self):
        status = self.cluster.try_status() or {"rounds": [{}]}
        return int(status["rounds"][0].get("version", 0))

    # --- Faults. Each leaves everything mended. ---

    def kill_coordinator(self, _):
        self.cluster.coordinator.kill()
        self.cluster.start_coordinator()

    def kill_coordinator_and_worker(self, fault):
        self.cluster.workers[fault.worker].kill()
        self.kill_coordinator(fault)
        self.start_worker(fault.worker)

    def kill_worker(self, fault):
        self.cluster.workers[fault.worker].kill()
        self.start_worker(fault.worker)

    def stop_coordinator(self, fault):
        self.freeze(self.cluster.coordinator, fault.seconds)

    def stop_worker(self, fault):
        self.freeze(self.cluster.workers[fault.worker], fault.seconds)

    def cut_line(self, fault):
        line = self.lines[fault.worker]
        line.block()
        time.sleep(fault.seconds)
        line.unblock()

    def stall_line(self, fault):
        line = self.lines[fault.worker]
        line.do("stall")
        time.sleep(fault.seconds)
        line.do("resume")

    def delay_line(self, fault):
        """Each way, as to the other side of the world."""
        line = self.lines[fault.worker]
        line.set("delay-ms", 150)
        time.sleep(2 * fault.seconds)
        line.set("delay-ms", 0)

    def fill_disk(self, fault):
        self.disk.fill()
        time.sleep(fault.seconds)
        self.disk.empty()

    def kill_coordinator_on_a_full_disk(self, fault):
        """It may not even start there; with space it does."""
        self.disk.fill()
        self.cluster.coordinator.kill()
        refused = self.cluster.start_coordinator(ready=False)
        time.sleep(fault.seconds)
        self.disk.empty()
        refused.kill()
        self.cluster.start_coordinator()

    @staticmethod
    def freeze(process, seconds):
        process.signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.signal(signal.SIGCONT)

    def suffer(self, fault):
        wanted = self.version() + fault.after_versions
        self.cluster.wait_version(wanted)
        time.sleep(fault.moment)
        say(f"version {self.version()}: {fault.kind}")
        getattr(self, fault.kind)(fault)


@unittest.skipUnless(os.geteuid() == 0, "mounting a small disk needs root")
class Chaos(unittest.TestCase):

    def test_whatever_breaks_and_is_mended_ends_with_the_same_theta(self):
        plan = draw_plan(SEED, FAULTS, (
            "kill_coordinator", "kill_worker", "kill_coordinator_and_worker",
            "stop_coordinator", "stop_worker", "cut_line", "stall_line",
            "delay_line", "fill_disk", "kill_coordinator_on_a_full_disk"))
        with Site(LONG, {}) as site:
            site.start()
            for fault in plan:
                site.suffer(fault)
            site.cluster.ctl("stop")
            digest = site.cluster.finish()
            version = site.version()
            journal.check(self, site.cluster)
            for closed in journal.closed_rounds(site.cluster):
                self.assertEqual(len(closed["members"]), WORKERS)
            self.verify(site)
        with harness.Cluster(workers=WORKERS, rounds=LONG) as undisturbed:
            undisturbed.start_coordinator()
            undisturbed.ctl("stop", "--after-round", str(version))
            for number in range(WORKERS):
                undisturbed.start_worker(number)
            self.assertEqual(undisturbed.finish(), digest)

    def test_rounds_go_on_without_those_that_are_away_too_long(self):
        # Away longer than lease and deadline, all but one at once: whoever is
        # there goes on, and nothing accepted is lost or counted twice.
        draw = random.Random(SEED)
        with Site(LONG, {"sync": {"deadline": "3s"},
                           "join": {"lease": "5s"}}) as site:
            site.start()
            for turn in range(max(1, FAULTS // 5)):
                site.cluster.wait_version(site.version() + 2)
                present = draw.randrange(WORKERS)
                away = [n for n in range(WORKERS) if n != present]
                say(f"version {site.version()}: only worker {present} is left")
                site.cluster.workers[away[0]].kill()
                site.cluster.workers[away[1]].signal(signal.SIGSTOP)
                if turn % 2 == 0:
                    site.kill_coordinator(None)
                self.rounds_of(site, {f"worker-{present}"})
                site.cluster.workers[away[1]].signal(signal.SIGCONT)
                site.start_worker(away[0])
                self.rounds_of(site, {f"worker-{n}" for n in range(WORKERS)})
            site.cluster.ctl("stop")
            site.cluster.finish()
            journal.check(self, site.cluster)
            self.verify(site)

    def rounds_of(self, site, names):
        """Waits for a round that exactly these have been folded in."""
        start = site.version()

        def folded():
            done = site.cluster.ctl("history", site.state, "--json")
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            return any({member["worker"] for member in row["members"]} == names
                       for row in rows if row.get("version", 0) > start)
        site.cluster.wait(folded, f"a round of {sorted(names)}", pause=0.2)

    def verify(self, site):
        """The journal replays to the published digests."""
        site.cluster.coordinator.terminate()
        done = site.cluster.ctl("verify", site.state)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
