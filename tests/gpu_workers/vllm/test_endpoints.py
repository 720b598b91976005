"""Which APIs vLLM serves. Read from the source: the modules themselves want vLLM."""

import ast
from collections.abc import Iterator
from pathlib import Path

from gpu_workers.protocol.messages import Api
from tests.support.places import ROOT

VLLM = ROOT / "gpu_workers" / "vllm"
REGISTRY = VLLM / "endpoints" / "registry.py"


def apis_named_in(module: Path) -> Iterator[Api]:
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="Api"), attr=name):
                yield Api[name]


def test_every_api_has_an_endpoint() -> None:
    assert sorted(apis_named_in(REGISTRY)) == sorted(Api)


def test_nothing_but_the_registry_names_an_api() -> None:
    others = [module for module in VLLM.rglob("*.py") if module != REGISTRY]
    assert others
    assert {module.name: list(apis_named_in(module)) for module in others} == {
        module.name: [] for module in others
    }
