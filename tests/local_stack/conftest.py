import os
from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout, empty but for `var`."""
    root = tmp_path / "checkout"
    (root / "var" / "log").mkdir(parents=True)
    return root


@pytest.fixture
def without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """pip and uv as on a machine where nobody has told them anything."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch
