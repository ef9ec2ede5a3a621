"""Records as pictures and as digits, against independent readers."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from exhume.report.gallery import ranked
from exhume.report.numbers import digits, written
from exhume.report.png import LARGEST_SIDE, picture, png, shrunk
from exhume.runlog.outcome import Outcome, Trial

RNG = np.random.default_rng(0)


class TestPNG:
    @pytest.mark.parametrize("shape", [(1, 1), (5, 9), (28, 28), (7, 3, 3), (4, 4, 1)])
    def test_pillow_reads_back_every_pixel(self, shape: tuple[int, ...]) -> None:
        image = RNG.integers(0, 256, shape, dtype=np.uint8)
        found = np.asarray(Image.open(io.BytesIO(png(image))))
        np.testing.assert_array_equal(found, image[..., 0] if shape[2:] == (1,) else image)

    def test_values_outside_the_range_are_clipped(self) -> None:
        uri = picture(np.array([[-3.0, 0.0, np.nan], [0.5, 9.0, np.inf]]), (0.0, 1.0))
        content = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
        found = np.asarray(Image.open(io.BytesIO(content)))
        assert found.tolist() == [[0, 0, 0], [128, 255, 255]]

    @pytest.mark.parametrize("shape", [(200, 200), (250, 97, 3), (97, 20), (500, 2)])
    def test_large_pictures_shrink_by_averages(self, shape: tuple[int, ...]) -> None:
        image = RNG.uniform(size=shape)
        small = shrunk(image)
        assert max(small.shape[:2]) <= LARGEST_SIDE
        factor = -(-max(shape[:2]) // LARGEST_SIDE)
        if min(shape[:2]) >= factor:
            block = image[:factor, :factor].mean(axis=(0, 1))
            np.testing.assert_allclose(small[0, 0], block)

    def test_a_range_without_width_is_black_not_an_error(self) -> None:
        assert picture(np.full((4, 4), 2.0), (2.0, 2.0)).startswith("data:image/png")


class TestDigits:
    @settings(deadline=None, max_examples=200)
    @given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
    def test_the_parts_make_up_the_value_and_part_where_it_differs(
        self, value: float, target: float
    ) -> None:
        found, reference = digits(value, target), written(target, target)
        text = found.same + found.differing
        assert text == written(value, target)
        assert reference.startswith(found.same)
        assert (not found.differing) == (text == reference)

    @settings(deadline=None, max_examples=200)
    @given(st.floats(-1e9, 1e9))
    def test_a_value_is_written_to_six_digits(self, value: float) -> None:
        assert float(written(value, value)) == pytest.approx(value, rel=5.1e-6, abs=1e-300)

    def test_a_rebuilt_value_agrees_as_far_as_it_is_right(self) -> None:
        assert digits(1001.3, 1001.0).differing == "30"
        assert digits(float("nan"), 1.0).differing == "nan"
        assert digits(-17.99, 17.99).same == ""
        assert digits(-1e-12, 0.0).differing == ""


class TestRanks:
    def made(self, *distances: float) -> list[Outcome]:
        return [
            Outcome(Trial("s", "a", i, 0, ""), "CONVERGED", "", True, d, 1.0)
            for i, d in enumerate(distances)
        ]

    def test_two_of_the_best_the_median_and_the_worst(self) -> None:
        found = ranked(self.made(*(float((7 * i) % 11) for i in range(11))), each=2)
        assert [(rank, r.distance) for rank, r in found] == [
            *(("best", 0.0), ("best", 1.0)),
            *(("median", 4.0), ("median", 5.0)),
            *(("worst", 9.0), ("worst", 10.0)),
        ]

    @pytest.mark.parametrize(
        ("count", "names"),
        [
            (0, []),
            (1, ["the only target"]),
            (2, ["best", "worst"]),
            (3, ["best", "between", "worst"]),
        ],
    )
    def test_few_targets_are_all_shown_once(self, count: int, names: list[str]) -> None:
        found = ranked(self.made(*map(float, range(count))), each=2)
        assert [rank for rank, _ in found] == names
        assert [r.trial.target for _, r in found] == list(range(count))

    def test_one_each_of_three(self) -> None:
        found = ranked(self.made(3.0, 1.0, 2.0), each=1)
        assert [(rank, r.distance) for rank, r in found] == [
            ("best", 1.0),
            ("median", 2.0),
            ("worst", 3.0),
        ]


def test_channels_first_is_the_same_picture() -> None:
    image = np.random.default_rng(0).random((8, 8, 3))
    assert picture(np.moveaxis(image, -1, 0), (0.0, 1.0)) == picture(image, (0.0, 1.0))
