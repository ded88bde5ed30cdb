"""A parameter-server job in the standard library: servers keep the weights, workers push gradients into them.

petctl run examples/parameter_server/job.yaml
petctl run -n 3 --role ps=2 --role worker=3 examples/parameter_server/train.py --steps 500

Every task is this script. TF_CONFIG says which one it is and where the others listen. A server answers one JSON object
per line: {"pull": true} and {"push": [gradients]}, both with its slice of the weights and how many pushes it has had.
It never ends by itself: petctl stops it when all workers have ended.
"""

import argparse
import json
import os
import random
import signal
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

SIZE = 12  # weights in all
TRUE = [(-1) ** k * (1 + k / 10) for k in range(SIZE)]  # what the workers should find
BATCH, RATE = 16, 0.02
SAVE_EVERY = 20  # pushes
BEFORE_US = 5.0  # seconds for petctl to hear of a server's end before a worker's that follows from it


class Server(socketserver.ThreadingTCPServer):
    """One parameter server: its slice of the weights, and the file that it continues from."""

    daemon_threads = True

    def __init__(self, port: int, index: int, size: int) -> None:
        super().__init__(("", port), Connection)
        self.lock = threading.Lock()
        self.weights, self.step = [0.0] * size, 0
        self.file = Path(os.environ.get("PETCTL_CHECKPOINT_DIR", "."), f"ps-{index}.json")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            saved = json.loads(self.file.read_text())
            self.weights, self.step = saved["weights"], saved["step"]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            if "push" in request:
                self.weights = [w - RATE * g for w, g in zip(self.weights, request["push"], strict=True)]
                self.step += 1
                if self.step % SAVE_EVERY == 0:
                    self.save()
            return {"weights": self.weights, "step": self.step}

    def save(self) -> None:
        new = self.file.with_suffix(".new")  # renamed, so that a crash in the middle leaves the old one whole
        new.write_text(json.dumps({"weights": self.weights, "step": self.step}))
        new.replace(self.file)


class Connection(socketserver.StreamRequestHandler):
    """One worker's."""

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.answer(json.loads(line))).encode() + b"\n")


def serve(cluster: dict[str, list[str]], index: int) -> None:
    server = Server(int(cluster["ps"][index].rpartition(":")[2]), index, len(slice_of(index, len(cluster["ps"]))))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"serves {len(server.weights)} weights from step {server.step}, pid {os.getpid()}", flush=True)
    try:
        server.serve_forever()
    finally:
        server.save()


def slice_of(index: int, servers: int) -> range:
    """Which of the weights a server keeps."""
    return range(index, SIZE, servers)


class Weights:
    """All of them, as a worker sees them."""

    def __init__(self, servers: list[str]) -> None:
        self.files = [connect(address).makefile("rw") for address in servers]

    def ask(self, requests: list[dict[str, Any]]) -> tuple[list[float], int]:
        """The weights, and how often they were changed."""
        try:
            for file, request in zip(self.files, requests, strict=True):
                file.write(json.dumps(request) + "\n")
                file.flush()
            lines = [file.readline() for file in self.files]
        except OSError:
            lines = [""]
        if not all(line.endswith("\n") for line in lines):
            time.sleep(BEFORE_US)
            sys.exit("a parameter server is gone")
        answers = [json.loads(line) for line in lines]
        weights = [0.0] * SIZE
        for number, answer in enumerate(answers):
            for place, value in zip(slice_of(number, len(self.files)), answer["weights"], strict=True):
                weights[place] = value
        return weights, answers[0]["step"]

    def pull(self) -> tuple[list[float], int]:
        return self.ask([{"pull": True}] * len(self.files))

    def push(self, gradients: list[float]) -> tuple[list[float], int]:
        servers = len(self.files)
        return self.ask([{"push": [gradients[k] for k in slice_of(number, servers)]} for number in range(servers)])


def connect(address: str, patience: float = 60.0) -> socket.socket:
    """All tasks start at the same moment, so a server may not listen yet."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), timeout=patience)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def work(cluster: dict[str, list[str]], index: int, options: argparse.Namespace) -> None:
    weights, step = (servers := Weights(cluster["ps"])).pull()
    print(f"works from step {step}, pid {os.getpid()}", flush=True)
    chance = random.Random(f"{index} {step}")
    while step < options.steps:
        gradients, loss = [0.0] * SIZE, 0.0
        for _ in range(BATCH):
            x = [chance.gauss(0, 1) for _ in range(SIZE)]
            error = sum((w - t) * value for w, t, value in zip(weights, TRUE, x, strict=True))
            loss += error * error / BATCH
            gradients = [g + 2 * error * value / BATCH for g, value in zip(gradients, x, strict=True)]
        weights, step = servers.push(gradients)
        if "PETCTL_PROGRESS" in os.environ:
            with open(os.environ["PETCTL_PROGRESS"], "a") as file:
                file.write(f"step={step} loss={loss:.6g}\n")
        time.sleep(options.step_time)
    distance = max(abs(w - t) for w, t in zip(weights, TRUE, strict=True))
    print(f"ends at step {step}, {distance:.4f} from the truth", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Servers keep the weights, workers push gradients into them.")
    parser.add_argument("--steps", type=int, default=300, help="pushes of all workers together (default: 300)")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="SECONDS", help="pause after each push")
    options = parser.parse_args()
    told = json.loads(os.environ["TF_CONFIG"])
    kind, index = told["task"]["type"], told["task"]["index"]
    if kind == "ps":
        serve(told["cluster"], index)
    else:
        work(told["cluster"], index, options)


if __name__ == "__main__":
    main()
