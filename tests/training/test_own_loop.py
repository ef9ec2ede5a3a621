"""A training loop of the user's own as a mechanism."""

from __future__ import annotations

import random
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training import own_loops

from exhume.data import load
from exhume.models import Imported
from exhume.models.own_code import OwnCode, code_named, code_of
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import Loop
from exhume.training.own_loop import repetition

DIGITS = load("digits").train.take(slice(0, 120))
TEN = tuple(range(10))


def loop(name: str, **others: object) -> Loop:
    return Loop(code_named(f"tests.training.own_loops:{name}"), TEN, **others)  # type: ignore[arg-type]


def publish(mechanism: Loop, seed: int = 0) -> Weights:
    return mechanism.publish(DIGITS, rng=np.random.default_rng(seed))


class TestTraining:
    def test_it_releases_what_the_loop_returns_buffers_included(self) -> None:
        mechanism = loop("convolutional", seed=5)
        torch.manual_seed(1)
        before = torch.random.get_rng_state()
        found = publish(mechanism)
        alone = own_loops.convolutional(np.array(DIGITS.x), np.array(DIGITS.labels), seed=5)
        expected = alone.state_dict()
        assert list(found.parameters) == list(expected)
        assert "1.running_mean" in found.parameters
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found.parameters[name], tensor.numpy())
        torch.manual_seed(1)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_nobodys_random_streams_are_moved(self) -> None:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        states = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
        publish(loop("forgetful"))
        assert torch.equal(states[0], torch.random.get_rng_state())
        assert random.getstate() == states[1]
        np.testing.assert_array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002

    def test_a_secret_seed_comes_from_the_stream(self) -> None:
        mechanism = loop("state_dict")
        one, again, other = publish(mechanism, 0), publish(mechanism, 0), publish(mechanism, 1)
        np.testing.assert_array_equal(one.parameters["1.weight"], again.parameters["1.weight"])
        assert not np.array_equal(one.parameters["1.weight"], other.parameters["1.weight"])

    def test_a_known_seed_is_the_same_for_every_training(self) -> None:
        mechanism = loop("state_dict", seed=2)
        one, other = publish(mechanism, 0), publish(mechanism, 1)
        np.testing.assert_array_equal(one.parameters["1.weight"], other.parameters["1.weight"])

    def test_half_precision_is_widened_exactly(self) -> None:
        found = publish(loop("halves")).parameters["1.weight"]
        assert found.dtype == np.float32
        assert np.array_equal(found, torch.tensor(found).bfloat16().float().numpy())


class TestRepetition:
    def test_a_loop_that_seeds_itself_repeats_bit_for_bit(self) -> None:
        found = repetition(loop("convolutional"), DIGITS)
        assert found.exact
        assert "bit for bit" in found.describe()

    def test_a_loop_that_forgets_its_seed_is_found_out(self) -> None:
        found = repetition(loop("forgetful"), DIGITS)
        assert found.difference > 0.01
        assert "does not come from the seed" in found.describe()

    def test_a_known_seed_does_not_repeat_a_loop_that_forgets_it(self) -> None:
        mechanism = loop("forgetful", seed=1)
        one, other = publish(mechanism, 0), publish(mechanism, 1)
        assert not np.array_equal(one.parameters["1.weight"], other.parameters["1.weight"])


class TestAnswers:
    @pytest.mark.parametrize("name", ["convolutional", "state_dict"])
    def test_scores_are_the_networks_own(self, name: str) -> None:
        network = Imported((8, 8), 10, "tests.training.own_loops:mlp")
        mechanism = loop(name, network=network if name == "state_dict" else None)
        release = publish(mechanism)
        found = mechanism.scores(release, DIGITS.x)
        if name == "state_dict":
            net = own_loops.mlp().eval()
            x = torch.tensor(np.array(DIGITS.x), dtype=torch.float32)
        else:
            drawn = int(np.random.default_rng(0).integers(2**31, size=2)[0])
            net = own_loops.convolutional(np.array(DIGITS.x), np.array(DIGITS.labels), seed=drawn)
            net.eval()
            x = torch.tensor(np.array(DIGITS.x), dtype=torch.float32).unsqueeze(1)
        net.load_state_dict({n: torch.tensor(np.array(a)) for n, a in release.parameters.items()})
        np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-5, atol=1e-5)
        # Half of the labels are right by far more than chance (0.1) would have it.
        assert mechanism.score(release, DIGITS) > 0.5

    def test_probabilities_are_read_as_such(self) -> None:
        mechanism = loop("probabilities")
        means = mechanism.means(mechanism.scores(publish(mechanism), DIGITS.x))
        net = own_loops.probabilities(None, None, seed=0)
        expected = net(torch.tensor(np.array(DIGITS.x), dtype=torch.float32)).detach().numpy()
        np.testing.assert_allclose(means, expected, rtol=1e-5)

    def test_a_number_to_predict(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(100, 3))
        data = Records(x, x @ np.array([1.0, -1.0, 0.5]))
        mechanism = Loop(code_named("tests.training.own_loops:regression"), None)
        release = mechanism.publish(data, rng=rng)
        assert mechanism.scores(release, data.x).shape == (100, 1)
        assert mechanism.score(release, data) > 0.3

    def test_a_state_dict_without_an_architecture_cannot_answer(self) -> None:
        mechanism = loop("state_dict")
        with pytest.raises(InputError, match=r"release\.model"):
            mechanism.scores(publish(mechanism), DIGITS.x)


class TestRefusals:
    def test_an_error_of_the_loop_names_the_loop_and_the_line(self) -> None:
        with pytest.raises(InputError, match=r"broken stopped with KeyError.*own_loops\.py, line"):
            publish(loop("broken"))

    def test_divergence_is_not_an_error_of_the_loop(self) -> None:
        with pytest.raises(DivergedError, match="'weight' is not finite"):
            publish(loop("diverged"))

    def test_anything_but_a_model_is_refused(self) -> None:
        with pytest.raises(InputError, match="must return a torch module or a state dict"):
            publish(loop("nothing"))

    @pytest.mark.parametrize("source", ["nowhere:train", "tests.training.own_loops:absent"])
    def test_a_function_that_is_not_there(self, source: str) -> None:
        with pytest.raises(InputError, match=r"write package\.module:function"):
            code_named(source)

    def test_something_else_by_that_name(self) -> None:
        with pytest.raises(InputError, match="must be a function, got int"):
            code_named("tests.training.own_loops:not_a_function")


class TestCode:
    def test_a_function_that_can_be_imported_is_known_by_name(self) -> None:
        found = code_of(own_loops.convolutional)
        assert found == code_named("tests.training.own_loops:convolutional")
        assert found.importable

    def test_a_function_at_hand_is_new_each_time(self) -> None:
        one, other = code_of(lambda x, y, *, seed: None), code_of(lambda x, y, *, seed: None)
        assert one != other
        assert not one.importable
        assert one.function()(None, None, seed=0) is None

    def test_the_digest_covers_the_files_beside_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "loop_for_digest.py").write_text(
            "from net_for_digest import WIDTH\ndef train(x, y, *, seed): return WIDTH\n"
        )
        digests = []
        for width in (3, 4, 3):
            (tmp_path / "net_for_digest.py").write_text(f"WIDTH = {width}\n")
            for name in ("loop_for_digest", "net_for_digest"):
                sys.modules.pop(name, None)
            digests.append(code_named("loop_for_digest:train").digest)
        assert digests[0] == digests[2] != digests[1]

    def test_what_is_installed_inside_the_project_is_not_its_own_code(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed = tmp_path / ".venv" / "site-packages"
        installed.mkdir(parents=True)
        paths = {**sysconfig.get_paths(), "purelib": str(installed)}
        monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
        for folder in (tmp_path, installed):
            monkeypatch.syspath_prepend(str(folder))
        (tmp_path / "loop_beside_venv.py").write_text(
            "from lib_in_venv import WIDTH\ndef train(x, y, *, seed): return WIDTH\n"
        )
        digests = []
        for width in (3, 4):
            (installed / "lib_in_venv.py").write_text(f"WIDTH = {width}\n")
            for name in ("loop_beside_venv", "lib_in_venv"):
                sys.modules.pop(name, None)
            digests.append(code_named("loop_beside_venv:train").digest)
        assert digests[0] == digests[1]

    def test_code_is_plain_data(self) -> None:
        assert OwnCode("a:b", "c") == OwnCode("a:b", "c")
