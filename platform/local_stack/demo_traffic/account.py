"""One demo tenant's account, as its owner keeps it: projects, keys and limits, made by the public
API where they are missing."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx
from control_plane.demo.people import LABELS

from local_stack.demo_adapters import NotReached, ask
from local_stack.demo_traffic.cast import Program
from local_stack.services import ServiceError

_TIMEOUT_SECONDS: Final = 30.0


class Account:
    """Signed in as the owner until it is closed. Raises `ServiceError` where that is refused."""

    def __init__(self, demo_env: Mapping[str, str], tenant: str) -> None:
        self._http = httpx.Client(
            base_url=demo_env["PENSTOCK_URL"], timeout=_TIMEOUT_SECONDS, trust_env=False
        )
        variable = f"PENSTOCK_{tenant.upper()}"
        self._sign_in(demo_env[f"{variable}_EMAIL"], demo_env[f"{variable}_PASSWORD"])
        self._address = f"/api/v1/tenants/{self._tenant_of(demo_env[f'{variable}_KEY'])}"

    def keys_for(self, programs: Iterable[Program], kept: Mapping[str, str]) -> dict[str, str]:
        """Return a key for each program, by its name: the kept one where it still works."""
        keys = {}
        for program in programs:
            project = self._project(program.project)
            key = kept.get(program.name)
            if key is None or not self._works(key):
                key = self._issue(program, project)
            keys[program.name] = key
        return keys

    def close(self) -> None:
        self._http.close()

    def _sign_in(self, email: str, password: str) -> None:
        try:
            self._change_as(self._ask("GET", "/api/v1/session"))
            credentials = {"email": email, "password": password}
            self._change_as(self._ask("POST", "/api/v1/session", json=credentials))
        except NotReached:
            raise ServiceError(
                f"Penstock does not answer at {self._http.base_url}: run `make up` first."
            ) from None
        except ServiceError as problem:
            raise ServiceError(
                f"{email} cannot sign in with the password of var/demo.env: {problem}"
            ) from None

    def _change_as(self, session: Mapping[str, Any]) -> None:
        self._http.headers["X-CSRFToken"] = session["csrf_token"]
        self._http.headers["Referer"] = f"{self._http.base_url}"

    def _tenant_of(self, key: str) -> str:
        answer = self._http.get("/api/v1/me", headers={"Authorization": f"Bearer {key}"})
        if answer.status_code != HTTPStatus.OK:
            raise ServiceError("A key of var/demo.env works no more: `make up` renews it.")
        [tenant] = answer.json()["tenants"]
        return str(tenant["id"])

    def _project(self, name: str) -> str:
        """Return a project's id; its usage is recorded by users and features."""
        found = self._ask("GET", f"{self._address}/projects", params={"limit": 100})["data"]
        project = next((each for each in found if each["name"] == name), None)
        if project is None:
            made = {"name": name, "usage_labels": list(LABELS)}
            project = self._ask("POST", f"{self._address}/projects", json=made)
        project_id: str = project["id"]
        return project_id

    def _works(self, key: str) -> bool:
        answer = self._http.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
        return answer.status_code == HTTPStatus.OK

    def _issue(self, program: Program, project_id: str) -> str:
        asked = {"name": program.name, "project_id": project_id, "scopes": ["inference"]}
        made = self._ask("POST", f"{self._address}/keys", json=asked)
        for limit, value in program.limits.items():
            quota = {"api_key_id": made["id"], "limit": limit, "value": value}
            self._ask("POST", f"{self._address}/quotas", json=quota)
        key: str = made["key"]
        return key

    def _ask(self, method: str, address: str, **request: Any) -> dict[str, Any]:
        return ask(self._http, method, address, **request)
