"""Takes pictures of pages in Chromium, and notes what no page may do."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, cast

from allauth.usersessions.models import UserSession
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tenants.models import User
from tests.screenshots.pages import Shot
from tests.support.places import ROOT

_AXE = ROOT / "tests/screenshots/vendor/axe-core/axe.min.js"
# In pixels; a picture of the whole API takes Chromium half a minute.
_HIGHEST = 8_000
_BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# Whatever a person may press, and what lies over its middle in its place.
_ASK_COVERED = """
    () => [...document.querySelectorAll("a[href], button, input, select, summary, textarea")]
      .filter((each) => each.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
      .flatMap((each) => {
        const box = each.getClientRects()[0];
        const isElsewhere = "[type=file], [type=hidden], .select2-hidden-accessible";
        if (!box || each.disabled || each.matches(isElsewhere)) return [];
        const x = box.x + box.width / 2, y = box.y + box.height / 2;
        const over = document.elementFromPoint(x, y);
        if (!over || each.contains(over) || over.contains(each)) return [];
        if ([...(each.labels || [])].some((label) => label.contains(over))) return [];
        const fixed = [...document.querySelectorAll("*")].some((one) =>
          one.contains(over) && ["fixed", "sticky"].includes(getComputedStyle(one).position));
        if (fixed) return [];
        const name = (one) => `${one.localName}.${[...one.classList].join(".")}`;
        return [`${name(each)} "${each.textContent.trim().slice(0, 30)}" under ${name(over)}`];
      })
"""
_ASK_AXE = """
    async (rules) => (await axe.run(document, { runOnly: rules })).violations.map(
      (rule) => `axe ${rule.id}: ${rule.nodes.slice(0, 3).map((node) => node.target).join(", ")}`
    )
"""


def take(
    shots: Sequence[Shot],
    url: str,
    *,
    folder: Path,
    widths: Mapping[int, int],
    schemes: Iterable[str],
    flags: Sequence[str],
) -> list[str]:
    """Write a picture of each, by widths (with their heights) and schemes. Return the problems."""
    users = {shot.user.pk: shot.user for shot in shots if shot.user is not None}
    problems: list[str] = []
    # Django's database is not for the thread in which Playwright runs its event loop.
    with sync_playwright() as playwright, ThreadPoolExecutor(max_workers=1) as aside:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(flags)
        )
        for scheme in schemes:
            for width, height in widths.items():
                # Some pages ask for a sign-in within the last minutes; all of them take longer.
                cookies = {pk: aside.submit(_session, user).result() for pk, user in users.items()}
                # A person's pages in one context, whose cache holds the static files.
                contexts: dict[object, BrowserContext] = {}
                for shot in shots:
                    who = None if shot.user is None else shot.user.pk
                    if who not in contexts:
                        contexts[who] = _context(browser, scheme, width, height)
                        for name, value in (cookies[who] if who else {}).items():
                            contexts[who].add_cookies([{"name": name, "value": value, "url": url}])
                    name = f"{shot.name}-{width}-{scheme}"
                    found = _one(contexts[who], shot, url, folder / f"{name}.png")
                    problems += [f"{name}: {problem}" for problem in found]
                for context in contexts.values():
                    context.close()
        browser.close()
    return problems


def _one(context: BrowserContext, shot: Shot, url: str, file: Path) -> list[str]:
    problems: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: problems.append(f"console: {message.text}")
            if message.type in {"error", "warning"} and not _is_expected(message.text)
            else None)  # fmt: skip
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(url) else problems.append(f"asked {request.url}")
        ),
    )
    page.goto(url + shot.address, wait_until="load")
    if shot.first is not None:
        shot.first(page)
    problems += sideways(page)
    problems += hard_to_use(page)
    if not page.locator(":popover-open, dialog[open]").count():
        _unroll(page)
        problems += covered(page)
    page.screenshot(path=file)
    page.close()
    return problems


def _unroll(page: Page) -> None:
    """Make the window as high as the page: bars that are fixed to it stand where they end. Of what
    is very long its beginning will do."""
    size = page.viewport_size
    height = min(page.evaluate("document.documentElement.scrollHeight"), _HIGHEST)
    if size is not None and height > size["height"]:
        page.set_viewport_size({"width": size["width"], "height": height})
    page.evaluate("scrollTo(0, 0)")


def _is_expected(text: str) -> bool:
    """Return whether it is Chromium's note of a status that the picture is about."""
    return text.startswith("Failed to load resource") and "status of 4" in text


def sideways(page: Page) -> list[str]:
    """Return whether the page is wider than its window."""
    width, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return [f"is {width} px wide in {room}"] if width > room else []


def hard_to_use(page: Page) -> list[str]:
    """Return what axe finds against WCAG 2.2 AA and good practice, each with its first elements."""
    page.evaluate(f"{_AXE.read_text(encoding='utf-8')};0")
    found: list[str] = page.evaluate(_ASK_AXE, list(_RULES))
    return found


def covered(page: Page) -> list[str]:
    """Return what in the window cannot be pressed because something else lies over it."""
    found: list[str] = page.evaluate(_ASK_COVERED)
    return [f"covered: {each}" for each in found]


def _context(browser: Browser, scheme: str, width: int, height: int) -> BrowserContext:
    return browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=cast(Literal["light", "dark"], scheme),
        reduced_motion="reduce",
        device_scale_factor=1 if width > 400 else 2,
        timezone_id="Europe/Berlin",
    )


def _session(user: User) -> dict[str, str]:
    UserSession.objects.filter(user=user).delete()  # one of them is shown
    client = Client()
    client.force_login(user)
    # No request came with it.
    UserSession.objects.filter(user=user).update(ip="192.0.2.7", user_agent=_BROWSER)
    return {name: morsel.value for name, morsel in client.cookies.items()}
