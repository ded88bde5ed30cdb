"""What the jobs of the suite run, on any Python from 3.9 on:  worker.py MODE [WORD...]

    hello               says who it is, and ends
    wait                ... and waits until it is told to finish
    last-words          ... and says so when it is asked to end; its last words take their time
    stubborn            ... and does not end when it is asked to
    exit CODE RANK      that rank ends with the code when it is told to, the others wait
    serve               rank 0 answers on a port
    secret NAME...      says the digests of these variables
    output              rank 0 makes a file

It is told by files in its directory of outputs: `finish`, `go`, and `die-RANK`, which kills that rank.
"""

import hashlib
import os
import signal
import socket
import sys
import threading
import time

mode, words = sys.argv[1], sys.argv[2:]
rank, world, number, node = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "PETCTL_ROUND", "PETCTL_NODE"))
place = os.environ["PETCTL_OUTPUT_DIR"]


def told(word):
    return os.path.exists(os.path.join(place, word))


def asked_to_end(number, frame):
    time.sleep(0.3)  # the grace is for this
    print(f"last words of rank {rank}", flush=True)
    sys.exit(0)


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(f"served by node {node}\n".encode())


if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "last-words":
    signal.signal(signal.SIGTERM, asked_to_end)
if mode == "serve" and rank == "0":
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print("serves at", listener.getsockname()[1], flush=True)
for name in words if mode == "secret" else ():
    print("digest", name, hashlib.sha256(os.environ[name].encode()).hexdigest(), flush=True)
if mode == "output" and rank == "0":
    with open(os.path.join(place, "made.txt"), "w") as file:
        file.write(f"made in round {number}\n")

print(f"rank {rank} of {world} in round {number} on {node} by {os.getpid()}", flush=True)
print(f"aside of rank {rank}", file=sys.stderr, flush=True)
if mode in ("hello", "secret", "output"):
    sys.exit(0)
while not told("finish"):
    if mode == "exit" and rank == words[1] and told("go"):
        sys.exit(int(words[0]))
    try:
        os.unlink(os.path.join(place, f"die-{rank}"))
    except FileNotFoundError:
        time.sleep(0.02)
    else:
        os.kill(os.getpid(), signal.SIGKILL)
print(f"rank {rank} has finished", flush=True)
