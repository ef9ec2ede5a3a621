"""A release from a file: rebuilt where it leaks, and never a file that runs code."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.audit import small
from tests.audit.saved import Saved, save

from exhume.audit import Serial, Store, Summary, judge, make_plan, run
from exhume.config import load
from exhume.data.array_files import read_arrays
from exhume.protocol.errors import InputError, StoreError


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return save(tmp_path)


def _run(toml: Path) -> Summary:
    return run(make_plan(load(toml)), toml.parent / "run", Serial())


class TestWithTruth:
    def test_the_record_comes_out(self, saved: Saved) -> None:
        summary = _run(saved.write_toml())
        (bracket,) = summary.brackets
        assert bracket.attack == "glm"
        assert bracket.reached is not None
        assert (bracket.reached.successes, bracket.reached.trials) == (1, 1)
        with Store.open(saved.folder / "run") as store:
            (record,) = [r for r in store.outcomes() if r.trial.attack == "glm"]
            candidates = store.arrays(record.artefact)[f"{record.row}.samples"]
        assert record.label_correct
        np.testing.assert_allclose(candidates[0], saved.record, atol=1e-8)

    def test_other_file_types_hold_the_same(self, saved: Saved) -> None:
        arrays = load_file(saved.folder / "model.safetensors")
        np.savez(saved.folder / "model.npz", **arrays)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        torch.save(tensors, saved.folder / "model.pt")
        for name in ("model.npz", "model.pt"):
            again = read_arrays(saved.folder / name)
            assert {n: a.tobytes() for n, a in again.items()} == {
                n: a.tobytes() for n, a in arrays.items()
            }

    def test_a_model_saved_again_is_another_audit(self, saved: Saved) -> None:
        """Old records must not pass for those of a new model under the same name."""
        toml = saved.write_toml()
        _run(toml)
        save(saved.folder, target=3)
        with pytest.raises(StoreError, match="holds another audit"):
            _run(toml)

    def test_broken_weights_are_no_evidence(self, saved: Saved) -> None:
        arrays = load_file(saved.folder / "model.safetensors")
        save_file({**arrays, "coef": arrays["coef"] * np.nan}, saved.folder / "model.safetensors")
        summary = _run(saved.write_toml())
        assert {r.status for r in _records(saved)} == {"INVALID_RELEASE"}
        (verdict,) = judge(summary, 1.0)
        assert not verdict.passed
        assert "no attack really ran" in verdict.reason


class TestWithoutTruth:
    def test_candidates_and_evidence_but_no_error(self, saved: Saved) -> None:
        summary = _run(saved.write_toml(truth=False))
        (bracket,) = summary.brackets
        assert (bracket.reached, bracket.blind, bracket.ceiling) == (None, None, None)
        glm = next(r for r in _records(saved) if r.trial.attack == "glm")
        assert (glm.status, glm.success, glm.distance, glm.threshold) == (
            ("CONVERGED", None, None, None)
        )
        assert (dict(glm.scores), glm.label_correct) == ({}, None)
        assert glm.error_estimate is not None
        assert glm.error_estimate < 1e-6
        row = next(r for r in summary.rows if r.attack == "glm")
        assert (row.success, row.metrics, row.labels_correct) == (None, {}, None)
        assert row.error_estimate is not None
        with Store.open(saved.folder / "run") as store:
            candidates = store.arrays(glm.artefact)[f"{glm.row}.samples"]
            assert store.arrays("000-truth") == {}
        np.testing.assert_allclose(candidates[0], saved.record, atol=1e-8)

    def test_the_gate_does_not_take_it_for_safety(self, saved: Saved) -> None:
        (verdict,) = judge(_run(saved.write_toml(truth=False)), 1.0)
        assert not verdict.passed
        assert "the truth is not known" in verdict.reason

    @pytest.mark.parametrize("line", ["labels = true", "attributes = [0, 2]"])
    def test_what_is_known_of_the_target_needs_the_truth(self, saved: Saved, line: str) -> None:
        with pytest.raises(InputError, match=r"come from audit\.truth, which is missing"):
            _run(saved.write_toml(truth=False, knowledge=line))


def _records(saved: Saved) -> list:
    with Store.open(saved.folder / "run") as store:
        return [r for r in store.outcomes() if r.trial.attack != "oblivious"]


class _Bomb:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


class TestHostileFiles:
    @pytest.mark.parametrize("name", ["model.pkl", "model.pickle", "model.joblib"])
    def test_pickles_are_refused_unread(self, saved: Saved, name: str) -> None:
        mark = saved.folder / "executed"
        (saved.folder / name).write_bytes(pickle.dumps({"coef": _Bomb(mark)}))
        with pytest.raises(InputError, match="is refused: loading a pickle runs the code"):
            _run(saved.write_toml(file=name))
        assert not mark.exists()

    @pytest.mark.parametrize("legacy", [False, True], ids=["zip", "plain pickle"])
    def test_a_checkpoint_with_code_is_refused_unrun(self, saved: Saved, legacy: bool) -> None:
        mark, path = saved.folder / "executed", saved.folder / "model.pt"
        bomb = {"coef": torch.zeros(1, 30), "extra": _Bomb(mark)}
        if legacy:
            path.write_bytes(pickle.dumps(bomb))
        else:
            torch.save(bomb, path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match="it needs more than plain tensors") as caught:
                _run(saved.write_toml(file="model.pt"))
        assert "\n" not in str(caught.value)
        assert not mark.exists()
        # The bomb is real: a reader without the guard would have set it off.
        pickle.loads(path.read_bytes()) if legacy else torch.load(path, weights_only=False)
        assert mark.exists()

    @pytest.mark.parametrize("key", ["coef", "x"])
    def test_an_archive_of_objects_is_refused_unrun(self, saved: Saved, key: str) -> None:
        mark = saved.folder / "executed"
        hostile = np.array([_Bomb(mark)], dtype=object)
        if key == "coef":
            np.savez(saved.folder / "model.npz", coef=hostile, intercept=np.zeros(1))
            toml = saved.write_toml(file="model.npz")
        else:
            np.savez(saved.folder / "known.npz", x=hostile, y=np.zeros(1))
            toml = saved.write_toml()
        with pytest.raises(InputError, match="holds pickled Python objects"):
            _run(toml)
        assert not mark.exists()

    @pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt", ".pth"])
    @pytest.mark.parametrize("seed", range(6))
    def test_damaged_files_are_named(self, saved: Saved, suffix: str, seed: int) -> None:
        path = saved.folder / f"model{suffix}"
        whole = _whole(saved, suffix)
        rng = np.random.default_rng(seed)
        damaged = [b"", whole[: int(rng.integers(1, len(whole)))], rng.bytes(len(whole))][seed % 3]
        path.write_bytes(damaged)
        with pytest.raises(InputError) as caught:
            read_arrays(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def _whole(saved: Saved, suffix: str) -> bytes:
    arrays = load_file(saved.folder / "model.safetensors")
    path = saved.folder / f"whole{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, **arrays)
    elif suffix == ".safetensors":
        save_file(arrays, path)
    else:
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    return path.read_bytes()


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("arrays", "complaint"),
        [
            ({"coef": np.zeros((1, 29)), "intercept": np.zeros(1)}, "'coef' has 29 entries"),
            ({"coef": np.zeros((1, 30))}, "lacks 'intercept'"),
            ({"layer.weight": np.zeros((1, 30))}, "lacks 'coef'"),
            (
                {"coef": np.zeros((1, 30)), "intercept": np.zeros(1), "bias": np.zeros(1)},
                "bias",
            ),
        ],
    )
    def test_weights_of_another_model(
        self, saved: Saved, arrays: dict[str, np.ndarray], complaint: str
    ) -> None:
        save_file(arrays, saved.folder / "model.safetensors")
        with pytest.raises(InputError, match="does not go with the model") as caught:
            _run(saved.write_toml())
        assert complaint in str(caught.value)

    def test_a_truth_of_another_shape(self, saved: Saved) -> None:
        np.savez(saved.folder / "truth.npz", x=np.zeros((1, 7)), y=np.zeros(1, dtype=int))
        with pytest.raises(InputError, match=r"record of shape \(7,\), the fixed set \(30,\)"):
            _run(saved.write_toml())

    def test_a_fixed_set_without_labels(self, saved: Saved) -> None:
        np.savez(saved.folder / "known.npz", x=np.eye(30))
        with pytest.raises(InputError, match="have no labels"):
            _run(saved.write_toml())

    def test_a_fixed_set_of_one_class(self, saved: Saved) -> None:
        np.savez(saved.folder / "known.npz", x=np.eye(30), y=np.ones(30, dtype=int))
        with pytest.raises(InputError, match="exactly 2 classes, got 1"):
            _run(saved.write_toml())

    @pytest.mark.parametrize("kind", ["list", "nested", "numbers"])
    def test_checkpoints_of_other_things(self, saved: Saved, kind: str) -> None:
        content = {
            "list": [torch.zeros(3)],
            "nested": {"layers": {"first": {"coef": torch.zeros(3)}}},
            "numbers": {"coef": 3.0},
        }[kind]
        torch.save(content, saved.folder / "model.pt")
        with pytest.raises(InputError, match=r"model\.pt"):
            read_arrays(saved.folder / "model.pt")

    def test_parameters_that_require_gradients_are_read(self, saved: Saved) -> None:
        torch.save({"coef": torch.nn.Parameter(torch.ones(3))}, saved.folder / "model.pt")
        np.testing.assert_array_equal(read_arrays(saved.folder / "model.pt")["coef"], np.ones(3))

    @pytest.mark.parametrize("name", ["model.csv", "model", "none.safetensors", "."])
    def test_no_such_file(self, saved: Saved, name: str) -> None:
        (saved.folder / "model.csv").touch()
        (saved.folder / "model").touch()
        with pytest.raises(InputError, match=r"there is no file|must be a \.safetensors"):
            read_arrays(saved.folder / name)


def test_outputs_from_a_file(tmp_path: Path) -> None:
    """Answers alone, in a file of queries and values."""
    saved = save(tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    queries = np.random.default_rng(0).standard_normal((80, 30))
    scores = queries @ arrays["coef"].T + arrays["intercept"]
    np.savez(tmp_path / "answers.npz", queries=queries, values=scores)
    toml = saved.write_toml(file="answers.npz")
    toml.write_text(toml.read_text().replace("[release]", '[release]\nkind = "outputs"'))
    (bracket,) = _run(toml).brackets
    assert bracket.reached is not None
    assert bracket.reached.successes == 1
    # The same process again: what it remembers of the old file must not answer for the new one.
    np.savez(tmp_path / "answers.npz", queries=queries)
    with pytest.raises(InputError, match="lacks 'values'"):
        run(make_plan(load(toml)), tmp_path / "another", Serial())
    assert small.rows(tmp_path / "another") == {}
