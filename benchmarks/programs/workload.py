"""What ddp.py and ddp_elastic.py have in common: model, data, the work of a step, and the marks that they leave.

A step belongs to a global batch that is divided among whoever is there, so a step is worth the same number of samples
in a group of any size. Its work either waits (`sleep`: as long as a GPU would be busy) or computes (`cpu`).

One line per step is appended to MARKS: time, rank, step, world size, pid, samples committed. `step` counts from the
moment the group was formed, `samples` over the whole training.
"""

import argparse
import os
import time

import torch
from torch import nn

BATCH = 768  # of all ranks together
WIDTH = {"sleep": 32, "cpu": 512}


class Workload:
    """The options of the command line, and a step's parts."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("marks", help="ends when MARKS.stop exists; the checkpoint is MARKS.checkpoint")
        parser.add_argument("--pace", type=float, default=0.05, metavar="SECONDS", help="of a step that waits")
        parser.add_argument("--work", choices=("sleep", "cpu"), default="sleep")
        parser.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS", help="0: never")
        self.options = parser.parse_args()
        self.pace = self.options.pace if self.options.work == "sleep" else 0.0
        self._marks = os.open(self.options.marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        torch.set_num_threads(1)

    def model(self) -> nn.Module:
        """The same weights on every rank."""
        torch.manual_seed(0)
        width = WIDTH[self.options.work]
        return nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def batch(self, samples: int, size: int, rank: int) -> torch.Tensor:
        """This rank's `size` samples of the step that begins after `samples`."""
        random = torch.Generator().manual_seed(samples * 64 + rank)
        return torch.rand(size, WIDTH[self.options.work], generator=random)

    def step(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        """Forward, backward, update; and a pause, where the work is to wait."""
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(self.pace)

    def stopping(self) -> torch.Tensor:
        """1 when this rank sees that the run is to end; summed over all ranks they end at the same step."""
        return torch.tensor(float(os.access(self.options.marks + ".stop", os.F_OK)))

    def mark(self, rank: int, step: int, world: int, samples: int) -> None:
        """One write of one short line: with O_APPEND lines of several processes do not mix."""
        line = f"{time.monotonic():.6f} {rank} {step} {world} {os.getpid()} {samples}\n"
        os.write(self._marks, line.encode())
