"""A name that does not exist: the message says which one was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from exhume.audit import make_plan
from exhume.config import parse
from exhume.protocol.errors import InputError
from exhume.protocol.names import meant

LINEAR = """
data = { name = "breast-cancer", fixed_set = 60 }
release = { model = "logistic", penalty = { strength = 1.0 } }
"""
NETWORK = """
data = {{ name = "digits", fixed_set = 60 }}
release = {{ model = "mlp" {release} }}
knowledge = {{ training = {{ {training}, learning_rate = 0.1, epochs = 2 }} {knowledge} }}
"""


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        make_plan(parse(text, folder=Path(), source="audit.toml"))
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix("audit.toml: ")


def network(*, release: str = "", training: str = "momentum = 0.9", knowledge: str = "") -> str:
    return NETWORK.format(release=release, training=training, knowledge=knowledge)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINEAR + "[audit]\ntarget = 3", "unknown key 'audit.target'; did you mean 'targets'?"),
        (LINEAR + "[audits]\ntargets = 3", "unknown key 'audits'; did you mean 'audit'?"),
        (
            LINEAR.replace("strength", "strenght"),
            "unknown key 'release.penalty.strenght'; did you mean 'strength'?",
        ),
        (
            LINEAR.replace("release", "relaese"),
            "unknown key 'relaese'; did you mean 'release'? (and 1 more)",
        ),
        (
            network(release=", hiden = [5]"),
            "unknown key 'release.hiden'; did you mean 'hidden'?",
        ),
        (
            network(training="warmup = 3"),
            "unknown key 'knowledge.training.warmup'; 'warm_up' belongs to "
            "[knowledge.training.schedule]",
        ),
        (
            network(training="lr_scheduler = { name = 'cosine' }"),
            "unknown key 'knowledge.training.lr_scheduler'; did you mean 'schedule'?",
        ),
        (
            network(knowledge=", order = 3"),
            "knowledge.order: it should be true or false, or it should be the name of a file, "
            "got 3",
        ),
        (
            network(release=", epochs = 3"),
            "unknown key 'release.epochs'; it belongs to [knowledge.training]",
        ),
        (
            LINEAR.replace("fixed_set = 60", "fixed_set = 60, targets = 3"),
            "unknown key 'data.targets'; it belongs to [audit]",
        ),
        ('attacks = ["glm"]' + LINEAR, "unknown key 'attacks'; it belongs to [audit]"),
        (
            LINEAR.replace("fixed_set = 60", 'fixed_set = 60, group = "a"'),
            "unknown key 'data.group'; it belongs to [[setting]], outside its tables",
        ),
        (
            network(knowledge=", shadow-targets = 3"),
            "unknown key 'knowledge.shadow-targets'; did you mean 'shadow_targets'?",
        ),
        (network(knowledge=", zzz = 3"), "unknown key 'knowledge.zzz'"),
        (
            network(training="lr = 0.1"),
            "unknown key 'knowledge.training.lr'; did you mean 'learning_rate'?",
        ),
        (
            network(knowledge=", lr = 0.1"),
            "unknown key 'knowledge.lr'; 'learning_rate' belongs to [knowledge.training]",
        ),
        (
            network(training='optimiser = "AdamW"'),
            "knowledge.training.optimiser: input should be 'sgd', 'adam', 'adamw' or 'rmsprop', "
            "got 'AdamW'; did you mean 'adamw'?",
        ),
        (
            network(training='schedule = "cosine"'),
            "knowledge.training.schedule: it should be a table: { key = value }, got 'cosine'",
        ),
        (
            network(knowledge=', seed = "yes"'),
            "knowledge.seed: it should be true or false, or input should be a valid integer, got "
            "'yes'",
        ),
        (
            network().replace("model =", "train ="),
            "unknown key 'release.train'; did you mean 'training'? (and 1 more)",
        ),
        (LINEAR.replace("penalty", "hidden"), "unknown key 'release.hidden'; it goes with another"),
        (
            network(release=', defences = [{ name = "rounding", decimal = 3 }]'),
            "unknown key 'release.defences.0.decimal'; did you mean 'decimals'? (and 1 more)",
        ),
        (
            network() + '[grid]\nfew = [{ name = "top-k", counts = 3 }]',
            "unknown key 'grid.few.0.counts'; did you mean 'count'? (and 1 more)",
        ),
        (
            network() + '[grid]\nfew = [{ name = "dp_sgd" }]',
            "grid.few.0: there is no defence called 'dp_sgd'; did you mean 'dp-sgd'?",
        ),
        (
            LINEAR.replace("logistic", "logistics"),
            "release.model: there is no model of that name; did you mean 'logistic'?, got "
            "'logistics'",
        ),
        (
            network(release=', activation = "rleu"'),
            "release.activation: there is no activation called 'rleu'; did you mean 'relu'?",
        ),
        (
            LINEAR + '[audit]\nattacks = ["scalar-moments"]',
            "there is no attack called 'scalar-moments'; did you mean 'scaler-moments'?",
        ),
        (
            network() + "[options.ridge]\nlayer = 3",
            "ridge has no option 'layer'; did you mean 'layers'?",
        ),
        (
            LINEAR + '[audit]\nmembership = 9\nmembership_test = "retrain"',
            "there is no membership test called 'retrain'; did you mean 'retraining'?",
        ),
    ],
)
def test_what_was_meant(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_american_spelling_capitals_and_underscores() -> None:
    known = ["optimiser", "defences", "initialisation", "scaler-moments", "glm"]
    for name, right in (
        ("optimizer", "optimiser"),
        ("Defenses", "defences"),
        ("initialization", "initialisation"),
        ("scaler_moments", "scaler-moments"),
        ("GLM", "glm"),
    ):
        assert meant(name, known) == right
    assert meant("ray", known) is None


def test_american_spellings_are_understood() -> None:
    american = network(
        training='optimizer = "rmsprop", centered = true, initialization = "he"',
        release=', defenses = [{ name = "sign" }]',
    )
    british = american.replace("optimizer", "optimiser").replace("defenses", "defences")
    british = british.replace("initialization", "initialisation").replace("centered", "centred")
    parsed = [parse(text, folder=Path(), source="test") for text in (american, british)]
    assert parsed[0] == parsed[1]


def test_a_key_like_no_other_is_told_which_there_are() -> None:
    said = refusal(LINEAR + "[audit]\nzzz = 3")
    assert said.startswith("unknown key 'audit.zzz'; there are attacks, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('grid = { "a\\nb" = 1 }\n' + LINEAR, "grid.a\\nb: input should be"),
        ("linear = 1", "unknown key 'linear'; it belongs to [knowledge.training.schedule]"),
        (
            'data = { file = "a.csv", columns = { age = "whole" } }\n'
            'release = { estimator = "a:b" }',
            "data.columns.age: input should be 'continuous', 'integer', 'categorical'",
        ),
    ],
)
def test_keys_with_the_names_of_types(text: str, message: str) -> None:
    assert refusal(text).startswith(message)
