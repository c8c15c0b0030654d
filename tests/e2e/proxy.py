"""The line between a worker and the coordinator, under the test's control: the
program diloco-test-proxy.

    with proxy.Proxy(cluster.port, rate=1250000) as line:
        cluster.start_worker(0, change={"coordinator": line.address})
        line.set("cut-every", 1 << 20)  # Bytes a connection may carry.
        line.do("cut")                  # All connections, once.
        line.block()                    # As without a cable.
        line.unblock()
"""
import os
import subprocess

import harness

PROGRAM = os.path.join(harness.BIN, "diloco-test-proxy")


class Proxy:

    def __init__(self, port, **settings):
        """`settings` are its flags: delay_ms, rate, queue, cut_every,
        forget_idle_ms."""
        flags = [word for name, value in settings.items()
                 for word in ("--" + name.replace("_", "-"), str(value))]
        self._child = subprocess.Popen(
            [PROGRAM, "--to", str(port), *flags], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.address = f"127.0.0.1:{int(self._child.stdout.readline())}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.communicate(timeout=harness.PATIENCE)

    def do(self, command):
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise AssertionError(f"{command}: {answer}")
        return answer

    def set(self, name, value):
        self.do(f"{name} {value}")

    def stats(self):
        """up, down (bytes), connections, cuts."""
        return {name: int(value) for name, value in
                (word.split("=") for word in self.do("stats").split())}

    def block(self):
        """Ends all connections, and new ones at once."""
        self.do("refuse")
        self.do("cut")

    def unblock(self):
        self.do("resume")
