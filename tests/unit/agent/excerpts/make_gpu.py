"""Makes real failures on a machine with one GPU, and keeps what each wrote: the excerpts beside this file.

    python make_gpu.py DIRECTORY       writes DIRECTORY/gpu.txt: for each a line "== CAUSE ... CODE", then what it wrote

Any Python with torch and CUDA runs it. Failures run one after another, each in processes of its own, at most a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ONE = {
    "gpu-out-of-memory": """
import torch
torch.empty(1 << 42, device="cuda")
""",
    "gpu-out-of-memory filled": """
import torch
kept = []
while True:
    kept.append(torch.zeros(1 << 30, device="cuda"))
""",
    "gpu-missing ordinal": """
import torch
torch.zeros(1, device="cuda:7")
""",
    "gpu-missing hidden": """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
torch.zeros(1, device="cuda")
""",
    "gpu-assert embedding": """
import torch
layer = torch.nn.Embedding(10, 4).cuda()
layer(torch.tensor([3, 99], device="cuda"))
torch.cuda.synchronize()
""",
    "gpu-assert labels": """
import torch
torch.nn.functional.cross_entropy(torch.zeros(4, 10, device="cuda"), torch.full((4,), 12, device="cuda")).item()
""",
    "gpu-illegal-access": """
import torch, triton, triton.language as tl
import importlib.util, pathlib, tempfile
path = pathlib.Path(tempfile.mkdtemp(), "touching.py")
path.write_text('''
import triton, triton.language as tl
@triton.jit
def touch(pointer, offset, BLOCK: tl.constexpr):
    tl.store(pointer + offset + tl.arange(0, BLOCK), 1.0)
''')
spec = importlib.util.spec_from_file_location("touching", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
a = torch.zeros(64, device="cuda")
module.touch[(1,)](a, 1 << 41, BLOCK=64)
a.add_(1).cpu()
""",
    "gpu-illegal-access kernel": """
import torch
source = r'''
extern "C" __global__ void touch(float* where) { where[1ull << 40] = 1.0f; }
'''
kernel = torch.cuda._compile_kernel(source, "touch")
kernel((1, 1, 1), (1, 1, 1), (torch.zeros(1, device="cuda"),))
torch.cuda.synchronize()
""",
    "nccl-interface": """
import os
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", RANK="0", WORLD_SIZE="1", NCCL_SOCKET_IFNAME="nosuch0",
                  NCCL_DEBUG="WARN")
import torch, torch.distributed as dist
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(1, device="cuda"))
torch.cuda.synchronize()
""",
    "nan": """
import torch
torch.autograd.set_detect_anomaly(True)
x = torch.tensor([-1.0], device="cuda", requires_grad=True)
(x.sqrt() * 0).sum().backward()
""",
    "device-mismatch": """
import torch
torch.nn.Linear(2, 2).cuda()(torch.zeros(1, 2))
""",
    "shape-mismatch": """
import torch
torch.nn.Linear(8, 2).cuda()(torch.zeros(1, 7, device="cuda"))
""",
}
PAIR = {
    "duplicate-gpu": """
import os, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(1, device="cuda"))
torch.cuda.synchronize()
""",
    "collective-timeout": """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
if os.environ["RANK"] == "0":
    dist.all_reduce(torch.ones(1))
time.sleep(12)
""",
}
# A collective of one rank that cannot end: its stream waits for a kernel that spins longer than the timeout.
ONE["nccl-timeout spin"] = """
import datetime, os, time
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29612", RANK="0", WORLD_SIZE="1")
import torch, torch.distributed as dist
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=4))
dist.all_reduce(torch.ones(1, device="cuda"))
torch.cuda.synchronize()
torch.cuda._sleep(1 << 36)
dist.all_reduce(torch.ones(1, device="cuda"))
time.sleep(30)
"""


def main(directory: Path) -> None:
    """Runs all of them."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, program in ONE.items():
        parts.append(ended(name, program, {}))
    for number, (name, program) in enumerate(PAIR.items()):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29620 + number), "WORLD_SIZE": "2"}
        started = [begin(program, {**shared, "RANK": str(rank)}) for rank in range(2)]
        parts += [wait(f"{name} rank {rank}", process) for rank, process in enumerate(started)]
    (directory / "gpu.txt").write_text("".join(parts))


def begin(program: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def wait(name: str, process: subprocess.Popen[str]) -> str:
    try:
        text, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        text = process.communicate()[0] + "\n(killed after a minute)\n"
    print(f"{name}: {process.returncode}", flush=True)
    return f"== {name} {process.returncode}\n{text[-16_000:]}\n"


def ended(name: str, program: str, env: dict[str, str]) -> str:
    return wait(name, begin(program, env))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
