"""A proxy in front of PostgreSQL that can lose an answer: the server commits, and the client never hears of it."""
import os
import socket
import threading


class Proxy:
    """Listens on a socket in `directory` and relays to the server's socket in `server_directory`."""

    def __init__(self, directory, server_directory):
        self.lose_next_answer = False
        self.server = os.path.join(server_directory, ".s.PGSQL.5432")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(directory, ".s.PGSQL.5432"))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            threading.Thread(target=self.relay_requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self.relay_answers, args=(server, client), daemon=True).start()

    def relay_requests(self, client, server):
        try:
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass    # one side is gone, and the other thread closes both

    def relay_answers(self, server, client):
        answer = b""
        stream = server.makefile("rb")
        with server, client:
            # A message: one byte that names its type, four bytes of length (their own included), a body.
            while head := stream.read(5):
                body = stream.read(int.from_bytes(head[1:], "big") - 4)
                answer += head + body
                if head[:1] != b"Z":
                    continue
                # ReadyForQuery ends an answer. State I: no transaction is open, so what was asked for has committed.
                if self.lose_next_answer and body == b"I":
                    self.lose_next_answer = False
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)
                answer = b""
