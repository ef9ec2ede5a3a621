"""Audits of DP training by its transcript, through the command line: attack, bound, empirical ε."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import invoke

from exhume.audit.register import Register, decoys_of
from exhume.bounds import gammas
from exhume.data.array_files import write_arrays
from exhume.models import MLP
from exhume.models.initialise import Initialisation
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import SGD, Batches, DPClipping, Recorded, Training

TRAINING = """learning_rate = 0.2
epochs = 4
clipping = { norm = 1.0, noise_multiplier = 1.0 }
"""
PLAIN = f"""[data]
name = "digits"
fixed_set = 40
[release]
kind = "transcript"
model = "mlp"
[knowledge.training]
{TRAINING}
[audit]
targets = 12
"""


def _run(text: str, folder: Path) -> dict[str, Any]:
    (folder / "audit.toml").write_text(text)
    found = invoke("audit", folder / "audit.toml", "--out", folder / "run")
    assert found.code == 0, found.error
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return summary


def test_the_attack_stands_beside_the_bound_at_one_in_k(tmp_path: Path) -> None:
    summary = _run(
        PLAIN.replace("[knowledge.t", "[knowledge]\ncandidates = 5\n[knowledge.t"), tmp_path
    )
    (bracket,), (setting,) = summary["brackets"], summary["settings"]
    training = Training(MLP((8, 8), 10), tuple(range(10)), epochs=4, clipping=DPClipping(1.0, 1.0))
    bound = gammas(training.event(41), [0.2])
    assert bound is not None
    assert bracket["ceiling"] == pytest.approx(bound[0])
    assert setting["bound_at"]["kappa"] == 0.2
    assert bracket["attack"] == "prior-aware"
    assert bracket["candidates"] == 5
    # ε of two Gaussians 2 apart: what Opacus' accountants say too.
    assert setting["epsilon"] == pytest.approx(9.997, abs=0.01)
    assert bracket["empirical_epsilon"] <= setting["epsilon"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "named among 5 candidates each" in page
    assert "The trials prove ε ≥" in page


def test_a_register_of_the_users_own_is_used_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "register.npz", x=rng.random((7, 8, 8)), y=rng.integers(10, size=7))
    text = PLAIN.replace("[knowledge.t", '[knowledge]\ncandidates = "register.npz"\n[knowledge.t')
    (setting,) = _run(text, tmp_path)["settings"]
    # Seven on the list, and the target, which is not on it.
    assert setting["candidates"] == 8
    assert setting["bound_at"]["kappa"] == pytest.approx(1 / 8)


def test_without_candidates_the_record_itself_is_rebuilt(tmp_path: Path) -> None:
    text = PLAIN.replace("[knowledge.t", "[knowledge]\ncandidates = 0\nlabels = true\n[knowledge.t")
    text = text.replace("noise_multiplier = 1.0", "noise_multiplier = 0.01")
    summary = _run(text.replace("targets = 12", 'targets = 2\nattacks = ["prior-aware"]'), tmp_path)
    (bracket,), (setting,) = summary["brackets"], summary["settings"]
    assert (bracket["attack"], bracket["reached"]["rate"]) == ("prior-aware", 1.0)
    # Success is to come close, so a blind guess is bounded from records like the targets.
    assert "candidates" not in bracket
    assert "bounded from" in setting["bound_note"]
    assert not any("candidates" in one for one in setting["threat"])


def test_one_training_with_canaries_limits_epsilon(tmp_path: Path) -> None:
    text = PLAIN.replace("targets = 12", "targets = 2\ncanaries = 60")
    text = text.replace("noise_multiplier = 1.0", "noise_multiplier = 0.3")
    (setting,) = _run(text, tmp_path)["settings"]
    assert setting["canaries"]["canaries"] == 60
    assert 0.5 < setting["canaries"]["lower"] < setting["epsilon"]


def _file(folder: Path, *, steps: slice = slice(None)) -> Records:
    """Train outside of any audit, and write what a curious server keeps."""
    rng = np.random.default_rng(3)
    data = Records(rng.random((21, 6)), rng.integers(3, size=21))
    training = Training(
        MLP((6,), 3, (8,)),
        (0, 1, 2),
        SGD(0.2),
        epochs=6,
        batches=Batches(7, None, poisson=True),
        initial=Initialisation(seed=0),
        clipping=DPClipping(0.5, 0.2),
    )
    whole = Recorded(training).publish(data, rng=rng)
    kept = replace(
        whole,
        parameters={n: a[steps] for n, a in whole.parameters.items()},
        gradients={n: a[steps] for n, a in whole.gradients.items()},
        steps=whole.steps[steps],
        members=None if whole.members is None else whole.members[steps],
    )
    write_arrays(folder / "transcript.safetensors", dict(kept.arrays()))
    for name, part in (("known", data.take(slice(0, 20))), ("truth", data.take([20]))):
        np.savez(folder / f"{name}.npz", x=part.x, y=part.labels)
    np.savez(folder / "others.npz", x=rng.random((9, 6)), y=rng.integers(3, size=9))
    return data


FILE = """[release]
kind = "transcript"
file = "transcript.safetensors"
model = "mlp"
hidden = [8]
[knowledge]
fixed_set = "known.npz"
candidates = "others.npz"
[knowledge.training]
learning_rate = 0.2
epochs = 6
batch_size = 7
poisson = true
clipping = { norm = 0.5, noise_multiplier = 0.2 }
"""


def test_a_transcript_from_a_file_is_attacked(tmp_path: Path) -> None:
    _file(tmp_path)
    summary = _run(FILE + '[audit]\ntruth = "truth.npz"\n', tmp_path)
    (bracket,) = summary["brackets"]
    assert bracket["reached"]["successes"] == 1
    assert bracket["candidates"] == 10


def test_a_transcript_without_a_step_is_refused_in_one_line(tmp_path: Path) -> None:
    _file(tmp_path, steps=slice(0, 17))
    (tmp_path / "audit.toml").write_text(FILE)
    found = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run")
    assert found.code == 2
    assert "lacks step 17" in found.error


def test_a_transcript_of_another_model_is_refused_in_one_line(tmp_path: Path) -> None:
    _file(tmp_path)
    (tmp_path / "audit.toml").write_text(FILE.replace("hidden = [8]", "hidden = [9]"))
    found = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run")
    assert found.code == 2
    assert "another model" in found.error


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[knowledge.t", "[knowledge]\nlabels = true\n[knowledge.t", "would tell some of them"),
        ("[knowledge.t", "[knowledge]\ncandidates = 1\n[knowledge.t", "candidates"),
        ('"transcript"', '"weights"\nevery = 2', "every goes with"),
        ('model = "mlp"', 'model = "mlp"\ndefences = [{ name = "sign" }]', "the training's own"),
        ("targets = 12", "kappa = 0.1\nsimilar = 'a.npz'", "either kappa or similar"),
        ("targets = 12", "targets = 12\ncanaries = 5000", "5000 canaries"),
    ],
)
def test_bad_tables_are_refused_in_one_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "audit.toml").write_text(PLAIN.replace(old, new))
    found = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path / "run")
    assert found.code == 2
    assert message in found.error


GIVEN = """[release]
kind = "weights"
file = "model.safetensors"
model = "mlp"
hidden = [8]
[knowledge]
fixed_set = "known.npz"
[knowledge.training]
learning_rate = 0.2
epochs = 6
clipping = { norm = 0.5, noise_multiplier = 5.0 }
[audit]
attacks = []
"""


def _weights(folder: Path) -> None:
    _file(folder)
    arrays = Initialisation(seed=0).draw(MLP((6,), 3, (8,)), np.random.default_rng(0))
    write_arrays(folder / "model.safetensors", dict(arrays))


def test_without_targets_the_bound_is_a_table_over_kappa(tmp_path: Path) -> None:
    _weights(tmp_path)
    (setting,) = _run(GIVEN, tmp_path)["settings"]
    assert setting["bound_at"] is None
    assert [point["kappa"] for point in setting["bound_over_kappa"]][:2] == [0.5, 0.1]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Proven limit by κ, the chance of a blind guess: κ = 0.5:" in page
    assert "choose κ below" in page
    assert "Limit for every attack over the chance of a blind guess" in page


def test_kappa_can_be_said_or_bounded_from_similar_records(tmp_path: Path) -> None:
    _weights(tmp_path)
    (setting,) = _run(GIVEN + "kappa = 0.01\n", tmp_path)["settings"]
    assert setting["bound_at"]["kappa"] == 0.01
    rng = np.random.default_rng(5)
    np.savez(tmp_path / "similar.npz", x=rng.random((300, 6)), y=rng.integers(3, size=300))
    (tmp_path / "run").rename(tmp_path / "before")
    (setting,) = _run(GIVEN + 'similar = "similar.npz"\n', tmp_path)["settings"]
    assert setting["prior_samples"] == 300
    assert 0.0 < setting["bound_at"]["kappa"] < 0.5


def test_a_register_hides_the_targets_place_and_leaves_its_copies_out() -> None:
    rng = np.random.default_rng(0)
    decoys, truth = Records(rng.random((30, 2)), np.arange(30)), Records(np.ones((1, 2)), [99])
    with_copy = decoys.with_record(truth)
    register = Register.drawn(with_copy, 10, seed=1)
    places = set()
    for index in range(40):
        around = register.around(truth, index)
        assert len(around) == 10
        (place,) = np.flatnonzero(around.labels == 99)
        places.add(int(place))
    assert len(places) > 6
    with pytest.raises(InputError, match="40 candidates need 39"):
        Register.drawn(decoys, 40, seed=1).around(truth, 0)
    with pytest.raises(InputError, match="none are left"):
        decoys_of([None], 3)
    assert len(decoys_of([None, decoys.take([0]), decoys], 5)) == 30
