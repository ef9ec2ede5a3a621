"""Audits from Python: a loop that is at hand, live modules, a run as a data frame."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tests.training import own_loops
from torch import nn

import exhume
from exhume.api import _frame
from exhume.data import load
from exhume.models.live import LiveNetwork
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Transcript
from exhume.training import Training

DIGITS = load("digits").train


def audited(out: Path, **more: object) -> exhume.AuditedRun:
    def train(x, y, *, seed):  # type: ignore[no-untyped-def]
        return own_loops.state_dict(x, y, seed=seed)

    return exhume.audit_training(
        train,
        (DIGITS.x, DIGITS.labels),
        out=out,
        fixed_set=40,
        shadow_targets=16,
        targets=3,
        value_range=(0, 1),
        attacks=["ridge"],
        quiet=True,
        **more,  # type: ignore[arg-type]
    )


class TestATrainingLoop:
    def test_a_function_at_hand_is_audited_and_its_trials_are_a_frame(self, tmp_path: Path) -> None:
        found = audited(tmp_path / "run", labels=True)
        assert found.report.is_file()
        assert "1 of 1 attacks ran." in str(found).splitlines()
        assert str(found).splitlines()[-1] == f"report: {found.report}"
        frame = found.trials()
        assert isinstance(frame, pd.DataFrame)
        own = frame[frame.attack == "ridge"]
        assert list(own.target) == [0, 1, 2]
        assert own.ran.all()
        row = next(row for row in found.summary.rows if row.attack == "ridge")
        assert own.score_rmse.mean() == pytest.approx(row.metrics["rmse"].mean)
        again = exhume.open_run(tmp_path / "run").trials()
        pd.testing.assert_frame_equal(frame, again)

    def test_polars_reads_every_row_for_its_types(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[object] = []

        def frame(rows: list[dict[str, object]], *, infer_schema_length: int | None = 100) -> str:
            made.extend((len(rows), infer_schema_length))
            return "a frame"

        monkeypatch.setitem(sys.modules, "pandas", None)
        monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=frame))
        assert _frame([{"distance": None}, {"distance": 0.5}]) == "a frame"
        assert made == [2, None]
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(InputError, match="pip install pandas"):
            _frame([])

    def test_other_processes_cannot_find_it(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot import"):
            audited(tmp_path / "run", workers=2)

    def test_the_same_as_from_a_file(self, tmp_path: Path) -> None:
        """A loop that can be imported, in Python and in TOML: the same shadow models and models."""
        from tests.audit import small

        from exhume.audit import Serial, run

        toml = """
            [data]
            name = "digits"
            fixed_set = 40
            shadow_targets = 16
            [release]
            training = "tests.training.own_loops:convolutional"
            """
        audit = small.audit(2, attacks='["ridge"]')
        expected = run(small.plan(toml, audit), tmp_path / "toml", Serial())
        found = exhume.audit_training(
            own_loops.convolutional,
            DIGITS,
            out=tmp_path / "python",
            fixed_set=40,
            shadow_targets=16,
            targets=2,
            value_range=(0, 1),
            attacks=["ridge"],
            quiet=True,
        )
        assert [r.metrics for r in found.summary.rows] == [r.metrics for r in expected.rows]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


BATCH = torch.tensor(np.array(DIGITS.x[:2])).float(), torch.tensor(np.array(DIGITS.labels[:2]))


class TestLiveModules:
    def test_a_module_is_a_network_that_trains(self) -> None:
        own = exhume.torch.network(network(), (8, 8))
        assert isinstance(own, LiveNetwork)
        assert (own.record_shape, own.outputs) == ((8, 8), 10)
        training = Training(own, tuple(range(10)), epochs=40)
        release = training.publish(DIGITS.take(slice(0, 100)), rng=np.random.default_rng(0))
        assert training.score(release, DIGITS.take(slice(0, 100))) > 0.9

    def test_the_shape_of_a_record_is_read_or_asked_for(self) -> None:
        assert exhume.torch.network(nn.Sequential(nn.Linear(5, 3))).record_shape == (5,)
        with pytest.raises(InputError, match="give record_shape"):
            exhume.torch.network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()))
        with pytest.raises(InputError, match="does not take records of shape"):
            exhume.torch.network(nn.Sequential(nn.Linear(5, 3)), (4,))

    def test_a_gradient_is_autograds_and_leaves_the_module_alone(self) -> None:
        module = nn.Sequential(*network(), nn.BatchNorm1d(10))
        before = {name: t.clone() for name, t in module.state_dict().items()}
        release, knowledge = exhume.torch.gradient(module, nn.CrossEntropyLoss(), *BATCH)
        nn.CrossEntropyLoss()(module(BATCH[0]), BATCH[1]).backward()
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            np.testing.assert_array_equal(release.gradients[name], parameter.grad.numpy())
        assert release.batch_size == 2
        assert knowledge.record_shape == (8, 8)
        fresh = nn.Sequential(*network(), nn.BatchNorm1d(10))
        exhume.torch.gradient(fresh, nn.CrossEntropyLoss(), *BATCH)
        for name, tensor in fresh.state_dict().items():
            assert torch.equal(tensor, before[name])

    @pytest.mark.parametrize("labels", [np.int64, np.int32, np.uint8])
    def test_arrays_do_as_well_as_tensors(self, labels: type) -> None:
        x, y = DIGITS.x[:2], DIGITS.labels[:2].astype(labels)
        of_tensors, _ = exhume.torch.gradient(network(), nn.CrossEntropyLoss(), *BATCH)
        of_arrays, knowledge = exhume.torch.gradient(
            network(), nn.CrossEntropyLoss(), x, y, shadow_targets=DIGITS.x[10:20]
        )
        for name, values in of_tensors.gradients.items():
            np.testing.assert_array_equal(of_arrays.gradients[name], values)
        assert len(knowledge.pool()) == 10
        pair = (torch.tensor(DIGITS.x[10:20]), torch.tensor(DIGITS.labels[10:20]))
        _, knowledge = exhume.torch.gradient(
            network(), nn.CrossEntropyLoss(), x, y, shadow_targets=pair
        )
        assert knowledge.shadow_targets is not None
        np.testing.assert_array_equal(knowledge.shadow_targets.labels, DIGITS.labels[10:20])

    @pytest.mark.parametrize(
        "loss", [nn.CrossEntropyLoss(reduction="sum"), nn.CrossEntropyLoss(label_smoothing=0.2)]
    )
    def test_a_loss_that_the_attacks_do_not_know_is_refused(self, loss: nn.Module) -> None:
        with pytest.raises(InputError, match="not that of the mean cross-entropy"):
            exhume.torch.gradient(network(), loss, *BATCH)

    def test_an_update_is_the_clients(self) -> None:
        before, after = network(), network()
        descent = torch.optim.SGD(after.parameters(), 0.1, momentum=0.5)
        for _ in range(3):
            descent.zero_grad()
            nn.functional.cross_entropy(after(BATCH[0]), BATCH[1]).backward()
            descent.step()
        wrapped = {f"module.{name}": t for name, t in after.state_dict().items()}
        release, knowledge = exhume.torch.update(
            before,
            wrapped,
            records=2,
            learning_rate=0.1,
            momentum=0.5,
            steps=3,
            record_shape=(8, 8),
        )
        data = Records(BATCH[0].numpy(), BATCH[1].numpy())
        assert knowledge.training is not None
        own = knowledge.training.publish(data, rng=np.random.default_rng(0))
        for name, change in own.arrays():
            np.testing.assert_allclose(release.changes[name], change, atol=1e-6)

    def test_after_must_be_before_trained_on(self) -> None:
        with pytest.raises(InputError, match="after is not the module before"):
            exhume.torch.update(network(), {"0.weight": torch.ones(2)}, records=1, learning_rate=1)


class TestARelease:
    def test_a_gradient_is_attacked_and_compared_with_the_truth(self, tmp_path: Path) -> None:
        release, knowledge = exhume.torch.gradient(
            network(),
            nn.CrossEntropyLoss(),
            *BATCH,
            value_range=(0, 1),
            shadow_targets=DIGITS.take(slice(10, 60)),
        )
        found = exhume.audit_release(
            release,
            knowledge,
            truth=BATCH,
            attacks=["first-layer"],
            out=tmp_path / "run",
            quiet=True,
        )
        frame = found.trials()
        own = frame[frame.attack == "first-layer"]
        assert own.success.all()
        assert own.distance.max() < 1e-4
        assert not frame[frame.blind].success.any()

    def test_without_the_truth_nothing_is_claimed(self, tmp_path: Path) -> None:
        release, knowledge = exhume.torch.gradient(network(), nn.CrossEntropyLoss(), *BATCH)
        found = exhume.audit_release(
            release, knowledge, attacks=["first-layer"], out=tmp_path / "run", quiet=True
        )
        assert found.trials().success.isna().all()

    def test_weights_beside_a_fixed_set(self, tmp_path: Path) -> None:
        from exhume.training import GLM, Family, Penalty

        data = load("breast-cancer").train.take(slice(0, 80))
        model = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
        release = model.publish(data, rng=np.random.default_rng(0))
        knowledge = exhume.Knowledge(
            record_shape=data.record_shape, training=model, fixed_set=data.take(slice(0, 79))
        )
        found = exhume.audit_release(
            release, knowledge, truth=data.take([79]), out=tmp_path / "run", quiet=True
        )
        row = found.trials().set_index("attack").loc["glm"]
        assert row.success

    def test_what_nobody_said_is_asked_for(self, tmp_path: Path) -> None:
        release, knowledge = exhume.torch.gradient(network(), nn.CrossEntropyLoss(), *BATCH)
        with pytest.raises(InputError, match=r"add knowledge\.shadow_targets"):
            exhume.audit_release(release, knowledge, truth=BATCH, out=tmp_path / "run", quiet=True)
        with pytest.raises(InputError, match="truth must be 2 records"):
            exhume.audit_release(
                release, knowledge, truth=(BATCH[0][:1], BATCH[1][:1]), out=tmp_path, quiet=True
            )
        weights = exhume.Weights({"w": np.ones(3)})
        with pytest.raises(InputError, match="how many records the model was trained on"):
            exhume.audit_release(weights, knowledge, out=tmp_path / "run", quiet=True)
        steps = {"w": np.ones((1, 3))}
        seen = Transcript(steps, steps, {"w": np.ones(3)}, np.zeros(1))
        with pytest.raises(InputError, match="not Transcript; a transcript is audited from a file"):
            exhume.audit_release(seen, knowledge, records=2, out=tmp_path / "run", quiet=True)
