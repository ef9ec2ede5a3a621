"""The user's page about gradient matching shows what really comes out."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs/explanation/gradient-matching.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_python_blocks_print_what_the_page_says() -> None:
    names: dict[str, object] = {}
    for block in BLOCKS:
        expected = re.findall(r"^#> (.*)$", block, re.MULTILINE)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(block, names)
        assert output.getvalue().splitlines() == expected
    assert len(BLOCKS) == 4
