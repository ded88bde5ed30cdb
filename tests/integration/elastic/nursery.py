"""Imports torch once and forks the tests' workers from there: a worker costs milliseconds instead of torch's import.

Reads one JSON object per line: {"env": ..., "script": ..., "out": PATH, "err": PATH}; answers {"pid": N}, and {"pid":
N, "code": C} when that one has ended. Ends, with all its children, when its input does.
"""

import json
import os
import runpy
import select
import signal
import sys

import torch._dynamo  # what torch imports on first use of an optimiser
import torch.distributed
import torch.nn.parallel

import petctl.elastic

assert petctl.elastic and torch._dynamo and torch.distributed.is_available()


def fork(request):
    pid = os.fork()
    if pid:
        return pid
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, path in ((1, request["out"]), (2, request["err"])):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [request["script"]]
    return 0


def main():
    """Serve until the input ends; returns the script to run in a child."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end)
    children: set[int] = set()
    rest = b""
    while True:
        for ready in select.select([0, wake], [], [])[0]:
            if ready == wake:
                os.read(wake, 4096)
                for pid in list(children):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        children.discard(pid)
                        print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)
                continue
            data = os.read(0, 65536)
            if not data:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                return None
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = fork(request)
                if not pid:
                    return request["script"]
                children.add(pid)
                print(json.dumps({"pid": pid}), flush=True)


print("{}", flush=True)
script = main()
if script:
    runpy.run_path(script, run_name="__main__")
