"""The tables of Liu et al. 2024, as printed."""

from __future__ import annotations

from exhume.studies.part import Tables

_STRENGTHS = {"clipping": "norm", "gradient-dropout": "rate", "noise": "size", "pruning": "share"}


def defence(name: str, strength: float) -> Tables:
    """Return a defence as its table."""
    return {"name": name, _STRENGTHS[name]: strength}


DEFENCES: dict[str, Tables] = {
    **{f"clip {c}": defence("clipping", float(c)) for c in (2, 4, 8)},
    **{f"drop .{p}": defence("gradient-dropout", p / 10) for p in (3, 5, 7, 9)},
    **{f"noise {s}": defence("noise", float(s)) for s in (".001", ".01", ".1")},
    **{f"prune .{p}": defence("pruning", p / 10) for p in (3, 5, 7, 9)},
    "prune .99": defence("pruning", 0.99),
}
"""The columns of Tables 4 and 5."""
LOCAL_STEPS = (3, 5)
"""The steps of local aggregation in Tables 7 and 8."""


def _columns(*figures: float) -> dict[str, float]:
    return dict(zip(DEFENCES, figures, strict=True))


OURS, INVERSION, ROBBING, COCKTAIL = "ours", "GradientInversion", "Robbing The Fed", "CPA"

TABLE_2: dict[str, dict[int, float]] = {
    "": {1: 0.171, 2: 0.171, 4: 0.174, 8: 0.175},
    "prune .3": {1: 0.173, 2: 0.171, 4: 0.186, 8: 0.188},
    "prune .5": {1: 0.173, 2: 0.218, 4: 0.277, 8: 0.266},
    "prune .7": {1: 0.248, 2: 0.443, 4: 0.483, 8: 0.425},
    "clip 2": {1: 0.173, 2: 0.169, 4: 0.174, 8: 0.179},
    "clip 4": {1: 0.173, 2: 0.169, 4: 0.175, 8: 0.179},
    "clip 8": {1: 0.173, 2: 0.170, 4: 0.177, 8: 0.179},
    "noise .001": {1: 0.172, 2: 0.166, 4: 0.190, 8: 0.198},
    "noise .01": {1: 0.174, 2: 0.252, 4: 0.252, 8: 0.499},
    "noise .1": {1: 0.259, 2: 0.850, 4: 0.714, 8: 0.953},
}
"""The feature reconstruction error by defence and batch size."""
TABLE_3 = {16: (0.14, 0.41, 0.17), 32: (0.15, 0.45, 0.24)}
"""LPIPS by batch size: the paper's attack, Geiping's, Jeon's."""
TABLE_4: dict[int, dict[str, dict[str, float]]] = {
    2: {
        OURS: _columns(
            *(0.17, 0.17, 0.19, 0.16, 0.16, 0.18, 0.18, 0.17, 0.22, 0.28),
            *(0.16, 0.17, 0.20, 0.26, 0.27),
        ),
        INVERSION: _columns(
            *(0.19, 0.23, 0.25, 0.19, 0.20, 0.20, 0.21, 0.30, 0.32, 0.35),
            *(0.19, 0.20, 0.24, 0.28, 0.27),
        ),
        ROBBING: _columns(
            *(0.23, 0.23, 0.23, 0.28, 0.32, 0.32, 0.30, 0.26, 0.25, 0.27),
            *(0.22, 0.25, 0.32, 0.37, 0.46),
        ),
        COCKTAIL: _columns(
            *(0.21, 0.22, 0.23, 0.23, 0.22, 0.22, 0.24, 0.22, 0.23, 0.28),
            *(0.21, 0.23, 0.29, 0.28, 0.32),
        ),
    },
    4: {
        OURS: _columns(
            *(0.16, 0.16, 0.16, 0.16, 0.16, 0.19, 0.19, 0.19, 0.24, 0.27),
            *(0.16, 0.16, 0.21, 0.27, 0.27),
        ),
        INVERSION: _columns(
            *(0.21, 0.22, 0.23, 0.21, 0.21, 0.21, 0.22, 0.31, 0.31, 0.31),
            *(0.19, 0.18, 0.23, 0.29, 0.28),
        ),
        ROBBING: _columns(
            *(0.18, 0.18, 0.18, 0.27, 0.31, 0.32, 0.31, 0.19, 0.19, 0.22),
            *(0.20, 0.25, 0.32, 0.39, 0.42),
        ),
        COCKTAIL: _columns(
            *(0.21, 0.21, 0.20, 0.21, 0.23, 0.22, 0.24, 0.23, 0.23, 0.25),
            *(0.18, 0.21, 0.24, 0.29, 0.31),
        ),
    },
    8: {
        OURS: _columns(
            *(0.16, 0.16, 0.16, 0.16, 0.17, 0.19, 0.19, 0.19, 0.29, 0.30),
            *(0.15, 0.16, 0.20, 0.29, 0.29),
        ),
        INVERSION: _columns(
            *(0.22, 0.21, 0.21, 0.22, 0.22, 0.22, 0.23, 0.30, 0.31, 0.31),
            *(0.20, 0.21, 0.25, 0.30, 0.30),
        ),
        ROBBING: _columns(
            *(0.16, 0.16, 0.16, 0.29, 0.31, 0.31, 0.31, 0.16, 0.16, 0.25),
            *(0.22, 0.30, 0.30, 0.36, 0.43),
        ),
        COCKTAIL: _columns(
            *(0.21, 0.21, 0.22, 0.22, 0.22, 0.23, 0.25, 0.20, 0.22, 0.24),
            *(0.19, 0.22, 0.26, 0.32, 0.33),
        ),
    },
}
"""RMSE by batch size, attack and defence."""

TABLE_5: dict[int, dict[str, float]] = {
    2: _columns(
        *(0.390, 0.481, 0.377, 0.466, 0.363, 0.564, 0.864, 0.445, 0.769, 1.889),
        *(0.585, 0.430, 0.621, 0.763, 1.020),
    ),
    4: _columns(
        *(0.408, 0.353, 0.329, 0.552, 0.316, 0.275, 0.460, 0.527, 0.551, 1.764),
        *(0.253, 0.389, 0.561, 0.505, 0.935),
    ),
    8: _columns(
        *(0.377, 0.201, 0.357, 0.259, 0.178, 0.231, 0.461, 0.365, 0.343, 1.540),
        *(0.256, 0.161, 0.257, 0.344, 0.725),
    ),
}
"""Final training loss by batch size and defence."""

TABLE_6 = {
    4: (21.25, 22.41, 23.59),
    8: (20.71, 23.21, 23.37),
    16: (17.68, 20.01, 21.90),
    32: (15.05, 19.84, 20.69),
}
"""PSNR by batch size: without both, without feature matching, all."""
UNDEFENDED: dict[str, dict[int, float]] = {
    OURS: {2: 0.15, 4: 0.15, 8: 0.15},
    INVERSION: {2: 0.16, 4: 0.16, 8: 0.16},
}
"""RMSE without a defence, Tables 7 and 8."""
AGGREGATED: dict[str, dict[int, tuple[float, float]]] = {
    OURS: {2: (0.23, 0.25), 4: (0.28, 0.26), 8: (0.29, 0.30)},
    INVERSION: {2: (0.25, 0.25), 4: (0.28, 0.25), 8: (0.31, 0.31)},
}
"""RMSE under 3 and 5 local steps, Tables 7 and 8."""
