"""A TCP proxy with faults of the network, for tests: what HTTP never sees.

Proxy(port, "delay", 200) waits so many ms before each piece of the answer; "reset" breaks the
connection with RST after so many bytes of the answer, "half_open" says nothing more from there on
and never closes, "trickle" gives one byte every so many ms, "deaf" never accepts, "pass" does
nothing. Bytes of the request always pass. The number may be a function, asked once a connection.
"""
import socket
import struct
import threading
import time


class Proxy:
    def __init__(self, to_port, fault, number=0):
        self.to_port, self.fault, self.number = to_port, fault, number
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(0 if fault == "deaf" else 256)
        self.port = self.socket.getsockname()[1]
        self.kept, self.is_stopped = [], False
        if fault == "deaf":  # the queue of those who knock is full: nobody answers the next SYN
            for _ in range(3):
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", self.port))
                self.kept.append(s)
        else:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.is_stopped:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to_port))
            self.kept += [client, server]
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    @staticmethod
    def _up(client, server):
        try:
            while piece := client.recv(65536):
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _down(self, server, client):
        count, number = 0, self.number() if callable(self.number) else self.number
        try:
            while piece := server.recv(65536):
                if self.fault in ("reset", "half_open") and count + len(piece) > number:
                    client.sendall(piece[:number - count])
                    self._strike(client)
                    return
                count += len(piece)
                if self.fault == "delay":
                    time.sleep(number / 1000)
                if self.fault == "trickle":
                    for i in range(len(piece)):
                        client.sendall(piece[i:i + 1])
                        time.sleep(number / 1000)
                else:
                    client.sendall(piece)
            client.close()
        except OSError:
            pass

    def _strike(self, client):
        if self.fault == "reset":
            client.shutdown(socket.SHUT_RD)  # wakes the thread that reads: it would hold the socket
            time.sleep(0.02)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    def stop(self):
        self.is_stopped = True
        self.socket.close()
        for s in self.kept:
            s.close()
