"""Recommendations: what a run measured, what can be computed, and TOML that can be pasted."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import dp_accounting
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.bounds import ceiling
from exhume.config import parse
from exhume.report.advice import Advice, advice, inline, noise_needed
from exhume.report.verdict import worst_first
from exhume.runlog.run import Header
from exhume.runlog.setting import AuditedData, BoundPoint, CeilingCurve, ModelQuality, Setting
from exhume.runlog.summary import Bracket, Row, Summary, rate

DATA = AuditedData(targets=50, record_shape=(28, 28), value_range=(0.0, 1.0))
PLAIN = {"kind": "weights", "model": "logistic", "penalty": {"strength": 1.0, "intercept": True}}
NOISE = {"name": "output-perturbation", "noise_multiplier": 1.0, "norm_bound": 28.1}
AUDIT = """
[[setting]]
data = { name = "fashion-mnist-small", classes = [2, 6], fixed_set = 400 }
"""


def bracket(name: str, successes: int, limit: float | None = None) -> Bracket:
    reached, blind = rate(successes, 50), rate(0, 50)
    return Bracket(name, name, "glm", reached, blind, limit, "", 50, 0)


def advised(
    *found: tuple[Bracket, dict, Setting], knowledge: dict | None = None
) -> tuple[Advice, ...]:
    """The advice of a run of these settings, which differ only in their defences."""
    tables = [
        {"name": b.setting, "release": release, "knowledge": knowledge} for b, release, _ in found
    ]
    brackets = tuple(b for b, _, _ in found)
    rows = tuple(
        Row(b.setting, "glm", False, 50, 50, {}, "", None, {}, None, None, 1.0, {})
        for b in brackets
    )
    alike = {b.setting: "the same but for its defences" for b in brackets}
    header = Header(config=json.dumps({"setting": tables}), undefended=alike)
    summary = Summary(
        1, "", "", 0, 1.0, True, 50, 50, brackets, rows, tuple(s for _, _, s in found), {}
    )
    return advice(header, summary, worst_first(summary))


def setting(
    name: str, accuracy: float = 0.9, chance: float | None = None, **fields: object
) -> Setting:
    quality = ModelQuality("accuracy", accuracy, chance=chance)
    return Setting(name, data=DATA, model=quality, **fields)


@pytest.mark.parametrize(("gamma", "kappa"), [(0.5, 0.1), (0.1, 0.01), (0.05, 1e-4)])
def test_the_noise_reaches_the_limit_and_less_noise_does_not(gamma: float, kappa: float) -> None:
    """Against the ceiling that audits use, which knows nothing of the closed form."""
    sigma = noise_needed(gamma, kappa)
    assert sigma is not None
    enough = ceiling(dp_accounting.GaussianDpEvent(sigma), kappa)
    less = ceiling(dp_accounting.GaussianDpEvent(0.98 * sigma), kappa)
    assert enough is not None
    assert less is not None
    assert enough.gamma <= gamma < less.gamma


@pytest.mark.parametrize(("gamma", "kappa"), [(0.1, 0.1), (0.1, 0.5), (0.1, 0.0), (1.0, 0.1)])
def test_where_no_noise_helps_none_is_recommended(gamma: float, kappa: float) -> None:
    assert noise_needed(gamma, kappa) is None


VALUES = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text("ab \"'\\µ"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_what_is_written_is_what_is_read(value: object) -> None:
    assert tomllib.loads(f"value = {inline(value)}")["value"] == value


class TestMeasured:
    def found(self) -> tuple[Advice, ...]:
        bounded = CeilingCurve(at=BoundPoint(1.0, kappa=0.1, gamma=0.39))
        return advised(
            (bracket("plain", 50), PLAIN, setting("plain", 0.98)),
            (
                bracket("noisy", 0, 0.39),
                {**PLAIN, "defences": [NOISE]},
                setting("noisy", 0.7, defended=True, ceiling=bounded),
            ),
            (
                bracket("faint", 48),
                {**PLAIN, "defences": [{**NOISE, "noise_multiplier": 1e-5}]},
                setting("faint", 0.97, defended=True),
            ),
        )

    def test_the_defence_that_worked_is_named_with_its_cost(self) -> None:
        first = self.found()[0]
        assert "use the defence of “noisy”" in first.title
        text = first.text.replace("\u00a0", " ")
        assert "attacks reached 0 % [0–7 %] instead of 100 % [93–100 %]; proven limit: 39 %" in text
        assert "without it: accuracy 98 %; with it: accuracy 70 %, on unused records" in text
        assert "a stronger one may succeed" not in text

    def test_its_toml_is_that_of_the_setting(self) -> None:
        table = tomllib.loads(self.found()[0].toml)
        assert table == {"defences": [NOISE]}

    def test_the_noise_for_a_wanted_limit_uses_the_proven_chance_of_a_guess(self) -> None:
        noise = self.found()[1]
        text = noise.text.replace("\u00a0", " ")
        assert "κ = 10 % (proven from this run's records)" in text
        assert f"50 %: noise_multiplier = {noise_needed(0.5, 0.1):g}" in text
        assert "5 %: noise" not in text.replace("50 %", "")

    def test_pasted_it_is_an_audit(self) -> None:
        for one in self.found():
            text = (
                f'{AUDIT}\n[setting.release]\nmodel = "logistic"\n'
                f"penalty = {{ strength = 1.0, intercept = true }}\n{one.toml}"
            )
            (made,) = parse(text, folder=Path(), source="what was pasted").setting
            assert [d.name for d in made.release.defences] == ["output-perturbation"]


class TestUselessModels:
    """A defence that leaves nothing worth releasing is not recommended in silence."""

    def found(
        self, *others: tuple[Bracket, dict, Setting], kappa: float = 0.44
    ) -> tuple[Advice, ...]:
        bounded = CeilingCurve(at=BoundPoint(1.0, kappa=kappa, gamma=0.8))
        useless = setting("noisy", 0.52, chance=0.57, defended=True, ceiling=bounded)
        return advised(
            (bracket("plain", 50), PLAIN, setting("plain", 0.98, chance=0.55)),
            (bracket("noisy", 0, 0.39), {**PLAIN, "defences": [NOISE]}, useless),
            *others,
        )

    def test_the_text_says_that_the_model_is_worth_nothing(self) -> None:
        measured, noise = self.found()
        assert "leaves a model no better than a constant answer" in measured.text
        # 50 % takes 6.63, and 1.0 was measured.
        assert "less noise already left a model no better than a constant answer" in noise.text

    def test_less_noise_than_was_measured_may_leave_more(self) -> None:
        _, noise = self.found(kappa=0.1)
        assert "noise_multiplier = 0.781" in noise.text
        assert "What it costs the model was not measured" in noise.text

    def test_a_useful_model_without_a_limit_goes_first(self) -> None:
        rounding = {**PLAIN, "defences": [{"name": "rounding", "decimals": 1}]}
        useful = setting("rounded", 0.8, chance=0.57, defended=True)
        first = self.found((bracket("rounded", 0), rounding, useful))[0]
        assert "use the defence of “rounded”" in first.title
        assert "no better than a constant answer" not in first.text
        assert "a stronger one may succeed" in first.text

    @pytest.mark.parametrize(
        ("quality", "useless"),
        [
            (ModelQuality("accuracy", 0.5, chance=0.5), True),
            (ModelQuality("accuracy", 0.51, chance=0.5), False),
            (ModelQuality("accuracy", 0.1), False),
            (ModelQuality("R²", -0.1), True),
            (ModelQuality("R²", 0.1), False),
            (ModelQuality(), False),
        ],
    )
    def test_a_constant_answer_is_the_measure(self, quality: ModelQuality, useless: bool) -> None:
        assert quality.useless is useless


def test_without_a_measured_defence_the_norm_follows_from_the_range_of_values() -> None:
    (noise,) = advised((bracket("plain", 50), PLAIN, setting("plain")))
    # √(28² · 1² + 1), rounded up.
    assert "norm_bound = 28.1" in noise.toml
    assert "a better guess may exist" in noise.text


def test_a_networks_noise_counts_every_step() -> None:
    def found(**training: object) -> tuple[Advice, ...]:
        table = {"kind": "weights", "model": "mlp"}
        knowledge = {"training": {"learning_rate": 0.1, "epochs": 50, **training}}
        case = (bracket("net", 50), table, replace(setting("net"), data=AuditedData(fixed_set=99)))
        return advised(case, knowledge=knowledge)

    (noise,) = found()
    kappa = float(bracket("net", 50).blind.high)
    expected = noise_needed(0.5, kappa, 50)
    made = tomllib.loads(noise.toml)["clipping"]
    assert made == {"norm": 1.0, "noise_multiplier": expected}
    limit = NormalDist().cdf(NormalDist().inv_cdf(kappa) + math.sqrt(50) / expected)
    assert 0.49 < limit <= 0.5
    (batches,) = found(batch_size=30)
    assert tomllib.loads(batches.toml)["clipping"]["noise_multiplier"] > 1.9 * expected
    assert "The training's 200 steps are DP-SGD then." in batches.text
    assert found(clipping={"norm": 1.0, "noise_multiplier": 1.0}) == ()


def test_nothing_is_recommended_where_nothing_came_out() -> None:
    assert advised((bracket("plain", 0), PLAIN, setting("plain"))) == ()


@pytest.mark.parametrize(
    ("release", "withheld"),
    [
        ({**PLAIN, "standardise": True}, "withhold the scaler"),
        ({"kind": "transcript", "model": "mlp"}, "withhold the iterates"),
        ({"kind": "outputs", "model": "logistic", "answer": "scores"}, "withhold the scores"),
    ],
)
def test_what_to_withhold(release: dict, withheld: str) -> None:
    titles = [one.title for one in advised((bracket("plain", 50), release, setting("plain")))]
    assert f"plain: {withheld}" in titles
