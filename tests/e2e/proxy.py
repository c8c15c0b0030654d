"""A TCP proxy on this machine between a worker and the coordinator, under the
test's control. Used by network_test.py.

    with proxy.Proxy(cluster.port) as line:
        cluster.start_worker(0, change={"coordinator": line.address})
        line.cut_every(1 << 20)  # Each connection ends after so many bytes up.
        line.block()             # Nothing gets through, as without a cable.
        line.unblock()
"""
import socket
import threading

BLOCK = 16384


class Proxy:

    def __init__(self, port):
        self._port = port
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open = set()
        self._blocked = False
        self._limit = None
        self.bytes_up = 0
        self.cuts = 0

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.block()

    def cut_every(self, limit):
        self._limit = limit

    def block(self):
        """Ends all connections, and new ones at once."""
        with self._lock:
            self._blocked = True
            ending = list(self._open)
        for end in ending:
            self._close(end)

    def unblock(self):
        with self._lock:
            self._blocked = False

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # Closed.
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            with self._lock:
                blocked = self._blocked
                self._open |= {near, far}
            if blocked:
                self._close(near)
                self._close(far)
                continue
            for source, sink, up in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pump, args=(source, sink, up),
                                 daemon=True).start()

    def _pump(self, source, sink, up):
        passed = 0
        try:
            while data := source.recv(BLOCK):
                if up and self._limit and passed + len(data) > self._limit:
                    with self._lock:
                        self.cuts += 1
                    break
                sink.sendall(data)
                passed += len(data)
                if up:
                    with self._lock:
                        self.bytes_up += len(data)
        except OSError:
            pass  # The other direction has closed it.
        self._close(source)
        self._close(sink)

    def _close(self, end):
        with self._lock:
            self._open.discard(end)
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()
