"""README's example of two machines, as it is written there: its commands in a
shell, its YAML in files, each machine a directory with the files it is said to
need. Only the address, and what makes it long, are replaced."""
import os
import re
import shutil
import unittest

import harness

README = os.path.join(harness.ROOT, "README.md")
SITES = ("site-a", "site-b")


def blocks(language, heading):
    """The fenced blocks of one section."""
    with open(README, encoding="utf-8") as text:
        section = text.read().split(f"\n## {heading}\n", 1)[1]
    return re.findall(rf"```{language}\n(.*?)```", section.split("\n## ")[0],
                      re.DOTALL)


class Readme(unittest.TestCase):

    def replaced(self, text, changes):
        for old, new in changes.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        return text

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    def machine(self, cluster, name, *files):
        for file in ("dataset.json", *files):
            target = cluster.path(name, "data", file)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(cluster.path("data", file), target)

    def shell(self, cluster, line):
        done = harness.run(
            ["bash", "-ec", line], cwd=cluster.dir,
            env={**os.environ, "PATH": f"{harness.BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, line + "\n" + done.stderr)
        return done.stdout

    def test_two_machines_as_written(self):
        prepare, use = blocks("sh", "Two machines")
        run, worker = blocks("yaml", "Two machines")
        with harness.Cluster() as cluster:
            verses = harness.run(["bible", "-f", "Ge1:1-Ex40:38"]).stdout
            self.write(cluster.path("corpus.txt"), re.sub(
                r"^\S+ ", "", verses, flags=re.M).replace(".\n", ".\n\n"))
            self.shell(cluster, prepare)
            self.machine(cluster, "coordinator", "tokenizer.model",
                         "valid.bin")
            self.machine(cluster, SITES[0], "train-0.bin")
            self.machine(cluster, SITES[1], "train-1.bin")

            address = f"127.0.0.1:{cluster.port}"
            # Two rounds of one step.
            self.write(cluster.path("coordinator", "run.yaml"), self.replaced(
                run, {"0.0.0.0:7600": address + ", metrics: none",
                      "tokens: 20M": "tokens: 4096", "interval: 25":
                      "interval: 1", "tokens: 32k": "tokens: 1k"}))
            self.check_run_file(cluster.path("coordinator", "run.yaml"))
            cluster.coordinator = cluster.start_program(
                [harness.COORDINATOR, "--config",
                 cluster.path("coordinator", "run.yaml")], "coordinator")
            for number, name in enumerate(SITES):
                self.write(cluster.path(name, "worker.yaml"), self.replaced(
                    worker, {"10.0.0.5:7600": address, "site-a": name,
                             "train-0.bin ": f"train-{number}.bin "}))
                cluster.workers[number] = cluster.start_program(
                    [harness.WORKER, "run", "--config",
                     cluster.path(name, "worker.yaml")], name)
            cluster.finish()

            tools = [line for line in use.splitlines() if "dilococtl" in line]
            self.assertEqual(len(tools), 2)
            printed = [self.shell(cluster, self.replaced(
                line.replace("--rounds", "--rounds --from-start"),
                {"10.0.0.5:7600": address})) for line in tools]
            # Round, tokens, updates, losses, and bits per byte: a number.
            self.assertRegex(printed[0],
                             r"(?m)^ +2  \S+ +2 +[\d.]+ +[\d.]+ +[\d.]+ ")
            self.assertEqual(
                sorted(os.listdir(cluster.path("model"))),
                ["README.md", "config.json", "generation_config.json",
                 "model.safetensors", "tokenizer.json", "tokenizer.model",
                 "tokenizer_config.json"])

    def check_run_file(self, path):
        done = harness.run([harness.CTL, "config", "check", path])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_annotated_examples_are_accepted(self):
        examples = os.path.join(harness.ROOT, "deploy", "examples")
        self.check_run_file(os.path.join(examples, "run.yaml"))
        with harness.Cluster() as cluster:
            worker = cluster.start_program(
                [harness.WORKER, "run", "--config",
                 os.path.join(examples, "worker.yaml")], "worker")
            # The file is good; what it names is not here.
            self.assertEqual(worker.wait(), 2)
            self.assertTrue(harness.one_line(worker.log()), worker.log())
            self.assertIn("no such token file", worker.log())


if __name__ == "__main__":
    harness.main()
