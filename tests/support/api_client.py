"""A client of the management API, for a person with a session or an API key."""

import json
from collections.abc import Mapping
from typing import Any

from django.test import Client

from tenants.models import User


class ApiClient:
    """Speaks JSON to one tenant's part of the API."""

    def __init__(self, tenant_id: object, *, user: User | None = None, key: str = "") -> None:
        self.http = Client(raise_request_exception=True)
        self.tenant = f"/api/v1/tenants/{tenant_id}"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        if user is not None:
            self.http.force_login(user)

    def get(self, path: str = "", **query: Any) -> Any:
        return self.http.get(self._url(path), query, headers=self._headers)

    def post(self, path: str, body: object = None) -> Any:
        return self.send("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        return self.send("PATCH", path, body)

    def delete(self, path: str) -> Any:
        return self.send("DELETE", path, None)

    def send(
        self, method: str, path: str, body: object, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request with a JSON body; bytes go as they are, None is no body."""
        return self.http.generic(
            method,
            self._url(path),
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body),
            content_type="application/json",
            headers={**self._headers, **(headers or {})},
        )

    def _url(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.tenant}/{path}".rstrip("/")
