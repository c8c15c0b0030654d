"""deploy/quickstart as a person runs it, in a directory of its own.

DILOCO_E2E_LONG=1 runs the full-length form instead: three minutes of training
on the Bible, compared with one worker alone and with synchronous training."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness

QUICKSTART = os.path.join(harness.ROOT, "deploy", "quickstart")
LONG = os.environ.get("DILOCO_E2E_LONG") == "1"
ROUND = re.compile(r"^ +(\d+)  \S+/\S+ ", re.MULTILINE)


def bible(passages):
    """Verses, a line each, a blank line between chapters."""
    lines, chapter = [], None
    for verse in harness.run(["bible", "-f", passages]).stdout.splitlines():
        tag, text = verse.split(" ", 1)
        if chapter not in (None, tag.split(":")[0]):
            lines.append("")
        chapter = tag.split(":")[0]
        lines.append(text)
    return lines


def session_members(leader):
    """Processes of that session that are not zombies: all that quickstart and
    its children have started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8",
                      errors="replace") as stat:
                name, rest = stat.read().rsplit(")", 1)
        except OSError:
            continue  # It has just ended.
        state, _, _, session = rest.split()[:4]
        if int(session) == leader and state != "Z":
            found.append(name)
    return found


class Quickstart(unittest.TestCase):

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="diloco-e2e-quickstart-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = {**os.environ, "DILOCO_BIN": harness.BIN}

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write_text(self, content, name="text.txt"):
        with open(self.path(name), "wb") as out:
            out.write(content)
        return self.path(name)

    def start(self, *arguments, log="log"):
        """In a session of its own, as in a terminal of its own."""
        with open(self.path(log), "wb") as out:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", QUICKSTART, "--dir",
                 self.path("work"), *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, env=self.env, cwd=self.dir)

    def replace_program(self, name, script):
        """Runs `script` in place of one program; $REAL is that program."""
        programs = self.path("programs")
        os.makedirs(programs)
        for program in os.listdir(harness.BIN):
            os.symlink(os.path.join(harness.BIN, program),
                       os.path.join(programs, program))
        path = os.path.join(programs, name)
        os.remove(path)
        with open(path, "w", encoding="utf-8") as out:
            out.write(f"#!/usr/bin/env bash\nREAL={harness.BIN}/{name}\n"
                      + script)
        os.chmod(path, 0o755)
        self.env["DILOCO_BIN"] = programs

    def wait(self, child, condition):
        """Until that is true of what `child` has printed."""
        end = time.monotonic() + harness.PATIENCE
        while not condition():
            self.assertIsNone(child.poll(), self.log())
            self.assertLess(time.monotonic(), end, self.log())
            time.sleep(0.05)

    def log(self, name="log"):
        with open(self.path(name), encoding="utf-8", errors="replace") as text:
            return text.read()

    def finish(self, child, log="log", timeout=harness.PATIENCE):
        self.addCleanup(self.end, child)
        child.wait(timeout)
        self.assertEqual(child.returncode, 0, self.log(log))
        return self.log(log)

    @staticmethod
    def end(child):
        """Nothing outlives a test that failed."""
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait(harness.PATIENCE)

    def only_run(self):
        runs = [name for name in os.listdir(self.path("work"))
                if not name.startswith("data-")]
        self.assertEqual(len(runs), 1, runs)
        return runs[0]

    def check_result(self, log, last_round=None):
        rounds = [int(number) for number in ROUND.findall(log)]
        self.assertEqual(rounds, list(range(
            1, (last_round or len(rounds)) + 1)))
        report = log.split("== result", 1)[1]
        ratios = re.search(
            r"fewer bytes +([\d.]+) times sent, ([\d.]+) times in total",
            report)
        self.assertGreater(float(ratios[1]), float(ratios[2]))
        self.assertRegex(report, r"utilisation +\d+\.\d% of the workers' time")
        self.assertRegex(report, r"eval loss .* bits per byte")
        sample = report.split("== a sample\n", 1)[1].split("\n== next")[0]
        self.assertGreaterEqual(len(sample.split()), 4, sample)
        with open(self.path("work", self.only_run(), "model", "config.json"),
                  encoding="utf-8") as config:
            self.assertEqual(json.load(config)["model_type"], "llama")


    def check_faults(self, log):
        """A worker and the coordinator were killed, and everybody was back."""
        lines = log.splitlines()
        told = [number for number, line in enumerate(lines) if " ! " in line]
        self.assertEqual(len(told), 4, log)
        for number, words in zip(told, (
                r"worker-1 is killed with SIGKILL",
                r"worker-1 is started again",
                r"coordinator is killed with SIGKILL at version \d+, digest ",
                r"back after \d+\.\d s with (same version, same digest|version)"
        )):
            self.assertRegex(lines[number], words)
        without = [line for line in lines[told[0]:told[1]]
                   if re.match(r" +\d+  \S+/\S+ +1 ", line)]
        self.assertEqual(len(without), 1, log)
        self.assertRegex("\n".join(lines[told[1]:]),
                         r"(?m)^ +\d+  \S+/\S+ +2 ")
        worker = self.log(os.path.join("work", self.only_run(),
                                       "worker-1.log"))
        self.assertIn("state=checkpoint", worker)
        # Written as they came: also those before the coordinator's restart
        # have their traffic, but for the round that was open then.
        rows = [json.loads(row) for row in self.log(os.path.join(
            "work", self.only_run(), "rounds.json")).splitlines()]
        self.assertEqual(len(rows), len(ROUND.findall(log)))
        cut = [row for row in rows if row["bytes_up"] is None]
        self.assertLessEqual(len(cut), 1)
        for row in rows:
            self.assertGreater(row["eval_loss"], 0)


@unittest.skipIf(LONG, "only in the short form")
class Short(Quickstart):

    def test_own_text_and_two_faults_end_with_a_report_and_a_model(self):
        # As other systems write text: CRLF, and no newline at the end.
        text = self.write_text("\r\n".join(bible("Ge1:1-Ex40:38")).encode(),
                               "My text!.txt")
        log = self.finish(self.start("--rounds", "6", "--text", text))
        self.check_result(log)
        self.check_faults(log)
        # A sentence under the first round; its text goes on from the text's.
        self.assertRegex(log, r'(?m)^ +1  .*\n +"In the beginning God')
        # Nothing is left over, and nothing ran that was started here.
        self.assertNotIn("partial", " ".join(os.listdir(self.path("work"))))
        # Called so that one knows it again.
        self.assertEqual(self.only_run(), "my-text-tiny-1")
        logs = self.log(os.path.join("work", "my-text-tiny-1",
                                     "coordinator.log"))
        self.assertNotIn(" warning ", logs)

    def test_each_preset_runs_and_says_what_it_has_instead(self):
        text = self.write_text("\n".join(bible("Ge1:1-Ex40:38")).encode())
        for preset, words in (("fedavg", "sync.interval 25 instead of 100"),
                              ("streaming", "outer.lr 0.7 instead of 0.4")):
            with self.subTest(preset):
                log = self.finish(self.start(
                    "--rounds", "2", "--no-faults", "--text", text, "--sync",
                    preset, log=preset), log=preset)
                self.assertIn(f"preset {preset} (", log)
                self.assertIn(words, log)

    def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(self):
        # One document a line: there is no blank line in it.
        text = self.write_text(
            "\n".join(filter(None, bible("Ge1:1-Ex40:38"))).encode())
        child = self.start("--rounds", "4", "--workers", "3", "--text",
                           "text.txt")
        self.addCleanup(self.end, child)
        self.wait(child, lambda: ROUND.search(self.log()))
        self.assertGreater(len(session_members(child.pid)), 4)
        os.killpg(child.pid, signal.SIGINT)
        self.assertEqual(child.wait(harness.PATIENCE), 130, self.log())
        self.assertEqual(session_members(child.pid), [])
        how = re.search(r"Go on where it stopped: deploy/quickstart (.*)",
                        self.log())
        self.assertIn("--resume " + self.only_run(), how[1])

        again = subprocess.Popen(
            ["bash", "-c", f"exec '{QUICKSTART}' {how[1]} >again 2>&1"],
            stdin=subprocess.DEVNULL, cwd=self.dir, env=self.env,
            start_new_session=True)
        log = self.finish(again, "again")
        # All rounds are told again, those before with what is durable of them.
        self.check_result(log, last_round=4)
        self.assertRegex(log, r"(?m)^ +1 .* - +- +-\n +2 ")
        rounds = [json.loads(line) for line in self.log(os.path.join(
            "work", self.only_run(), "rounds.json")).splitlines()]
        self.assertEqual([row["round"] for row in rounds], [1, 2, 3, 4])
        for row in rounds:
            self.assertGreater(row["eval_loss"], 0)
            self.assertGreater(row["bits_per_byte"], 0)
        # Of the round that was open over the restart they are not known.
        unknown = [row for row in rounds if row["seconds"] == 0]
        self.assertLessEqual(len(unknown), 1)
        self.assertIsNone(rounds[0]["bytes_up"])
        self.assertGreater(rounds[3]["bytes_up"], 0)
        # Nothing of the workers' work is forgotten.
        report = json.loads(self.log(os.path.join(
            "work", self.only_run(), "report.json")))
        self.assertEqual(report["workers"], 3)
        self.assertEqual(report["inner_steps"], 3 * 4 * 10)
        payload = 2 * report["parameters"] * 4 * 3
        self.assertGreater(report["bytes_sent"], payload)
        for number in range(3):
            worker = self.log(os.path.join(
                "work", self.only_run(), f"worker-{number}.log"))
            self.assertIn("state=checkpoint", worker)
        self.assertTrue(os.path.exists(text))

    def test_ctrl_c_before_there_is_a_run_keeps_the_flags(self):
        text = self.write_text(b"In the beginning\n" * 20000, "a b.txt")
        self.replace_program("diloco-worker", "echo prepares; sleep 600\n")
        child = self.start("--rounds", "4", "--text", "a b.txt")
        self.addCleanup(self.end, child)
        self.wait(child, lambda: "prepares" in self.log())
        os.killpg(child.pid, signal.SIGINT)
        self.assertEqual(child.wait(harness.PATIENCE), 130, self.log())
        self.assertEqual(session_members(child.pid), [])
        self.assertIn(f"deploy/quickstart --dir {self.path('work')} --rounds 4"
                      " --text a\\ b.txt\n", self.log())
        self.assertEqual(os.listdir(self.path("work")), [])
        self.assertTrue(os.path.exists(text))

    def test_another_run_that_takes_the_port_is_not_followed(self):
        """The first coordinator finds its port taken in the last moment."""
        text = self.write_text("\n".join(bible("Ge1:1-Ex40:38")).encode())
        with harness.Cluster() as other:
            other.write_run_file()
            self.replace_program("diloco-coordinator", f"""
if [[ ! -e {self.path('taken')} ]]; then
  port=$(sed -nE 's/.*control: [^:]*:([0-9]+),.*/\\1/p' "$2")
  echo "$port" >{self.path('taken')}
  sed -i "s/{other.port}/$port/" {other.path('run.yaml')}
  cd {other.dir}
  $REAL --config run.yaml >other.log 2>&1 &
  until {harness.CTL} --coordinator 127.0.0.1:"$port" status; do sleep 0.1; done
fi
cd {harness.ROOT}
exec $REAL "$@"
""")
            log = self.finish(self.start("--rounds", "2", "--text", text))
            self.check_result(log, last_round=2)
            port = self.log("taken").strip()
            self.assertNotIn(f"== coordinator on 127.0.0.1:{port},", log)
            self.assertNotIn("worker-0", self.log(other.path("other.log")))

    def test_the_end_of_the_coordinator_is_told_at_once_with_its_last_words(self):
        text = self.write_text("\n".join(bible("Ge1:1-Ex40:38")).encode())
        for script, words in (
                ('echo "the disk is on fire"; exit 1', "did not start"),
                (f"""$REAL "$@" &
until grep -q " joined from " {self.path("work")}/*/coordinator.log
do sleep 0.1; done
kill -9 $!; wait $!; echo "the disk is on fire" """, "has ended")):
            with self.subTest(words):
                shutil.rmtree(self.path("programs"), ignore_errors=True)
                self.replace_program("diloco-coordinator", script + "\n")
                child = self.start("--rounds", "2000", "--text", text)
                self.addCleanup(self.end, child)
                self.assertEqual(child.wait(harness.PATIENCE), 1, self.log())
                self.assertEqual(
                    self.log().splitlines()[-1],
                    f"quickstart: the coordinator {words}: the disk is on fire")
                self.assertEqual(session_members(child.pid), [])

    def test_wrong_arguments_are_one_line_and_code_2(self):
        small = self.write_text(b"In the beginning\n", "small.txt")
        latin = self.write_text(b"caf\xe9\n" * 60000, "latin.txt")
        os.makedirs(self.path("work", "kjv-tiny-1"))
        with open(self.path("work", "kjv-tiny-1", "settings"), "w",
                  encoding="utf-8") as out:
            out.write("workers=2\n")
        for arguments, words in (
                (["--epochs", "3"], ["--epochs"]),
                (["train"], ["train"]),
                (["--rounds"], ["--rounds", "value"]),
                (["--rounds", ""], ["--rounds", "value"]),
                (["--rounds", "0"], ["--rounds 0", "from 1"]),
                (["--rounds", "-1"], ["--rounds -1", "from 1"]),
                (["--rounds", "2.5"], ["--rounds 2.5", "from 1"]),
                (["--rounds", "2", "--minutes", "1"],
                 ["--rounds", "--minutes"]),
                (["--workers", "two"], ["--workers two", "from 1"]),
                (["--workers", "999999"], ["--workers 999999", "64"]),
                (["--model", "huge"], ["--model huge", "tiny", "small"]),
                (["--sync", "gossip"], ["--sync gossip", "streaming"]),
                (["--text", "none.txt"], ["none.txt", "no readable file"]),
                (["--text", self.dir], [self.dir, "no readable file"]),
                (["--text", small], [small, "17 bytes", "200000"]),
                (["--text", latin], [latin, "UTF-8", "position 3"]),
                (["--resume", "other"], ["other", "no such run"]),
                (["--resume", "../elsewhere/kjv-tiny-1"], ["no such run"]),
                (["--resume", "kjv-tiny-1", "--workers", "3"],
                 ["--workers", "--resume"])):
            with self.subTest(" ".join(arguments)):
                done = harness.run(
                    [QUICKSTART, "--dir", self.path("work"), *arguments],
                    env=self.env, cwd=self.dir)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertTrue(harness.one_line(done.stderr), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
        self.assertEqual(os.listdir(self.path("work")), ["kjv-tiny-1"])


@unittest.skipUnless(LONG, "set DILOCO_E2E_LONG=1")
class Long(Quickstart):

    def test_three_minutes_beat_one_worker_alone(self):
        log = self.finish(self.start("--minutes", "3", "--compare"),
                          timeout=1500)
        bits = float(re.search(r"([\d.]+) bits per byte", log)[1])
        loss = re.search(r"eval loss +([\d.]+) DiLoCo, 2 workers\n"
                         r" +([\d.]+) one worker alone.*\n"
                         r" +([\d.]+) synchronous", log)
        diloco, alone, synchronous = (float(value) for value in loss.groups())
        self.check_result(log, last_round=len(ROUND.findall(log)))
        self.assertLessEqual(bits, 1.45)
        self.assertLessEqual(diloco, 0.97 * alone)
        self.assertLess(synchronous, diloco)
        with open(self.path("work", self.only_run(), "loss.svg"),
                  encoding="utf-8") as picture:
            svg = picture.read()
        self.assertEqual(svg.count("<polyline"), 3)
        for value in loss.groups():
            self.assertIn(value[:-1], svg)


if __name__ == "__main__":
    harness.main()
