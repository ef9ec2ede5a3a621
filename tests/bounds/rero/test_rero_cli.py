"""``exhume bound``: numbers, words at 80 columns, and errors in one line."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from exhume import bounds
from exhume.cli.bound import app
from exhume.protocol.errors import InputError

DP_SGD = ["--noise-multiplier", "1", "--sample-rate", "0.1", "--steps", "100"]


def _run(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def _json(*arguments):
    return json.loads(_run(*arguments, "--json"))


def test_mechanism():
    answer = _json("rero", *DP_SGD, "--kappa", "0.1")
    assert answer["gamma"] == pytest.approx(0.46919, abs=5e-6)
    assert answer["method"] == "pld"
    assert answer["kappa"] == 0.1
    assert answer["theorem_2"] == pytest.approx(0.67929, abs=5e-6)
    assert answer["inputs"] == {
        "noise_multiplier": 1.0,
        "sample_rate": 0.1,
        "steps": 100,
        "kappa": 0.1,
    }
    assert "every attack" in answer["binds"]


def test_full_batch_by_default():
    answer = _json("rero", "--noise-multiplier", "1", "--kappa", "0.1")
    assert answer["method"] == "gaussian"
    assert answer["gamma"] == pytest.approx(0.38914, abs=5e-6)


@pytest.mark.parametrize(
    ("arguments", "gamma", "method"),
    [
        (
            ["--epsilon", "1", "--delta", "1e-5"],
            bounds.approximate_dp(1, 1e-5, 0.1),
            "approximate-dp",
        ),
        (["--epsilon", "1"], bounds.approximate_dp(1, 0, 0.1), "approximate-dp"),
        (["--rho", "0.5"], 0.48373, "rdp"),
        (["--rdp-order", "2", "--rdp-epsilon", "1"], 0.49325, "rdp"),
        (["--rdp-order", "inf", "--rdp-epsilon", "1"], 0.27183, "approximate-dp"),
    ],
)
def test_guarantees(arguments, gamma, method):
    answer = _json("rero", *arguments, "--kappa", "0.1")
    assert answer["gamma"] == pytest.approx(gamma, abs=5e-6)
    assert answer["method"] == method


def test_finite_domain_needs_replacing():
    finite = ["--epsilon", "1", "--prior", "finite", "--size", "4"]
    assert _json("rero", *finite)["gamma"] == pytest.approx(0.25 * np.e, abs=5e-6)
    answer = _json("rero", *finite, "--neighbours", "replace")
    assert answer["gamma"] == pytest.approx(0.47537, abs=5e-6)
    assert "exactly" in answer["binds"]
    listed = ["--prior", "finite", "--probabilities", "0.25,0.25,0.25,0.25"]
    again = _json("rero", "--epsilon", "1", *listed, "--neighbours", "replace")
    assert again["gamma"] == answer["gamma"]


@pytest.mark.parametrize(
    ("arguments", "kappa"),
    [
        (["gaussian", "--dimension", "10", "--sigma", "0.632456", "--eta", "1"], 9.124e-3),
        (["ball", "--dimension", "3", "--radius", "2", "--eta", "1"], 0.125),
        (["finite", "--size", "8"], 0.125),
        (["finite", "--probabilities", "0.5,0.3,0.2"], 0.5),
        (["product", "--attribute-kappas", "0.5,0.5,0.5"], 0.125),
        (["product", "--attribute-kappas", "0.5,0.5,0.5", "--at-least", "2"], 0.5),
    ],
)
def test_kappa_of_priors(arguments, kappa):
    assert _json("kappa", "--prior", *arguments)["kappa"] == pytest.approx(kappa, rel=1e-3)
    assert f"kappa {kappa:.3g}"[:9] in _run("kappa", "--prior", *arguments)


def test_kappa_from_files(tmp_path):
    records = np.random.default_rng(0).uniform(size=(50, 3))
    np.save(tmp_path / "pool.npy", records)
    np.savez(tmp_path / "pool.npz", x=records, y=np.zeros(50))
    for name in ("pool.npy", "pool.npz"):
        common = ["--file", str(tmp_path / name), "--eta", "0.2"]
        answer = _json("kappa", "--prior", "samples", *common, "--confidence", "0.9")
        expected = bounds.kappa_from_samples(records, eta=0.2, confidence=0.9).kappa
        assert answer["kappa"] == expected
        pool = _json("kappa", "--prior", "pool", *common, "--method", "doubled-radius")
        assert pool["kappa"] == bounds.kappa_of_pool(records, eta=0.2, method="doubled-radius")
    words = _run("rero", "--noise-multiplier", "4", "--prior", "samples", *common)
    assert "It holds with 95 % confidence" in " ".join(words.split())


def test_solve_for_noise():
    solve = ["--solve-for", "noise-multiplier", "--gamma", "0.05", "--kappa", "0.01"]
    answer = _json("rero", *solve, "--sample-rate", "0.01", "--steps", "1000")
    assert answer["gamma"] <= 0.05
    assert answer["noise_multiplier"] == pytest.approx(0.7778, abs=2e-4)
    assert "noise multiplier" in _run("rero", *solve)


def test_words_fit_eighty_columns():
    output = _run("rero", *DP_SGD, "--kappa", "0.1")
    assert max(map(len, output.splitlines())) <= 80
    words = " ".join(output.split())
    assert "No attack comes within the threshold with a probability above 46.9 %" in words
    assert "a blind guess succeeds with 10 %" in words
    assert "Theorem 2" in words


def test_no_noise_no_bound():
    answer = _json("rero", "--noise-multiplier", "0", "--kappa", "0.1")
    assert (answer["gamma"], answer["method"]) == (1.0, "none")
    assert "no bound holds" in _run("rero", "--noise-multiplier", "0", "--kappa", "0.1")


@pytest.mark.parametrize("command", ["rero", "kappa", "figure", "table"])
def test_help(command):
    output = _run(command, "--help")
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kappa", "0.1"], "exactly one of"),
        ([*DP_SGD, "--epsilon", "1", "--kappa", "0.1"], "exactly one of"),
        (["--epsilon", "1", "--rho", "1", "--kappa", "0.1"], "exactly one of"),
        (
            ("--solve-for", "noise-multiplier", "--gamma", "0.1"),
            "is missing: give --kappa, or --prior",
        ),
        (("--rho", "0.5", "--delta", "1e-5"), "--delta can only be used with --epsilon or"),
        ([*DP_SGD, "--kappa", "0.1", "--prior", "finite", "--size", "3"], "not both"),
        ([*DP_SGD, "--kappa", "1.1"], "--kappa must be a probability"),
        ([*DP_SGD, "--kappa", "nan"], "--kappa must be a probability"),
        ([*DP_SGD, "--kappa", "0.1", "--eta", "1"], "--eta cannot be combined with --kappa"),
        (["--noise-multiplier", "-1", "--kappa", "0.1"], "noise_multiplier"),
        (["--noise-multiplier", "nan", "--kappa", "0.1"], "noise_multiplier"),
        (["--noise-multiplier", "1", "--sample-rate", "2", "--kappa", "0.1"], "sample_rate"),
        (["--noise-multiplier", "1", "--steps", "-3", "--kappa", "0.1"], "steps"),
        (["--epsilon", "-1", "--kappa", "0.1"], "epsilon"),
        (["--epsilon", "nan", "--kappa", "0.1"], "epsilon"),
        (["--epsilon", "1", "--delta", "2", "--kappa", "0.1"], "delta"),
        (["--epsilon", "1", "--steps", "3", "--kappa", "0.1"], "--steps can only be used with"),
        (["--rho", "1", "--delta", "0.1", "--kappa", "0.1"], "--delta can only be used with"),
        (["--epsilon", "1", "--neighbours", "add", "--kappa", "0.1"], "--neighbours"),
        (["--rdp-order", "2", "--kappa", "0.1"], "must be given together"),
        (["--rdp-order", "1", "--rdp-epsilon", "1", "--kappa", "0.1"], "above 1"),
        ([*DP_SGD, "--gamma", "0.1", "--kappa", "0.1"], "--gamma can only be used with"),
        (["--solve-for", "steps", "--gamma", "0.2", "--kappa", "0.1"], "must be noise-multiplier"),
        (["--solve-for", "noise-multiplier", "--kappa", "0.1"], "needs --gamma"),
        ([*DP_SGD, "--prior", "cauchy"], "no prior called 'cauchy'"),
        ([*DP_SGD, "--prior", "gaussian", "--eta", "1"], "needs --dimension and --sigma"),
        ([*DP_SGD, "--prior", "finite"], "--size or --probabilities"),
        ([*DP_SGD, "--prior", "finite", "--probabilities", "a,b"], "comma-separated numbers"),
        (
            [*DP_SGD, "--prior", "finite", "--size", "3", "--eta", "1"],
            "--eta cannot be combined with",
        ),
        (
            [*DP_SGD, "--prior", "samples", "--eta", "1", "--file", "none.npz"],
            "none.npz: no such file",
        ),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(InputError, match=message):
        _run("rero", *arguments)


def test_naive_kappa_is_refused(tmp_path):
    np.save(tmp_path / "pool.npy", np.zeros((5, 2)))
    file = str(tmp_path / "pool.npy")
    with pytest.raises(InputError, match="need not be a sample"):
        _run("kappa", "--prior", "samples", "--file", file, "--eta", "1", "--method", "naive")


def test_pickles_and_other_arrays_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    np.savez(tmp_path / "other.npz", a=np.zeros(3), b=np.zeros(3))
    for name, message in [("objects.npy", "cannot be read"), ("other.npz", "no array x")]:
        file = str(tmp_path / name)
        with pytest.raises(InputError, match=message):
            _run("kappa", "--prior", "pool", "--file", file, "--eta", "1")


def test_figure_is_small_and_the_same_every_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        assert "wrote" in _run("figure", "--out", str(tmp_path / name))
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert len(first) < 60_000
    assert b"membership advantage" in first


def test_figure_errors(tmp_path):
    with pytest.raises(InputError, match=r"\.svg"):
        _run("figure", "--out", str(tmp_path / "a.png"))
    with pytest.raises(InputError, match="cannot be written"):
        _run("figure", "--out", str(tmp_path / "missing" / "a.svg"))


def test_bounds_load_no_torch():
    code = (
        "import sys, exhume.bounds as b, exhume.cli.bound; b.ceiling(b.dp_sgd(1.0, 0.1, 10), 0.1);"
        "b.kappa_gaussian(dimension=3, sigma=1.0, eta=1.0); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_is_light():
    code = (
        "import sys, exhume.bounds, exhume.cli.bound;"
        "print([m for m in ('torch', 'scipy', 'dp_accounting', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_kappa_there_is_a_table_over_it() -> None:
    rows = _json("rero", *DP_SGD)["gamma"]
    for row in rows:
        alone = _json("rero", *DP_SGD, "--kappa", str(row["kappa"]))
        assert row["gamma"] == pytest.approx(alone["gamma"])
    words = " ".join(_run("rero", *DP_SGD).split())
    assert "0.46919" in words
    assert "Choose it by what the adversary knows" in words
    guarantee = _json("rero", "--epsilon", "1", "--delta", "1e-5")
    assert guarantee["privacy"] is None
    assert guarantee["gamma"][1]["gamma"] == pytest.approx(0.1 * np.e + 1e-5)


def test_epsilon_is_told_as_opacus_tells_it() -> None:
    # Opacus 1.6, PRVAccountant: 100 steps at noise 1 and rate .1, delta 1e-5: 7.05.
    assert _json("rero", *DP_SGD)["privacy"]["epsilon"] == pytest.approx(7.05, abs=0.02)
    words = " ".join(_run("rero", *DP_SGD, "--kappa", "0.1", "--delta", "1e-6").split())
    assert "at delta 1e-06" in words


def test_no_bound_is_no_finding() -> None:
    for options in ((), ("--kappa", "0.1")):
        words = " ".join(_run("rero", "--noise-multiplier", "0", *options).split())
        assert "Proven limit: none" in words
        assert "100 %" not in words
