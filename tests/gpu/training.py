#!/usr/bin/env python3
"""A small image training loop whose data are JPEG files in memory: decode, crop, flip, normalise on the CPU.

    training.py --workers 0        the loop decodes its own images
    training.py --workers 4        workers do
    training.py --feed gpu         no decoding: the same batch, already on the GPU

The last line on stdout is a JSON object with what the script itself measured (measure.py). Needs PyTorch with CUDA,
torchvision and Pillow.
"""
import argparse
import io
import random

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2 as transforms

import measure

CROP = 128


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feed", choices=["loader", "gpu"], default="loader")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--cpus", type=int, help="pin this process and its workers to the first N CPUs")
    parser.add_argument("--profile", action="store_true", help="also report the GPU's busy time, by torch.profiler")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


class Pictures(Dataset):
    """Pictures of smooth noise, 256 x 256, compressed as JPEG once, decoded and transformed at each access."""

    def __init__(self, count, different=64):
        noise = numpy.random.default_rng(1)
        self.count, self.files = count, []
        for _ in range(different):
            coarse = Image.fromarray(noise.integers(0, 256, (16, 16, 3), dtype=numpy.uint8))
            file = io.BytesIO()
            coarse.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(CROP, antialias=True), transforms.RandomHorizontalFlip(), transforms.ToImage(),
            transforms.ToDtype(torch.float32, scale=True), transforms.Normalize([0.5] * 3, [0.25] * 3),
        ])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture), index % 10


def network():
    def block(inputs, outputs):
        return [torch.nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]

    layers = block(3, 64) + block(64, 128) + block(128, 256) + block(256, 512)
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10))


def main():
    args = options()
    measure.begin(args)
    random.seed(1)
    model = network().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    def step(pictures, labels):
        pictures, labels = pictures.to(args.device, non_blocking=True), labels.to(args.device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(pictures), labels)
        loss.backward()
        optimizer.step()
        return loss

    still = torch.rand(args.batch, 3, CROP, CROP, device=args.device), torch.randint(10, (args.batch,), device=args.device)
    for _ in range(5):
        step(*still).item()  # context, modules, algorithm choice: the cold start

    if args.feed == "gpu":
        source = (still for _ in range(args.steps))
    else:
        source = DataLoader(Pictures(args.steps * args.batch), args.batch, num_workers=args.workers,
                            pin_memory=args.workers > 0 and args.device == "cuda")
    with measure.Loop(args.profile) as loop:
        for pictures, labels in loop.batches(source):
            loss = step(pictures, labels).item()
    loop.report(feed=args.feed, loss=loss)


if __name__ == "__main__":
    main()
