"""Gradient matching against breaching 0.1.2: the same images, parameters, gradient and seconds.

breaching runs its Geiping preset (``attack=invertinggradients``; total variation 0.2 unless
``--variation`` is given) in its own Python, for as many iterations as fit into the processor time
that Exhume took, at most its own 24,000. Both know the labels, and neither sees the truth. The
benchmark is skipped if no Python with breaching is given.

    python -m venv peers && peers/bin/pip install torch hydra-core scipy tqdm pandas pillow
    peers/bin/pip install --no-deps torchvision==0.28.0 lpips==0.1.4 breaching==0.1.2
    EXHUME_DATA=... python benchmarks/bench_peers.py --breaching peers/bin/python --rounds 10
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from bench_matching import Measured, build, different, mean_colour, measured, psnr, runs
from torch import nn

from exhume.attacks import Attack
from exhume.attacks.gradients.matching import DLG, Geiping
from exhume.data import load
from exhume.models.convnet import ConvNet
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep

ATTACKS: dict[str, tuple[int, Attack]] = {"lenet": (1, DLG()), "convnet": (4, Geiping())}
RUNNER = Path(__file__).with_name("peer_breaching.py")


def main() -> None:
    torch.set_num_threads(1)
    options = parsed()
    if not options.breaching:
        print("skipped: name a Python that has breaching by --breaching or EXHUME_BREACHING")
        return
    answer = subprocess.run([options.breaching, RUNNER], capture_output=True, text=True)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"skipped: breaching does not run in {options.breaching} ({last})")
        return
    data = load("cifar-10")
    assert data.test is not None
    count, attack = ATTACKS[options.victim]
    ours, theirs = [], []
    for number, seed in runs(options):
        batch = different(data.test, options.first + 40 * number, count)
        step = build(options.victim, seed)
        ours.append(measured(attack, step, batch, seed))
        theirs.append(breached(options, step, batch, seed, ours[-1].seconds))
        print(
            f"  batch {number} seed {seed}: {ours[-1].psnr.mean():.2f} dB {ours[-1].status}, "
            f"breaching {theirs[-1].psnr.mean():.2f} dB ({theirs[-1].status}), "
            f"mean colour {ours[-1].colour.mean():.2f} dB, CPU-s "
            f"{ours[-1].seconds:.1f} and {theirs[-1].seconds:.1f}",
            flush=True,
        )
    show(options.victim, attack, count, ours, theirs)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--breaching", default=os.environ.get("EXHUME_BREACHING"), help="Python to run it with")
    add("--victim", choices=tuple(ATTACKS), default="lenet")
    add("--rounds", type=int, default=2, help="number of batches; the three seeds alternate")
    add("--every-seed", action="store_true", help="run each batch with each of the three seeds")
    add("--first", type=int, default=1000, help="first image in the test set")
    add("--variation", type=float, help="weight of breaching's total variation")
    return parser.parse_args()


def breached(
    options: argparse.Namespace, step: GradientStep, batch: Records, seed: int, seconds: float
) -> Measured:
    """Return breaching's result for the same release in about ``seconds``."""
    release = step.publish(batch, rng=np.random.default_rng(seed))
    model = plain(step)
    named = [dict(release.arrays())[name] for name in step.network.parameter_shapes()]
    network = step.network
    centre, spread = 0.0, 1.0
    if isinstance(network, ConvNet):
        centre, spread = network.centre, network.spread
    case = {
        "model": model,
        "gradients": [torch.tensor(a, dtype=torch.float32) for a in named],
        "labels": torch.tensor(batch.labels),
        "shape": [batch.x.shape[-1], *batch.x.shape[1:3]],
        "centre": centre,
        "spread": spread,
        "seconds": seconds,
        "seed": seed,
        "variation": options.variation,
    }
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder, "case.pt"), Path(folder, "answer.npz")
        torch.save(case, given)
        command = [options.breaching, RUNNER, given, answer]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"breaching failed:\n{ended.stderr}")
        with np.load(answer) as found:
            images = np.moveaxis(found["images"].astype(np.float64), 1, -1)
            said = f"{int(found['iterations'])} iterations"
            return Measured(psnr(batch, images), mean_colour(batch), float(found["seconds"]), said)


def plain(step: GradientStep) -> nn.Module:
    """Return the network with its parameters, without Exhume's own first layers.

    They standardise and put channels first: breaching does both itself.
    """
    objective = step.objective()
    module = objective.network.build()
    parameters = step.parameters()
    with torch.no_grad():
        for name, values in module.named_parameters():
            values.copy_(torch.tensor(parameters[name]))
    assert isinstance(module, nn.Sequential)
    return nn.Sequential(*[part for part in module if type(part).__module__.startswith("torch.")])


def show(
    victim: str, attack: Attack, count: int, ours: list[Measured], theirs: list[Measured]
) -> None:
    print("victim    B  runs  attack      PSNR mean [min - max]      CPU-s   mean colour")
    for name, rows in ((attack.name, ours), ("breaching", theirs)):
        found = np.concatenate([row.psnr for row in rows])
        colour = np.concatenate([row.colour for row in rows]).mean()
        seconds = np.mean([row.seconds for row in rows])
        print(
            f"{victim:8s} {count:2d} {len(rows):5d}  {name:10s} {found.mean():6.1f} dB "
            f"[{found.min():5.1f} - {found.max():5.1f}] {seconds:8.1f} {colour:9.1f} dB"
        )
    better = [float(a.psnr.mean() - b.psnr.mean()) for a, b in zip(ours, theirs, strict=True)]
    ratio = sum(row.seconds for row in ours) / sum(row.seconds for row in theirs)
    print(
        f"above breaching: {np.mean(better):.1f} dB, at least {min(better):.1f} dB; "
        f"{ratio:.2f} of its CPU time"
    )


if __name__ == "__main__":
    main()
