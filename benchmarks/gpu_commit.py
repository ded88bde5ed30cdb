"""Claim: State.commit on a GPU costs the copy of its bytes within the device, and no step waits for it.

A step is forward and backward of a small transformer's worth of matrix products and one AdamW step, in bf16. Three
kinds of steps are made in turn, in groups, each timed with the device idle before and after:

    bare      the step alone
    copied    ... and one plain device-to-device copy of the same bytes: the physical limit of keeping them
    commit    ... and State.commit(), as elastic.run makes it

Prints milliseconds per step and the ratio of what a commit adds to what a copy adds. Needs a GPU and PyTorch:

    PYTHONPATH=src python benchmarks/gpu_commit.py [--layers 24] [--width 2048] [--steps 20] [--pairs 10]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any, Callable


def measure(steps: int, step: Callable[[], None], synchronize: Callable[[], None]) -> float:
    """Seconds per step."""
    synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - begun) / steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=10)
    words = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed here", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("there is no GPU here", file=sys.stderr)
        return 2
    from petctl.elastic import State
    from petctl.elastic.state import ledger_of

    layers = [torch.nn.Linear(words.width, words.width, bias=False) for _ in range(words.layers)]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    x = torch.randn(words.batch, words.width, device="cuda", dtype=torch.bfloat16)
    state = State(model=model, optimizer=optimizer, step=0)
    ledger_of(state).keeping = True

    def bare() -> None:
        optimizer.zero_grad()
        model(x).float().pow(2).mean().backward()
        optimizer.step()
        state.step += 1

    bare()
    values = [value for one in optimizer.state.values() for value in one.values()]
    kept: list[Any] = [*model.parameters(), *values]
    copies = [torch.empty_like(tensor) for tensor in kept]
    size = sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def copied() -> None:
        bare()
        with torch.no_grad():
            torch._foreach_copy_(copies, kept)

    def commit() -> None:
        bare()
        state.commit()

    kinds = {"bare": bare, "copied": copied, "commit": commit}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for step in kinds.values():
        measure(3, step, torch.cuda.synchronize)
    for _ in range(words.pairs):
        for name, step in kinds.items():
            times[name].append(measure(words.steps, step, torch.cuda.synchronize))
    medians = {name: statistics.median(seconds) * 1e3 for name, seconds in times.items()}
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {words.layers} layers of {words.width}, "
          f"{size / 1e9:.2f} GB of parameters and optimizer; {words.pairs} groups of {words.steps} steps")  # fmt: skip
    for name, milliseconds in medians.items():
        print(f"  {name:8} {milliseconds:8.3f} ms per step")
    added = {name: medians[name] - medians["bare"] for name in ("copied", "commit")}
    share, ratio = added["commit"] / medians["bare"], added["commit"] / max(added["copied"], 1e-6)
    print(f"  a commit adds {added['commit']:.3f} ms ({share:.1%} of a step)")
    print(f"  a plain copy of the same bytes adds {added['copied']:.3f} ms: a commit costs {ratio:.2f} times that")
    return 0


if __name__ == "__main__":
    sys.exit(main())
