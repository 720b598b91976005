"""GET models: what the tenant can call. Others do not exist for it."""

from typing import Any, ClassVar

from rest_framework.response import Response

from gpu_workers.protocol.policy import ModelPolicy
from inference.management_api.callers import KeyBearer
from inference.management_api.lists import listed
from inference.management_api.view import TenantView
from inference.models.catalog import models_visible_to
from tenants.pages import Page
from tenants.permissions import Permission


class ModelsView(TenantView):
    """The catalogue is an operator's, and short: one page."""

    permissions: ClassVar = {"GET": Permission.VIEW}

    def get(self) -> Response:
        models = models_visible_to(self.tenant.id)
        if isinstance(self.caller, KeyBearer) and self.caller.key.allowed_models is not None:
            models = [model for model in models if model.name in self.caller.key.allowed_models]
        return listed(Page(rows=models, next_cursor=None), _rendered)


def _rendered(model: ModelPolicy) -> dict[str, Any]:
    """Prices are the list's, before the tier's multiplier."""
    return {
        "object": "model",
        "id": model.name,
        "owned_by": model.owned_by,
        "context_tokens": model.context_tokens,
        "capabilities": model.capabilities,
        "price_micros_per_million_tokens": {
            "prompt": model.price.prompt,
            "cached": model.price.cached,
            "completion": model.price.completion,
        },
    }
