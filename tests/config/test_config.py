"""An audit's TOML file: what it may say, and one line for whatever it may not."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.config import Config, load, parse
from exhume.config.defences import DefenceTable
from exhume.protocol.errors import InputError

GOOD = """
[data]
name = "breast-cancer"
fixed_set = 60

[release]
model = "logistic"
penalty = { strength = 1.0 }
"""


def read(text: str, folder: Path = Path()) -> Config:
    return parse(text, folder=folder, source="audit.toml")


def refusal(text: str) -> str:
    """The one line that this text is refused with."""
    with pytest.raises(InputError) as caught:
        read(text)
    line = str(caught.value)
    assert "\n" not in line
    return line


class TestReading:
    def test_one_setting_at_the_top(self) -> None:
        config = read(GOOD)
        (setting,) = config.setting
        assert (setting.name, setting.release.model, setting.release.kind) == (
            ("audit", "logistic", "weights")
        )
        assert config.audit.targets == 50
        assert config.audit.seed == 0

    def test_several_settings(self) -> None:
        text = files("exhume").joinpath("example.toml").read_text()
        config = read(text)
        assert len({s.name for s in config.setting}) == len(config.setting) >= 5

    def test_defences_by_name(self) -> None:
        config = read(GOOD + 'defences = [{ name = "rounding", decimals = 3 }]')
        assert config.setting[0].release.defences == (
            DefenceTable.model_validate({"name": "rounding", "decimals": 3}),
        )

    def test_whole_numbers_pass_for_reals(self) -> None:
        config = read(GOOD.replace("1.0", "1") + "[knowledge]\nvalue_range = [0, 1]")
        assert config.setting[0].release.penalty.strength == 1.0
        assert config.setting[0].knowledge.value_range == (0.0, 1.0)

    def test_paths_are_relative_to_the_file(self, tmp_path: Path) -> None:
        text = """
            release = { model = "ridge", file = "model.safetensors" }
            knowledge = { fixed_set = "sub/known.npz" }
            audit = { truth = "/elsewhere/truth.npz" }
        """
        (tmp_path / "audit.toml").write_text(text)
        config = load(tmp_path / "audit.toml")
        assert config.setting[0].release.file == tmp_path / "model.safetensors"
        assert config.setting[0].knowledge.fixed_set == tmp_path / "sub" / "known.npz"
        assert config.audit.truth == Path("/elsewhere/truth.npz")
        assert config.files() == [
            Path("/elsewhere/truth.npz"),
            tmp_path / "model.safetensors",
            tmp_path / "sub" / "known.npz",
        ]

    def test_nothing_can_be_changed_afterwards(self) -> None:
        with pytest.raises(Exception, match="frozen"):
            read(GOOD).audit.targets = 3  # type: ignore[misc]


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("text", "key"),
        [
            (GOOD + "\n[audits]\ntargets = 3", "audits"),
            (GOOD + "\n[audit]\ntarget = 3", "audit.target"),
            (GOOD + "\nmodle = 3", "release.modle"),
            (GOOD.replace("strength", "strenght"), "release.penalty.strenght"),
            (GOOD.replace("fixed_set", "fixed-set"), "data.fixed-set"),
            (GOOD + "[knowledge]\nlabel = true", "knowledge.label"),
            (GOOD + 'solver = { name = "exact", tol = 1 }', "release.solver.tol"),
            (
                GOOD + 'defences = [{ name = "rounding", decimals = 3, digits = 2 }]',
                "release.defences.0.digits",
            ),
        ],
    )
    def test_named_with_its_path(self, text: str, key: str) -> None:
        assert f"unknown key '{key}'" in refusal(text)

    def test_in_the_setting_that_has_it(self) -> None:
        one = '[[setting]]\nname = "{}"\ndata = {{ name = "wine" }}\nrelease = {{ {} }}\n'
        text = one.format("a", 'model = "ridge"') + one.format("b", 'model = "ridge", mode = 3')
        assert "unknown key 'setting.1.release.mode'" in refusal(text)

    def test_how_many_more(self) -> None:
        assert "(and 1 more)" in refusal(GOOD + "\n[audit]\ntarget = 3\nsed = 3")


class TestWrongValues:
    @pytest.mark.parametrize(
        ("old", "new", "where", "got"),
        [
            ("1.0", '"1.0"', "release.penalty.strength", "'1.0'"),
            ("1.0", "-1.0", "release.penalty.strength", "-1.0"),
            ("1.0", "nan", "release.penalty.strength", "nan"),
            ("1.0", "inf", "release.penalty.strength", "inf"),
            ("1.0", "true", "release.penalty.strength", "True"),
            ("60", "60.0", "data.fixed_set", "60.0"),
            ("60", "1", "data.fixed_set", "1"),
            ("60", "-5", "data.fixed_set", "-5"),
            ("logistic", "neural", "release.model", "'neural'"),
            ('"logistic"', "7", "release.model", "7"),
            ('"breast-cancer"', "7", "data.name", "7"),
        ],
    )
    def test_key_and_value_are_named(self, old: str, new: str, where: str, got: str) -> None:
        line = refusal(GOOD.replace(old, new))
        assert where in line
        assert line.endswith(f"got {got}")

    @pytest.mark.parametrize(
        ("audit", "where"),
        [
            ("targets = 0", "audit.targets"),
            ("targets = -3", "audit.targets"),
            ("targets = 2.5", "audit.targets"),
            ("seed = -1", "audit.seed"),
            ("seed = 4294967296", "audit.seed"),
            ("closeness = 0", "audit.closeness"),
            ("closeness = nan", "audit.closeness"),
            ("metrics = 'mse'", "audit.metrics"),
            ("metrics = [1]", "audit.metrics.0"),
            ("attacks = 'glm'", "audit.attacks"),
            ("truth = 3", "audit.truth"),
        ],
    )
    def test_of_the_audit(self, audit: str, where: str) -> None:
        assert f"audit.toml: {where}: " in refusal(f"{GOOD}\n[audit]\n{audit}")

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("setting = 3", "setting"),
            ("setting = 'x'", "setting"),
            ("setting = []", "there is no setting"),
            ("setting = [3]", "setting"),
            ("[setting]\nname = 'x'", "setting"),
            ("data = 3\nrelease = 4", "data"),
            (GOOD + "audit = 3", "audit"),
            ("release = { model = 'ridge' }\ndata = { name = 'wine', classes = 3 }", "classes"),
            (GOOD + "defences = [3]", "defences"),
            (GOOD + "defences = [{ decimals = 3 }]", "defences"),
            (GOOD + "defences = [{ name = 'magic' }]", "defences"),
            (GOOD + "[knowledge]\nattributes = [-1]", "knowledge.attributes.0"),
            (GOOD + "[knowledge]\nvalue_range = [0]", "knowledge.value_range"),
            ("", "release"),
        ],
    )
    def test_of_another_kind_altogether(self, text: str, where: str) -> None:
        assert where in refusal(text)

    def test_tables_written_once_for_a_list(self) -> None:
        assert "[[setting]]" in refusal('[setting]\nname = "x"')


class TestContradictions:
    def test_two_settings_with_one_name(self) -> None:
        one = '[[setting]]\nname = "a"\ndata = { name = "wine" }\nrelease = { model = "ridge" }\n'
        assert "two settings are called 'a'" in refusal(one + one)

    @pytest.mark.parametrize("name", ["two\\nlines", "bell\\u0007", "\\u001b[31mred", "", "x" * 61])
    def test_names_that_break_a_line_or_a_file(self, name: str) -> None:
        text = f'[[setting]]\nname = "{name}"\ndata = {{ name = "wine" }}\n'
        line = refusal(text + 'release = { model = "ridge" }')
        assert line.startswith("audit.toml: name: ")
        assert line.isprintable()

    def test_a_name_and_a_file(self) -> None:
        assert "either a name or a file" in refusal(GOOD.replace("[data]", '[data]\nfile = "x"'))

    def test_neither_a_name_nor_a_file(self) -> None:
        line = refusal(GOOD.replace('name = "breast-cancer"', ""))
        assert "either a name or a file" in line

    def test_a_release_in_a_file_and_data_to_train_on(self) -> None:
        assert "without [data]" in refusal(GOOD + 'file = "model.safetensors"')

    def test_a_release_in_a_file_and_nothing_known(self) -> None:
        text = '[release]\nmodel = "ridge"\nfile = "model.safetensors"'
        assert "goes with knowledge.fixed_set" in refusal(text)

    def test_a_fixed_set_twice(self) -> None:
        assert "give either [data]" in refusal(GOOD + '[knowledge]\nfixed_set = "known.npz"')

    def test_nothing_to_train_on(self) -> None:
        assert "give either [data]" in refusal('[release]\nmodel = "ridge"')

    def test_settings_at_the_top_and_in_a_list(self) -> None:
        text = GOOD + '[[setting]]\nrelease = { model = "ridge" }'
        assert "not both" in refusal(text)


class TestFiles:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"there is no file .*none\.toml"):
            load(tmp_path / "none.toml")

    def test_a_folder_without_an_audit(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"holds neither a recording nor an audit\.toml"):
            load(tmp_path)

    @pytest.mark.parametrize("content", [b"\xff\xfe[audit]", b"[audit\n", b"a = 1\na = 2", b"\0"])
    def test_not_toml(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "audit.toml"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"audit\.toml") as caught:
            load(path)
        assert "\n" not in str(caught.value)


_VALUES = st.recursive(
    st.integers(-3, 3) | st.floats() | st.booleans() | st.sampled_from(["glm", "wine", "", "x y"]),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


_KEYS = {
    "data": ("name", "file", "label", "classes", "fixed_set", "shadow_targets", "units"),
    "release": ("kind", "model", "file", "penalty", "intercept", "solver", "queries", "defences"),
    "knowledge": ("labels", "attributes", "fixed_set", "value_range"),
    "audit": ("attacks", "targets", "seed", "metrics", "closeness", "truth"),
}
_TABLES = st.fixed_dictionaries(
    {}, optional={t: st.dictionaries(st.sampled_from(k), _VALUES) for t, k in _KEYS.items()}
)


@given(_TABLES | st.dictionaries(st.sampled_from(["setting", "data", "audit", "x"]), _VALUES))
@settings(deadline=None, max_examples=300)
def test_any_file_is_read_or_refused_in_one_line(tables: dict[str, object]) -> None:
    lines = []
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += [f"[{key}]", *(f"{k} = {_toml(v)}" for k, v in value.items())]
        else:
            lines.insert(0, f"{key} = {_toml(value)}")
    message = ""
    try:
        read("\n".join(lines))
    except InputError as error:
        message = str(error)
    assert "\n" not in message
