"""Something to tune: gradient descent on a small valley, with a learning rate and a momentum.

petctl sweep -p lr=0.01:0.08:x2 --metric loss examples/sweep/train.py --lr '${lr}'
"""

import argparse
import math
import time

from petctl import elastic


def main() -> None:
    parser = argparse.ArgumentParser(description="Descends into a valley; reports its height at every step.")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-time", type=float, default=0.02, metavar="SECONDS")
    options = parser.parse_args()

    x, y, speed_x, speed_y = 4.0, 2.0, 0.0, 0.0
    for step in range(1, options.steps + 1):
        speed_x = options.momentum * speed_x - options.lr * 2 * x
        speed_y = options.momentum * speed_y - options.lr * 20 * y
        x, y = x + speed_x, y + speed_y
        loss = x * x + 10 * y * y
        if not math.isfinite(loss):
            raise SystemExit(f"diverged at step {step}")
        elastic.report(step=step, loss=loss)
        time.sleep(options.step_time)
    print(f"loss: {loss:.6g}")


if __name__ == "__main__":
    main()
