"""Tests memory that processes share: sockets, messages, lifetimes, and errors."""

import multiprocessing
import os
import socket
import unittest
from unittest import mock

import support
import plinth
from plinth import ipc


def receiver(sock, results):
    sock.settimeout(60)
    results.put("waiting")
    with ipc.receive(sock, (4, 2), "int32") as buffer:
        results.put((buffer.device.index, buffer.shape, buffer.tolist()))
        buffer.fill_(b"\7\0\0\0")
        plinth.synchronize(buffer.device)
        sock.sendall(b"done")
        sock.recv(4)
    message, descriptors, _, _ = socket.recv_fds(sock, 65536, 16)
    buffer = ipc.import_(message, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    results.put((buffer.nbytes >= 32, buffer.tobytes()[:1]))
    buffer.free()
    sock.sendall(b"free")
    try:
        ipc.receive(sock)
    except plinth.PlinthError as error:
        results.put(error.name)


class Sharing(unittest.TestCase):
    def test_two_processes(self):
        context = multiprocessing.get_context("spawn")
        here, there = socket.socketpair()
        results = context.Queue()
        child = context.Process(target=receiver, args=(there, results))
        child.start()
        there.close()
        self.assertEqual(results.get(timeout=60), "waiting")
        buffer = plinth.empty((4, 2), "int32", support.LAST).fill_(b"\5\0\0\0")
        ipc.send(here, buffer)
        self.assertEqual(results.get(timeout=60), (support.LAST, (4, 2), [[5, 5]] * 4))
        self.assertEqual(here.recv(4), b"done")
        self.assertEqual(buffer.tolist(), [[7, 7]] * 4)
        here.sendall(b"next")
        message = ipc.export(buffer)
        socket.send_fds(here, [message.data], message.descriptors)
        for descriptor in message.descriptors:
            os.close(descriptor)
        pointer = buffer.ptr
        self.assertEqual(results.get(timeout=60), (True, b"\7"))
        self.assertEqual(here.recv(4), b"free")
        del buffer
        plinth.ipc_collect()
        here.close()
        self.assertEqual(results.get(timeout=60), "PLINTH_ERROR_IPC_PEER_GONE")
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        self.assertNotEqual(pointer, 0)

    def test_too_many_open_files(self):
        made, real = [], os.dup

        def dup(descriptor):
            if made:
                raise OSError("too many open files")
            made.append(real(descriptor))
            return made[0]

        with mock.patch.object(os, "dup", dup), self.assertRaisesRegex(OSError, "too many"):
            ipc.export(plinth.zeros(1000))
        with self.assertRaises(OSError):
            os.fstat(made[0])

    def test_errors(self):
        here, there = socket.socketpair()
        with here, there:
            with self.assertRaises(plinth.errors.InvalidArgumentError):
                ipc.send(here, 0x1000)
            with open(os.devnull, "rb") as file, self.assertRaises(plinth.PlinthError):
                ipc.send(file, plinth.empty(4))
            here.settimeout(0.05)
            with self.assertRaises(TimeoutError):
                ipc.receive(here)
            here.setblocking(False)
            with self.assertRaises(plinth.PlinthError):
                ipc.receive(here)
            here.settimeout(30)
            there.close()
            with self.assertRaises(plinth.PlinthError) as raised:
                ipc.receive(here)
            self.assertEqual(raised.exception.name, "PLINTH_ERROR_IPC_PEER_GONE")
        with self.assertRaises(TypeError):
            ipc.receive(here, 4, "float31")
        with self.assertRaises(plinth.errors.InvalidArgumentError):
            ipc.import_(b"not a message", [])
        with self.assertRaises(ValueError):
            ipc.open_mem_handle(b"short")
        with self.assertRaises(plinth.errors.NotSupportedError):
            ipc.mem_handle(plinth.empty(4))


if __name__ == "__main__":
    unittest.main()
