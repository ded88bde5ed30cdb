"""A JAX script with `jax.distributed` on CPUs, one process per rank; petctl is nowhere in it.

petctl run -n 2 --procs 2 examples/jax/train.py

JAX knows several clusters by their variables but not torchrun's, so the script passes on what every launcher of that
kind sets: the address that rank 0 may listen on, the number of processes, and which one this is.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

BATCH = 256  # of all processes together


def batch(step: int, mesh: jax.sharding.Mesh) -> tuple[jax.Array, jax.Array]:
    """The points of one step: each process makes its own share, and together they are one array."""
    random = np.random.default_rng((step, jax.process_index()))
    x = random.random((BATCH // jax.process_count(), 1), dtype=np.float32)
    y = 3 * x + 1 + 0.01 * random.standard_normal(x.shape, dtype=np.float32)
    rows = NamedSharding(mesh, PartitionSpec("processes"))
    return tuple(jax.make_array_from_process_local_data(rows, part) for part in (x, y))


def loss_of(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((x * weights["slope"] + weights["offset"] - y) ** 2)


@jax.jit
def train_step(weights, x, y):
    loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
    return jax.tree.map(lambda weight, slope: weight - 0.2 * slope, weights, slopes), loss


def save(path: Path, step: int, weights: dict[str, jax.Array]) -> None:
    """Replace the checkpoint in one step: a crash in the middle leaves the old one whole."""
    unfinished = path.with_suffix(".tmp.npz")
    np.savez(unfinished, step=step, **jax.tree.map(np.asarray, weights))
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--directory", type=Path, default=Path(os.environ.get("PETCTL_CHECKPOINT_DIR", "checkpoints")))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_id=int(os.environ["RANK"]),
    )
    rank, world = jax.process_index(), jax.process_count()
    print(f"rank {rank} of {world} is process {os.getpid()}", flush=True)
    mesh = jax.make_mesh((jax.device_count(),), ("processes",))
    whole = NamedSharding(mesh, PartitionSpec())

    start, first = {"slope": np.float32(0), "offset": np.float32(0)}, 0
    saved = options.directory / "last.npz"
    if saved.exists():
        with np.load(saved) as parts:
            first = int(parts["step"])
            start = {name: parts[name] for name in start}
    weights = jax.tree.map(lambda value: jax.make_array_from_process_local_data(whole, value), start)

    for step in range(first + 1, options.steps + 1):
        weights, loss = train_step(weights, *batch(step, mesh))
        if step % 10 == 0 and rank == 0:
            print(f"step {step} of {options.steps}: loss {loss:.4f}", flush=True)
            save(saved, step, weights)
    multihost_utils.sync_global_devices("the end")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
