"""Somebody at a browser and a terminal, whose clicks, fields and commands are counted."""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.support.stack_addresses import Person as Account

_TOKEN = re.compile(r'"content": ?"[^"]')


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What an errand took. `seconds` are the machine's alone: nobody reads or thinks."""

    clicks: int
    fields: int
    commands: int
    seconds: float


class Visitor:
    """Clicks are real ones: Playwright refuses where something else lies over a button."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._clicks = self._fields = self._commands = 0
        self._begun_at = time.monotonic()

    def go(self, address: str) -> None:
        """Type an address, or take it from a bookmark."""
        self.page.goto(address)

    def click(self, target: Locator) -> None:
        target.click()
        self._clicks += 1

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name).first)

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True).first)

    def rail(self, section: str) -> None:
        self.click(self.page.locator(f".rail-link[href$='/{section}']"))
        self.page.wait_for_url(f"**/{section}")

    def fill(self, name: str, text: str) -> None:
        self.page.locator(f"[name={name}]").fill(text)
        self._fields += 1

    def choose(self, name: str, label: str) -> None:
        self.page.locator(f"[name={name}]").select_option(label=label)
        self._fields += 1

    def give_file(self, file: Path) -> None:
        self.page.locator("[name=file]").set_input_files(file)
        self._fields += 1

    def sign_in(self, account: Account) -> None:
        self.fill("login", account.email)
        self.fill("password", account.password)
        self.button("Sign in")
        self.page.wait_for_url(lambda url: "/login/" not in url)

    def see(self, target: Locator, text: str) -> None:
        """Wait until it is there to read."""
        expect(target).to_contain_text(text, timeout=30_000)

    def copied(self, label: str) -> str:
        """Copy a command that the page shows."""
        box = (
            self.page.locator(".code")
            .filter(has_text=label)
            .or_(self.page.locator(f".code[aria-label='{label}']"))
        )
        self.click(box.get_by_role("button").first)
        return box.locator("code").first.inner_text()

    def run_to_first_token(self, command: str, environ: Mapping[str, str] | None = None) -> None:
        """Paste a command into a terminal and wait until a token of an answer is there."""
        self._commands += 1
        with subprocess.Popen(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environ,
        ) as process:
            assert process.stdout is not None
            told = []
            for line in process.stdout:
                told.append(line)
                if _TOKEN.search(line):
                    break
            process.terminate()
        assert told and _TOKEN.search(told[-1]), f"no token came: {''.join(told)[:500]}"

    def effort(self) -> Effort:
        return Effort(
            clicks=self._clicks,
            fields=self._fields,
            commands=self._commands,
            seconds=time.monotonic() - self._begun_at,
        )
