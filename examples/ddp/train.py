"""Trains a small network with DistributedDataParallel on data that it makes itself: two interleaved spirals.

petctl run -n 1:3 examples/ddp/train.py                        elastic, on this machine
torchrun --standalone --nproc-per-node 2 examples/ddp/train.py unchanged under PyTorch's own launcher
python examples/ddp/train.py                                   and without any

The batch of a step depends on the step alone and is divided among whoever is there, so the loss curve is the same for
every number of ranks (that divides the batch), and a run that was interrupted continues on the curve it left.
"""

import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 384  # of all ranks together


def join_group() -> torch.device:
    """Take the place that the launcher gave us; without a launcher, be a group of one."""
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
    )
    backend = "nccl" if device.type == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def spirals(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's share of the step's batch: points on two spirals, and which spiral each is on."""
    random = torch.Generator().manual_seed(step)
    turn = torch.rand(BATCH, generator=random).sqrt() * 3 * math.pi
    label = torch.randint(2, (BATCH,), generator=random)
    angle = turn + math.pi * label
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * turn.unsqueeze(1) / (3 * math.pi)
    points += 0.02 * torch.randn(BATCH, 2, generator=random)
    share = slice(dist.get_rank(), None, dist.get_world_size())
    return points[share], label[share]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def save(path: Path, state: dict[str, object]) -> None:
    """Replace the checkpoint in one step: a crash in the middle leaves the old one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    torch.save(state, unfinished)
    unfinished.replace(path)


def train(options: argparse.Namespace, device: torch.device) -> int:
    """Train to the last step; the exit code."""
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    checkpoint, first = options.checkpoint_dir / "latest.pt", 1
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1

    chief, world = dist.get_rank() == 0, dist.get_world_size()
    if chief:
        print(f"{world} ranks on {device.type}, {'resuming at' if first > 1 else 'from'} step {first}", flush=True)
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(True))

    for step in range(first, options.steps + 1):
        points, label = spirals(step)
        loss = nn.functional.cross_entropy(model(points.to(device)), label.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.step_time)

        # One small message carries the mean loss and whether anybody was asked to stop, so all stop at the same step.
        news = torch.tensor([loss.item(), float(bool(asked_to_stop))], device=device)
        dist.all_reduce(news)
        mean_loss, stopping = news[0].item() / world, news[1].item() > 0
        if chief:
            if step % options.checkpoint_every == 0 or stopping or step == options.steps:
                save(
                    checkpoint, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                )
            with options.metrics.open("a") as metrics:
                metrics.write(json.dumps({"time": time.time(), "step": step, "loss": mean_loss, "ranks": world}) + "\n")
            if step % options.print_every == 0 or step == options.steps:
                print(f"step {step:4d} of {options.steps}   loss {mean_loss:.4f}", flush=True)
        if stopping:
            return 128 + signal.SIGTERM
    dist.barrier()  # nobody takes the group down while a peer may still be reading from it
    return 0


def main() -> int:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--step-time", type=float, default=0.0, metavar="SECONDS", help="a pause per step, to watch it")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--print-every", type=int, default=20, metavar="STEPS")
    parser.add_argument(
        "--checkpoint-dir", type=Path, default=Path(os.environ.get("PETCTL_CHECKPOINT_DIR", "checkpoints"))
    )
    parser.add_argument("--metrics", type=Path, help="JSON lines (default: metrics.jsonl beside the checkpoint)")
    options = parser.parse_args()
    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    options.metrics = options.metrics or options.checkpoint_dir / "metrics.jsonl"

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    device = join_group()
    try:
        return train(options, device)
    except RuntimeError as error:
        if "gloo" not in str(error) and "NCCL" not in str(error):
            raise
        # A peer died in the middle of a step. Whoever launched us knows already; one line does for a traceback.
        print(f"rank {dist.get_rank()} lost a peer: {str(error).partition('. ')[0]}", file=sys.stderr, flush=True)
        return 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
