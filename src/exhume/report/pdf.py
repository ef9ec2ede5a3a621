"""The report as PDF, printed by a Chromium on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from exhume.protocol.errors import ExhumeError, InputError
from exhume.runtime.durable import write_bytes

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "microsoft-edge")
_SECONDS = 180


def print_pdf(page: Path) -> Path:
    """Print a report beside itself and return the PDF's path; its appendix is left out."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise InputError(
            f"a PDF needs one of {', '.join(_BROWSERS)} on the path, and there is none; {page} "
            "prints from any browser"
        )
    path = page.with_suffix(".pdf")
    # Its helpers may still write to the profile when the browser has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "report.pdf"
        _run(_command(browser, page, printed, Path(folder)))
        if not printed.is_file():
            raise ExhumeError(f"{browser} printed nothing; print {page} from a browser")
        write_bytes(path, printed.read_bytes())
    return path


def _command(browser: str, page: Path, printed: Path, folder: Path) -> list[str]:
    # A container's root cannot use the sandbox; the page allows nothing but its own parts.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    return [
        *(browser, "--headless", "--disable-gpu", "--no-first-run", *root),
        *("--no-pdf-header-footer", f"--user-data-dir={folder / 'profile'}"),
        *(f"--print-to-pdf={printed}", page.resolve().as_uri()),
    ]


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        reason = "took too long" if isinstance(error, subprocess.TimeoutExpired) else "failed"
        raise ExhumeError(f"{command[0]} {reason}; print the page from a browser instead") from None
