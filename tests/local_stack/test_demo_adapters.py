"""The adapters that `make up` gives the demo tenants."""

from pathlib import Path

import pytest
from local_stack.settings import StackSettings
from local_stack.stack import Stack


@pytest.mark.parametrize(("slots", "has_them"), [("", True), ("4", True), ("0", False)])
def test_adapters_are_put_in_only_where_the_engine_has_slots_for_them(
    tmp_path: Path, slots: str, has_them: bool
) -> None:
    (tmp_path / "var").mkdir()
    settings = StackSettings.read(tmp_path, {"PENSTOCK_ADAPTER_SLOTS": slots})
    stack = Stack(tmp_path, tmp_path / "var", settings, data_folder=tmp_path / "data")
    assert stack.has_demo_adapters is has_them
