"""Trains a ResNet on a folder of images, one sub-folder per class, and keeps training while ranks come and go.

petctl run -n 1:4 examples/imagenet/main.py --input_path /data/tiny-imagenet-200/train --epochs 10
petctl run -n 1:2 examples/imagenet/main.py --input_path build/images --make-data 400 --epochs 2

JPEG and PNG are read with Pillow where it is installed; the images that --make-data paints need nothing. The training
loop is in `train`; what it has to do with elasticity is the State, the commit after each step, and the sampler.
"""

import argparse
import math
import os
import re
import shutil
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from petctl import elastic

PAINTED = ("across", "down", "diagonal", "squares")
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}


# -- the images --------------------------------------------------------------------------------------------------------


class ImageFolder(Dataset):
    """The images below a directory; the class of each is the sub-folder that it is in."""

    def __init__(self, root: Path, size: int) -> None:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir())
        self.size = size
        self.images = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((root / name).rglob("*"))
            if path.suffix.lower() in (".jpeg", ".jpg", ".png", ".ppm")
        ]
        if not self.images:
            raise SystemExit(f"{root} holds no images; give a folder with one sub-folder per class, or --make-data 400")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.images[index]
        image = functional.interpolate(read(path).float()[None] / 127.5 - 1, self.size, mode="area")[0]
        return image.flip(2) if torch.rand(()) < 0.5 else image, label


def read(path: Path) -> torch.Tensor:
    """Colours by rows by columns, 0 to 255."""
    if path.suffix == ".ppm":
        data = path.read_bytes()
        header = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", data)
        if header is None:
            raise SystemExit(f"{path} is no PPM image with 8 bits per colour")
        width, height, data = int(header[1]), int(header[2]), data[header.end() :]
    else:
        try:
            from PIL import Image
        except ImportError:
            raise SystemExit(f"{path} needs Pillow to be read: pip install pillow") from None
        picture = Image.open(path).convert("RGB")
        (width, height), data = picture.size, picture.tobytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(height, width, 3).permute(2, 0, 1)


def make_data(root: Path, count: int, size: int = 64) -> None:
    """Paints `count` noisy patterns of four kinds. Several ranks may do so at once: the first one's folder stays."""
    unfinished = root.with_name(f"{root.name}.{os.getpid()}")
    random = torch.Generator().manual_seed(0)
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    slopes = {"across": rows, "down": columns, "diagonal": rows + columns}
    for number in range(count):
        kind = PAINTED[number % len(PAINTED)]
        phase, pace = torch.rand(2, generator=random) * torch.tensor([6.28, 0.3]) + torch.tensor([0.0, 0.3])
        if kind == "squares":
            pattern = (rows * pace + phase).sin().sign() * (columns * pace).sin().sign()
        else:
            pattern = (slopes[kind] * pace + phase).sin()
        image = pattern[..., None] * torch.rand(3, generator=random) * 80 + 128
        image += torch.randn(size, size, 3, generator=random) * 20
        path = unfinished / kind / f"{number:05d}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = image.clamp(0, 255).to(torch.uint8).flatten().tolist()
        path.write_bytes(f"P6\n{size} {size}\n255\n".encode() + bytes(pixels))
    try:
        unfinished.rename(root)
    except OSError:
        shutil.rmtree(unfinished)


# -- the network -------------------------------------------------------------------------------------------------------


def convolution(inside: int, outside: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outside)
    )


class Block(nn.Module):
    """Two convolutions, or three with a narrow middle (`bottleneck`), added to what came in."""

    def __init__(self, inside: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outside = width * 4 if bottleneck else width
        if bottleneck:
            layers = [convolution(inside, width, 1), nn.ReLU(), convolution(width, width, 3, stride), nn.ReLU()]
            layers.append(convolution(width, outside, 1))
        else:
            layers = [convolution(inside, width, 3, stride), nn.ReLU(), convolution(width, width, 3)]
        self.change = nn.Sequential(*layers)
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else convolution(inside, outside, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.change(images) + self.shortcut(images))


def resnet(name: str, classes: int) -> nn.Sequential:
    bottleneck = name in ("resnet50", "resnet101")
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, depth in enumerate(DEPTHS[name]):
        for number in range(depth):
            width = 64 << stage
            layers.append(Block(inside, width, 2 if stage and not number else 1, bottleneck))
            inside = width * 4 if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


# -- the training ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input_path", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--make-data", type=int, metavar="N", help="paint N images there first, if the folder is missing"
    )
    parser.add_argument("--model_arch", choices=tuple(DEPTHS), default="resnet18")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--batch_size", type=int, default=64, help="of all ranks together; stays when their number changes"
    )
    parser.add_argument("--image_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--num_data_workers", type=int, default=0, help="processes per rank that read images")
    parser.add_argument("--c10d_backend", choices=("gloo", "nccl"), help="default: what the device needs")
    parser.add_argument("--checkpoint_every", default="60s", metavar="TIME", help="written to PETCTL_CHECKPOINT_DIR")
    options = parser.parse_args()

    if options.make_data and not options.input_path.exists():
        make_data(options.input_path, options.make_data)
    images = ImageFolder(options.input_path, options.image_size)
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    model = resnet(options.model_arch, len(images.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    sampler = elastic.ElasticSampler(images, global_batch=options.batch_size)
    loader = DataLoader(images, batch_sampler=sampler, num_workers=options.num_data_workers)
    steps = options.epochs * math.ceil(len(images) / options.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    state = elastic.State(model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, step=0)
    elastic.checkpoint(state, every=options.checkpoint_every)

    def train(state: elastic.State) -> None:
        chief = elastic.rank() == 0
        if chief:
            print(
                f"{elastic.world_size()} rank(s) on {device.type}, {len(images)} images, step {state.step}", flush=True
            )
        parallel = DistributedDataParallel(state.model.train())
        while sampler.epoch < options.epochs:
            epoch, seen, right, begin = sampler.epoch, 0, 0, time.monotonic()
            for batch, labels in sampler.batches(loader):
                batch, labels = batch.to(device), labels.to(device)
                output = parallel(batch)
                loss = functional.cross_entropy(output, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                state.step += 1
                state.commit()
                seen, right = seen + len(labels), right + int((output.argmax(1) == labels).sum())
                elastic.report(step=state.step, loss=loss, epoch=epoch)
            if chief and seen:
                pace = seen * elastic.world_size() / (time.monotonic() - begin)
                print(f"epoch {epoch}: {right / seen:.1%} right on rank 0, {pace:.0f} images/s", flush=True)

    elastic.run(train, state, backend=options.c10d_backend)


if __name__ == "__main__":
    main()
