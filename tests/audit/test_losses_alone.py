"""Weights alone of networks with one output: two classes between them, or a number to predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.attacks.weights_only.test_kkt import halved

from exhume.attacks import KKT, RowSpace
from exhume.attacks.weights_only.authenticity import compare
from exhume.audit.build_setting import build
from exhume.audit.threat_model import threat_model
from exhume.config import Config, parse
from exhume.models import MLP, Activation
from exhume.protocol.errors import InputError
from exhume.training import SGD, Training
from exhume.training.stationary import Stationary

TOML = """
[[setting]]
name = "outside"

[setting.release]
file = "model.safetensors"
model = "mlp"
hidden = [60]
activation = "relu"
{batch}
{classes}

[setting.knowledge]
record_shape = [14, 14]
value_range = [0, 1]
initial = false
training = {{ learning_rate = 0.1, epochs = 1000, weight_decay = 3e-3, loss = "{loss}"{more} }}
"""


def config(folder: Path, loss: str, *, batch: str = "batch_size = 10", more: str = "") -> Config:
    classes = "classes = 2" if loss == "logistic" else ""
    text = TOML.format(loss=loss, batch=batch, classes=classes, more=more)
    return parse(text, folder=folder, source="a test")


def test_one_output_may_stand_for_two_classes(tmp_path):
    data, strangers = halved(10), halved(10, skip=200)
    own = Stationary(MLP((14, 14), 1, (60,), Activation.RELU), (0, 1), rounds=2)
    release = own.publish(data, rng=np.random.default_rng(0))
    assert own.score(release, data) == 1.0
    arrays = {name: np.asarray(a, dtype=np.float32) for name, a in release.parameters.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    setting = build(config(tmp_path, "logistic"), 0)
    assert isinstance(setting.mechanism, Stationary)
    assert "a 196-60-1 network (relu), trained to convergence" in threat_model(setting)[0]
    assert setting.given is not None
    found = RowSpace(records=10, draws=300).reconstruct(setting.given, setting.knowledge(0), rng=0)
    seen = compare(found.samples, data.x, strangers.x, centre=data.x.mean(axis=0))
    assert seen.recovered(0.8) >= 3
    assert seen.false_positives(0.8) == 0
    arrays["centre"] = arrays["centre"][:-1]
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(
        InputError, match=r"'centre' has shape \(13, 14\), the network's has \(14, 14\)"
    ):
        build(config(tmp_path, "logistic"), 0)


def test_a_number_may_be_what_is_predicted(tmp_path):
    data = halved(10)
    own = Training(MLP((14, 14), 1, (60,), Activation.RELU), None, SGD(0.05, 0.9, 3e-3), 3000)
    release = own.publish(data, rng=np.random.default_rng(0))
    save_file(dict(release.parameters), tmp_path / "model.safetensors")
    setting = build(config(tmp_path, "squared-error"), 0)
    assert isinstance(setting.mechanism, Training)
    assert setting.mechanism.classes is None
    assert setting.given is not None
    attack = KKT(records=10, steps=300, restarts=2, draws=200)
    found = attack.reconstruct(setting.given, setting.knowledge(0), rng=0)
    assert found.labels is None
    seen = compare(found.samples, data.x, halved(10, skip=200).x, centre=data.x.mean(axis=0))
    assert seen.recovered(0.7) >= 3
    assert seen.false_positives(0.7) <= 1
    assert found.stats["residual"] < 0.5 * found.stats["initial"]


def test_where_a_loss_is_told_from_the_labels_it_is_not_stated(tmp_path):
    with pytest.raises(InputError, match="loss goes with weights alone"):
        config(tmp_path, "squared-error", batch="")
    with pytest.raises(InputError, match="full-batch gradient descent"):
        config(tmp_path, "logistic", more=", batch_size = 2")
