"""`make demo`: trains on three nodes of this machine, kills one in the middle, and shows what that cost.

The job is examples/ddp; nothing in it knows of the kill. The script follows the loss in the metrics file that the
training writes, sends SIGKILL to a node half way, and at the end draws the loss curve with the moment of the kill.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 72, 12
VICTIM = "1"
ERASE = "" if os.environ.get("TERM", "dumb") == "dumb" else "\r\x1b[2K"


def say(text: str) -> None:
    """A line of the demo itself, told apart from the job's own. On a terminal petctl's status line may stand there: it
    is erased first (petctl draws it again), and long lines are broken between words."""
    text = f"demo: {text}"
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        text = ERASE + "\n".join(textwrap.wrap(text, max(40, width), subsequent_indent="      "))
    print(text, flush=True)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Every step that rank 0 has recorded; a line that is being written is left for next time."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for_step(metrics: Path, step: int, job: "subprocess.Popen[bytes]") -> None:
    """Until the training has done that step, or the job has ended."""
    while job.poll() is None:
        done = read_metrics(metrics)
        if done and done[-1]["step"] >= step:
            return
        try:
            job.wait(0.05)
        except subprocess.TimeoutExpired:
            pass


def kill_node(home: Path) -> float:
    """The top process of the node dies without a word, and everything below it goes with it. The moment."""
    pid = int(next(home.glob(f"jobs/*/nodes/{VICTIM}/pid")).read_text())
    say(f"killing node {VICTIM} (pid {pid})")
    moment = time.time()
    os.kill(pid, signal.SIGKILL)
    return moment


def curve(metrics: "list[dict[str, float]]", killed_at: float) -> str:
    """The loss over the steps, every step once, with the last step before the kill marked."""
    losses = {int(entry["step"]): entry["loss"] for entry in metrics}
    last_before = max(int(entry["step"]) for entry in metrics if entry["time"] <= killed_at)
    steps, top = max(losses), max(losses.values())
    columns: list[float] = []
    for column in range(WIDTH):
        first, after = 1 + column * steps // WIDTH, 1 + (column + 1) * steps // WIDTH
        here = [losses[step] for step in range(first, max(after, first + 1))]
        columns.append(sum(here) / len(here))
    kill_column = min((last_before - 1) * WIDTH // steps, WIDTH - 1)
    lines = []
    for row in range(HEIGHT, 0, -1):
        label = f"{top * row / HEIGHT:6.3f} |" if row in (HEIGHT, HEIGHT // 2, 1) else "       |"
        cells = ""
        for number, loss in enumerate(columns):
            height = max(1, round(loss / top * HEIGHT))
            cells += "*" if height == row else "|" if number == kill_column else " "
        lines.append(label + cells.rstrip())
    lines.append("       +" + "-" * WIDTH)
    lines.append("        1" + f"step {steps}".rjust(WIDTH - 1))
    lines.append(" " * (8 + kill_column) + f"^ node {VICTIM} was killed at step {last_before}")
    return "\n".join(lines)


def cost(metrics: "list[dict[str, float]]", killed_at: float, start_up: float) -> str:
    """What the kill cost: time without a step, steps that were done twice, and the pause in which the new node came."""
    pauses = [
        (before, after)
        for before, after in zip(metrics, metrics[1:])
        if after["time"] > killed_at and (after["ranks"] != before["ranks"] or after["step"] <= before["step"])
    ]
    first, later = pauses[0][1], [after["time"] - before["time"] for before, after in pauses[1:]]
    repeated = len(metrics) - len({entry["step"] for entry in metrics})
    return (
        f"{first['time'] - killed_at:.1f} s from the kill to the next step of {first['ranks']:.0f} ranks "
        f"(the start of the job took {start_up:.1f} s), "
        + (f"{sum(later):.1f} s when its replacement was taken in, " if later else "")
        + f"and {repeated} step{' was' if repeated == 1 else 's were'} repeated from the last checkpoint"
    )


def main() -> int:
    """Run the demo; 0 only when the job was killed at, went on and ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--petctl", default=str(Path(sys.executable).parent / "petctl"))
    parser.add_argument(
        "--torch-python", default=os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch/bin/python"))
    )
    options = parser.parse_args()

    build = ROOT / "build" / "demo"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    home, metrics = build / "home", build / "metrics.jsonl"
    training = ["examples/ddp/train.py", "--steps", str(options.steps), "--step-time", "0.02"]
    say("petctl run -n 2:3 --preload torch " + " ".join(training))
    command = [
        options.petctl,
        "run",
        "-n",
        "2:3",
        "--name",
        "demo",
        "--preload",
        "torch",
        "--python",
        options.torch_python,
    ]
    command += [*training, "--metrics", str(metrics)]
    environment = {**os.environ, "PETCTL_HOME": str(home), "OMP_NUM_THREADS": "1"}
    started_at = time.time()
    job = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    try:
        wait_for_step(metrics, options.steps // 2 + 10, job)  # half way, and half way between two checkpoints
        if job.poll() is not None:
            say(f"the job ended with code {job.returncode} before half of its steps")
            return 1
        killed_at = kill_node(home)
        code = job.wait(100)
    except BaseException:
        subprocess.run([options.petctl, "cancel", "--kill", "demo"], env=environment, check=False)
        job.wait(30)
        raise
    if code != 0:
        say(f"the job ended with code {code}; its logs are in {home}")
        return 1
    done = read_metrics(metrics)
    print("\nloss\n" + curve(done, killed_at) + "\n", flush=True)
    say(f"the loss of a node cost {cost(done, killed_at, done[0]['time'] - started_at)}")
    if done[-1]["step"] != options.steps or done[-1]["loss"] > 0.1:
        say(f"but the training ended at step {done[-1]['step']} with loss {done[-1]['loss']:.3f}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
