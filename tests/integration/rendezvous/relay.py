"""A hostile process of another user: it takes a port that a coordinator has freed, and relays to the true coordinator.

python relay.py PORT        prints "listens"; takes one connection, closes its own port and prints "connected";
                            reads the true coordinator's port from stdin; at the end prints all it saw, in hex
"""

from __future__ import annotations

import select
import socket
import sys


def main() -> None:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))  # create_server sets SO_REUSEADDR
    print("listens", flush=True)
    peer, _ = listening.accept()
    listening.close()
    print("connected", flush=True)
    coordinator = socket.create_connection(("127.0.0.1", int(sys.stdin.readline())))
    seen = {peer: b"", coordinator: b""}
    other = {peer: coordinator, coordinator: peer}
    open_ends = [peer, coordinator]
    while len(open_ends) == 2:
        for end in select.select(open_ends, [], [])[0]:
            try:
                data = end.recv(1 << 16)
                other[end].sendall(data)
            except OSError:
                data = b""
            if not data:
                open_ends.remove(end)
                break
            seen[end] += data
    for end in (peer, coordinator):
        end.close()
    print(seen[peer].hex() or "-", seen[coordinator].hex() or "-", flush=True)


if __name__ == "__main__":
    main()
