"""What vLLM's serving objects call the model in their answers: they see no adapter, so they are
told for each request."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_answered: ContextVar[str] = ContextVar("response_model", default="")


@contextmanager
def answering_as(name: str) -> Iterator[None]:
    """Name the model so in what this task asks meanwhile."""
    token = _answered.set(name)
    try:
        yield
    finally:
        _answered.reset(token)


def name_answers(models: Any) -> None:
    """Have vLLM's `OpenAIServingModels` call the model as the request that asks does."""
    own = models.model_name

    def model_name(*arguments: Any, **options: Any) -> str:
        name: str = _answered.get() or own(*arguments, **options)
        return name

    models.model_name = model_name
