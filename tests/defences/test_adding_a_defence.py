"""A new defence is one file and a line of re-export: tables, list and audits find it by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc, isabstract
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from tests.cli.command import invoke

from exhume import defences
from exhume.audit import Serial, make_plan, run
from exhume.audit.threat_model import threat_model
from exhume.config import Config, listed_defences, parse
from exhume.defences import ListedDefence, Transform
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.limits import from_to
from exhume.protocol.mechanism import Mechanism

if TYPE_CHECKING:
    import torch

SRC = Path(defences.__file__).parents[1]


@dataclass(frozen=True, eq=False)
class Companding(Transform):
    """Sends each entry to the ``power``, with its sign or without.

    Of no use, but nothing else in the package does it.
    """

    inner: Mechanism
    power: Annotated[int, from_to(2, 9)]
    signs: Literal["kept", "dropped"] = "kept"
    name: ClassVar[str] = "companding"

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        return {n: np.abs(a) ** self.power * self._signs(np.sign(a)) for n, a in arrays.items()}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [v.abs() ** self.power * self._signs(v.sign()) for v in values]

    def _signs(self, signs: Any) -> Any:
        return signs if self.signs == "kept" else 1

    def describe(self) -> str:
        return f"entries to the power {self.power}, signs {self.signs}"


@pytest.fixture
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the line of re-export that a new defence has in ``exhume.defences``."""
    monkeypatch.setattr(defences, "Companding", Companding, raising=False)
    monkeypatch.setattr(defences, "__all__", [*defences.__all__, "Companding"])


def parsed(defence: str) -> Config:
    text = f"""
    data = {{ name = "digits", shadow_targets = 20 }}
    release = {{ kind = "gradient", model = "mlp", hidden = [6], batch_size = 1 }}
    knowledge = {{ labels = true }}
    grid = {{ companded = [{{ {defence} }}] }}
    audit = {{ attacks = ["geiping"], targets = 1 }}
    [options.geiping]
    steps = 200
    restarts = 1
    """
    return parse(text, folder=Path(), source="audit.toml")


@pytest.mark.usefixtures("_added")
class TestANewDefence:
    def test_in_a_file(self) -> None:
        (table,) = parsed('name = "companding", power = 3').setting[1].release.defences
        assert table.settings() == {"power": 3, "signs": "kept"}

    @pytest.mark.parametrize(
        ("defence", "message"),
        [
            ('name = "companding"', "'grid.companded.0.power' is missing"),
            ('name = "companding", power = 10', "power: must be from 2 to 9, got 10"),
            ('name = "companding", power = 2, sign = 1', "unknown key 'grid.companded.0.sign'"),
            ('name = "compandign", power = 1', "did you mean 'companding'?"),
        ],
    )
    def test_refused_in_a_file(self, defence: str, message: str) -> None:
        with pytest.raises(InputError) as caught:
            parsed(defence)
        assert message in str(caught.value)

    def test_in_the_list(self) -> None:
        text = " ".join(invoke("list", "companding").out.split())
        assert "defence companding Sends each entry to the power, with its sign or without." in text

    def test_in_an_audit(self, tmp_path: Path) -> None:
        plan = make_plan(parsed('name = "companding", power = 2'))
        setting = plan.setting(1)
        assert isinstance(setting.mechanism, Companding)
        assert threat_model(setting)[0].endswith("entries to the power 2, signs kept.")
        summary = run(plan, tmp_path / "run", Serial())
        rows = {(row.setting, row.attack): row for row in summary.rows}
        # The attack simulates what the defence sends.
        assert rows["audit, companded", "geiping"].success is not None
        assert rows["audit, companded", "geiping"].success.successes == 1

    def test_in_what_is_published(self) -> None:
        plan = make_plan(parsed('name = "companding", power = 3'))
        found = []
        for setting in (plan.setting(0), plan.setting(1)):
            assert setting.targets is not None
            found.append(setting.mechanism.publish(setting.targets, rng=np.random.default_rng(0)))
        for (_, a), (_, b) in zip(found[0].arrays(), found[1].arrays(), strict=True):
            assert np.allclose(a.astype(np.float64) ** 3, b, rtol=1e-5, atol=1e-12)


def test_without_the_line_it_is_not_known() -> None:
    with pytest.raises(InputError, match="there is no defence called 'companding'"):
        parsed('name = "companding", power = 3')


def used(path: Path) -> Iterator[str]:
    """Yield the names of ``exhume.defences`` that a file uses."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if "defences" in module:
                yield from (name.name for name in names)
            case ast.Attribute(value=ast.Name(id="defences"), attr=name):
                yield name


# Where a defence is named outside its own file: what builds on another one, and the paper's rates.
_ELSEWHERE = {
    "audit/gradient_floors.py": {"ActivationDropout", "Clipping", "GradientDropout", "Noise"},
    "defences/dp_sgd.py": {"RecordClipping"},
    "defences/with_opacus.py": {"DPSGD"},
}


def test_a_defence_is_named_in_its_own_file_and_where_it_is_exported() -> None:
    names = {one.__name__ for one in listed_defences()}
    found = {
        str(path.relative_to(SRC)): names & set(used(path))
        for path in SRC.rglob("*.py")
        if path.relative_to(SRC).as_posix() != "defences/__init__.py"
    }
    assert {path: named for path, named in found.items() if named} == _ELSEWHERE


def test_every_public_defence_is_listed_once() -> None:
    public = [getattr(defences, name) for name in defences.__all__]
    concrete = [
        one
        for one in public
        if isinstance(one, type) and issubclass(one, ListedDefence) and not isabstract(one)
    ]
    assert set(concrete) == set(listed_defences())
    names = [one.name for one in listed_defences()]
    assert len(set(names)) == len(names) == 16


@pytest.mark.parametrize("defence", listed_defences(), ids=lambda one: one.name)
def test_the_first_line_says_what_it_does(defence: type[ListedDefence]) -> None:
    line = (getdoc(defence) or "").splitlines()[0]
    assert line.endswith(".")
    assert len(line) <= 100
