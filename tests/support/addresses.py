"""Addresses for the things of one house, and the least that each of them is sent."""

import re
from typing import Final

from tests.support.two_tenants import PASSWORD, House

API: Final = "/api/v1/"


def ids_of(house: House) -> dict[str, object]:
    """What stands in addresses of one house's things, but for the event's."""
    return {
        "tenant_id": house.tenant.id,
        "project_id": house.project.id,
        "key_id": house.key.id,
        "member_id": house.members["developer"].id,
        "invitation_id": house.invitation.id,
        "quota_id": house.quota.id,
        "transaction_id": house.transaction.id,
        "endpoint_id": house.endpoint.id,
        "delivery_id": house.delivery.id,
        "invoice_id": house.invoice.id,
        "line_id": house.line.id,
        "adapter_id": house.adapter_version.adapter_id,
        "version_id": house.adapter_version.id,
        "request_id": house.usage.request_id,
        "upload_id": f"upload_{house.upload.id.hex}",
        "pending_id": house.upload.id,
        "path": "uploads/nothing",
        "session_id": 0,
        "mail_domain_id": house.mail_domain.id,
        "view_id": house.view.id,
        "slug": "inference",
        # pages of the admin
        "object_id": house.tenant.id,
        "content_type_id": 1,
        "id": house.people["viewer"].id,
        "pk": 1,
        "table": "tier",
        "verb": "top-up",
        # links of e-mails
        "uidb36": house.people["viewer"].id.hex,
        "key": "made-up",
    }


def url(address: str, house: House, **other: object) -> str:
    """The address for the things of one house."""
    ids = ids_of(house) | other
    if "<event_id>" in address:
        ids.setdefault("event_id", house.ids["event_id"])
    # The admin has two addresses that are expressions.
    plain = re.sub(r"\^?\(\?P<\w+>.*\)(/?)\$", r"tenants\1", address)
    return re.sub(r"<(\w+)>", lambda match: str(ids[match[1]]), plain)


def body_for(address: str, method: str, house: House) -> dict[str, object] | None:
    """What a request sends there: the least that the API takes."""
    bodies: dict[tuple[str, str], dict[str, object]] = {
        ("session", "POST"): {"email": "viewer@acme.example", "password": PASSWORD},
        ("<tenant_id>", "PATCH"): {"name": "renamed"},
        ("projects", "POST"): {"name": "new"},
        ("<project_id>", "PATCH"): {
            "name": "renamed",
            "on_saturation": "smaller_model",
            "smaller_model": house.model.name,
        },
        ("keys", "POST"): {"project_id": str(house.project.id), "scopes": ["keys:write"]},
        ("<key_id>", "PATCH"): {"name": "renamed"},
        ("members", "POST"): {"email": "new@nowhere.example"},
        ("<member_id>", "PATCH"): {"role": "viewer"},
        ("invitations", "POST"): {"email": "new@nowhere.example"},
        ("uploads", "POST"): {
            "bytes": 1,
            "filename": "new.zip",
            "mime_type": "application/zip",
            "purpose": "adapter",
        },
        ("complete", "POST"): {"part_ids": ["part_" + "0" * 32]},
        ("transfer", "POST"): {"member_id": str(house.members["developer"].id)},
        ("accept", "POST"): {"token": "made-up"},
        ("quotas", "POST"): {
            "limit": "tokens_per_month",
            "value": 1,
            "project_id": str(house.project.id),
        },
        ("<quota_id>", "PATCH"): {"value": 1},
        ("balance-alert", "PATCH"): {"threshold_nanos": 1},
        ("adapters", "POST"): {"slug": "new", "model": house.model.name},
        ("versions", "POST"): {"file_id": f"file-{house.upload.id.hex}"},
        ("<adapter_id>", "PATCH"): {"traffic": [{"version": 1, "permille": 1000}]},
        ("webhooks", "POST"): {"url": "https://93.184.216.34/new"},
        ("<endpoint_id>", "PATCH"): {"description": "renamed"},
    }
    return bodies.get((address.rpartition("/")[2], method))
