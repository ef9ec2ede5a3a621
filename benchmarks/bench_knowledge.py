"""What each fact is worth to an adversary: one network and one loop, audited with less and less.

The records are scikit-learn's digits, 100 of them known and one not. The loop below is run as it
is, or described. Success is a record that is rebuilt closer than any known one.

    python benchmarks/bench_knowledge.py
    python benchmarks/bench_knowledge.py --targets 10 --variants description no-order
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from exhume.audit import Serial, make_plan, run
from exhume.config import parse

EPOCHS, RATE, BATCH = 6, 0.005, 26


def make() -> nn.Module:
    """A convolution with batch normalisation, and a classifier; records (8, 8)."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def train(x, y, *, seed):  # type: ignore[no-untyped-def]
    """AdamW with a cosine schedule, in batches."""
    torch.manual_seed(seed)
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    net = make().train()
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    return net


OWN = 'release = { training = "bench_knowledge:train" %s }\nknowledge = { %s }'
DESCRIBED = f"""
release = {{ model = "bench_knowledge:make" }}
[knowledge]
training = {{ optimiser = "adamw", learning_rate = {RATE}, weight_decay = 0.01, epochs = {EPOCHS}, \
batch_size = {BATCH}, schedule = {{ name = "cosine" }} }}
"""
VARIANTS = {
    "seed": (400, OWN % ("", "seed = true")),
    "few": (40, OWN % ("", "seed = true")),
    "answers": (400, OWN % (', kind = "outputs"', "seed = true")),
    "half": (400, OWN % ("", 'seed = true, attributes = "upper-half"')),
    "no-seed": (400, OWN % ("", "")),
    "description": (0, DESCRIBED),
    "no-order": (400, DESCRIBED + "order = false\n"),
    "no-start": (400, DESCRIBED + "initial = false\n"),
}
"""What the adversary has: the number of shadow targets, and the rest."""


def report(name: str, targets: int, folder: Path) -> None:
    shadows, rest = VARIANTS[name]
    data = f'data = {{ name = "digits", fixed_set = 100, shadow_targets = {shadows} }}\n'
    text = f"{data}{rest}\n[audit]\ntargets = {targets}\n"
    started = time.process_time()
    found = run(make_plan(parse(text, folder=folder, source=name)), folder / name, Serial())
    spent = time.process_time() - started
    (bracket,) = found.brackets
    reached = bracket.reached
    rate = "no attack ran"
    if reached is not None:
        rate = (
            f"{bracket.attack} {reached.successes}/{reached.trials} "
            f"[{reached.low:.0%}-{reached.high:.0%}]"
        )
    blind = "" if bracket.blind is None else f", blind {bracket.blind.rate:.0%}"
    print(f"{name:12s} {rate}{blind}, {spent:.0f} CPU s", flush=True)
    for row in found.rows:
        middle = row.metrics["rmse"].median if row.metrics else float("nan")
        print(f"    {row.attack:22s} ran {row.ran}/{row.trials}, median rmse {middle:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.variants:
            report(name, options.targets, Path(folder))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
