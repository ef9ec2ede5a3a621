"""Runs breaching's Geiping preset on one case, in breaching's own Python environment.

``bench_peers.py`` writes the case and reads the answer; Exhume is not needed here.

    python peer_breaching.py CASE ANSWER

Without arguments, its exit code says whether breaching can be imported.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

TRIED = 20
"""Iterations for timing beforehand, this many and six times as many; they do not count."""

# torchvision's operators are compiled for another torch: its import only needs their names.
_NAMES = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _NAMES.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def main() -> None:
    import breaching  # noqa: F401 (tests whether it is installed)

    if len(sys.argv) == 1:
        return
    case_path, answer_path = sys.argv[1:]
    torch.set_num_threads(1)
    case = torch.load(case_path, weights_only=False)
    attack(case, TRIED)
    short, long = timed(case, TRIED), timed(case, 6 * TRIED)
    each = (long - short) / (5 * TRIED)
    iterations = max(1, int((case["seconds"] - short) / each) + TRIED)
    begun = time.process_time()
    images, iterations = attack(case, iterations)
    seconds = time.process_time() - begun
    images = images * case["spread"] + case["centre"]
    np.savez(answer_path, images=images.numpy(), seconds=seconds, iterations=iterations)


def timed(case: dict[str, Any], iterations: int) -> float:
    begun = time.process_time()
    attack(case, iterations)
    return time.process_time() - begun


def attack(case: dict[str, Any], iterations: int) -> tuple[torch.Tensor, int]:
    """Return the images (n, c, h, w) as the network sees them, after at most the preset's steps."""
    import breaching

    torch.manual_seed(case["seed"])
    config = breaching.get_config(overrides=["attack=invertinggradients"]).attack
    iterations = config.optim.max_iterations = min(iterations, config.optim.max_iterations)
    if case["variation"] is not None:
        config.regularization.total_variation.scale = case["variation"]
    setup = {"device": torch.device("cpu"), "dtype": torch.float}
    model, loss = case["model"], torch.nn.CrossEntropyLoss()
    attacker = breaching.attacks.prepare_attack(model, loss, config, setup)
    channels = case["shape"][0]
    about = SimpleNamespace(
        shape=case["shape"],
        mean=[case["centre"]] * channels,
        std=[case["spread"]] * channels,
        modality="vision",
    )
    payload = {
        "parameters": [p.detach() for p in model.parameters()],
        "buffers": [b.detach() for b in model.buffers()],
        "metadata": about,
    }
    metadata = {
        "num_data_points": len(case["labels"]),
        "labels": case["labels"],
        "local_hyperparams": None,
    }
    shared = {"gradients": list(case["gradients"]), "buffers": None, "metadata": metadata}
    found, _ = attacker.reconstruct([payload], [shared], {})
    return found["data"].detach(), iterations


if __name__ == "__main__":
    main()
