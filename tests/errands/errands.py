"""Six errands, each from nothing but an account to what it is for."""

import re
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from tests.errands.person import Visitor
from tests.support.places import ROOT
from tests.support.stack_addresses import LiveStack

Errand = Callable[[Visitor, LiveStack, Path], None]

_ADAPTERS = ROOT / "gpu_workers" / "demo_model" / "adapters"
# What validation and a worker take together.
_READY_MS = 60_000


def readme_to_first_token(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """The README's command after `make up`, pasted."""
    shown = (ROOT / "README.md").read_text().partition("set -a; . var/demo.env\n")[2]
    command = f"set -a; . {stack.var_folder / 'demo.env'}\n{shown.partition('```')[0]}"
    visitor.run_to_first_token(command.replace("http://localhost:8000", stack.public_url))


def owner_to_key_and_stream(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """An owner signs in, makes a key and streams with it."""
    visitor.go("/t/")
    visitor.sign_in(stack.acme_owner)
    visitor.rail("keys")
    visitor.link("New key")
    visitor.fill("name", _name("errand"))
    visitor.button("Create key")
    visitor.run_to_first_token(visitor.copied("A first request with the key"))


def upload_to_answer(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """An owner uploads an adapter, and it answers."""
    visitor.go("/t/")
    visitor.sign_in(stack.acme_owner)
    visitor.rail("adapters")
    visitor.link("New adapter")
    visitor.fill("slug", _name("tone"))
    visitor.give_file(_zip_of("acme-support", folder))
    visitor.button("Create adapter")
    _wait_until_ready(visitor)
    visitor.click(visitor.page.locator(".crumbs a"))
    command = visitor.copied("A request to this adapter")
    visitor.run_to_first_token(command, {"PENSTOCK_API_KEY": stack.acme_key})


def promote_and_roll_back(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """An owner adds a version to an adapter, sends the traffic there and takes it back."""
    visitor.go("/t/")
    visitor.sign_in(stack.acme_owner)
    visitor.rail("adapters")
    visitor.click(visitor.page.locator("#list").get_by_role("link", name="tone-").first)
    visitor.link("New version")
    visitor.give_file(_zip_of("globex-support", folder))
    visitor.button("Add version")
    _wait_until_ready(visitor)
    visitor.click(visitor.page.locator(".crumbs a"))
    visitor.click(visitor.page.get_by_role("button", name="Promote"))
    versions = visitor.page.locator("#list tbody tr")
    visitor.see(versions.filter(has_text="Version 2"), "100 %")
    visitor.click(visitor.page.get_by_role("button", name="Roll back to version 1"))
    visitor.see(versions.filter(has_text="Version 1"), "100 %")


def operator_to_a_tenants_first_token(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """An operator makes a tenant, which streams."""
    visitor.go("/admin/tenants/tenant/add/")
    visitor.fill("username", stack.operator.email)
    visitor.fill("password", stack.operator.password)
    visitor.click(visitor.page.get_by_role("button", name=re.compile("^(Sign|Log) in$")))
    visitor.fill("name", _name("Newcomers"))
    visitor.choose("tier", "standard")
    visitor.click(visitor.page.locator("[name=makes_key]"))
    visitor.click(visitor.page.locator("[name=_save]"))
    shown = visitor.page.locator("pre code")
    visitor.click(shown)
    visitor.run_to_first_token(shown.inner_text())


def why_was_this_refused(visitor: Visitor, stack: LiveStack, folder: Path) -> None:
    """An owner reads why a program's request was refused, and what to do."""
    answer = stack.ask(stack.acme_key, "Count.", model=_name("no-such-model"))
    request_id = str(uuid.UUID(answer.headers["x-request-id"]))
    visitor.go("/t/")
    visitor.sign_in(stack.acme_owner)
    visitor.rail("refusals")
    row = visitor.page.locator("#list tr", has=visitor.page.locator(f"[data-copy='{request_id}']"))
    # Refusals are reported within seconds: somebody who is quicker looks again.
    while not row.count():
        visitor.page.wait_for_timeout(2000)
        visitor.rail("refusals")
    visitor.see(row, "names a model that does not exist")


ERRANDS: dict[str, Errand] = {
    "README to a first token": readme_to_first_token,
    "Owner: sign in, make a key, stream": owner_to_key_and_stream,
    "Owner: upload an adapter, get its answer": upload_to_answer,
    "Owner: add a version, promote it, roll back": promote_and_roll_back,
    "Operator: a new tenant to its first token": operator_to_a_tenants_first_token,
    "Owner: why was this refused?": why_was_this_refused,
}


def _wait_until_ready(visitor: Visitor) -> None:
    visitor.page.wait_for_url("**/versions/*")
    expect(visitor.page.locator("#state .badge")).to_have_text(
        re.compile("ready|live"), timeout=_READY_MS
    )


def _zip_of(adapter: str, folder: Path) -> Path:
    path = folder / f"{adapter}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((_ADAPTERS / adapter).iterdir()):
            archive.write(file, file.name)
    return path


def _name(begin: str) -> str:
    return f"{begin}-{uuid.uuid4().hex[:8]}"
