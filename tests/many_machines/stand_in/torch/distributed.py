"""A stand-in of torch.distributed: its TCPStore, with as much of it as a unique id needs."""

import socket
import socketserver
import struct
import threading
import time


def _send(connection, *parts):
    connection.sendall(b"".join(struct.pack("<I", len(part)) + part for part in parts))


def _receive(connection):
    def exactly(count):
        data = b""
        while len(data) < count:
            part = connection.recv(count - len(data))
            if not part:
                raise ConnectionError("the store's other end is gone")
            data += part
        return data

    return exactly(*struct.unpack("<I", exactly(4)))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self, port):
        super().__init__(("", port), _Handler)
        self.values, self.changed = {}, threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(socketserver.BaseRequestHandler):
    def handle(self):
        operation, key = _receive(self.request), _receive(self.request)
        with self.server.changed:
            if operation == b"set":
                self.server.values[key] = _receive(self.request)
                self.server.changed.notify_all()
            else:
                self.server.changed.wait_for(lambda: key in self.server.values)
            _send(self.request, self.server.values[key])


class TCPStore:
    """A store that one process serves. `get` waits for the key."""

    def __init__(self, host_name, port, world_size=None, is_master=False):
        self.address = host_name, port
        self.server = _Server(port) if is_master else None

    def _request(self, *parts):
        end = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(self.address, 5) as connection:
                    connection.settimeout(30)
                    _send(connection, *parts)
                    return _receive(connection)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def set(self, key, value):
        self._request(b"set", key.encode(), value)

    def get(self, key):
        return self._request(b"get", key.encode())
