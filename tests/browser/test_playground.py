"""The playground in a real browser: two models on one connection, stop, refusals, lost connections
and answers that would rather be a page. The test serves all doors; the worker is scripted."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from control_plane.dashboard.charts.chart import exact_dollars
from msgspec import structs
from playwright.sync_api import Page, WebSocketRoute, expect
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol.messages import FREE, Outcome, TokenUsage
from inference.charges import actual
from inference.models import ServedModel
from inference.redis_functions import LIBRARIES, library_text
from tenants.billing.models import Price
from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, User
from tenants.permissions import Role
from tenants.policy.writer import rebuild_policy
from tests.screenshots.taking import hard_to_use, sideways
from tests.support.adapters.records import a_base
from tests.support.chromium.browsing import browsing, cookies_of, signed_in
from tests.support.chromium.watched import Watched
from tests.support.chromium.whole_service import a_worker_in_a_thread, whole_service
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.projects import make_project

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]
LARGE = "model-large"
HOSTILE = (
    "# Welcome\n\n<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'"
    "</script><a href=\"javascript:document.title='taken'\">one</a> "
    '[two](javascript:document.title="taken") '
    '<b data-hx-get="/t/" data-hx-trigger="load" data-opens="play-code" id="toasts">bold</b>'
    "<form action=/t/><input name=message></form><style>body{display:none}</style>"
    "<iframe srcdoc='x'></iframe> ![pixel](/static/penstock/mark.svg) **strong**"
    "\n\n| | weight |\n|---|---|\n| Acme | 3 |\n"
)
SYSTEM = "Answer in one word."


async def script(run: Run) -> None:
    """Do what the last message says."""
    said = json.loads(run.envelope.body)["messages"][-1]["content"]
    if said == "hostile":
        await run.say(*(HOSTILE[at : at + 40] for at in range(0, len(HOSTILE), 40)))
    elif said == "huge":
        for _ in range(40):
            await run.say("word " * 2_000)
    elif said == "What is the weather in Leeds?":
        await call_a_tool(run)
    elif said == "hold":
        await run.say(f"held by {run.envelope.model}")
        await run.cancelled.wait()
        await run.end(Outcome.CANCELLED)
        return
    else:
        await count_to_three(run)
        return
    await run.end()


async def call_a_tool(run: Run) -> None:
    """Call `weather`, in the pieces in which engines stream a call."""
    call = {"index": 0, "id": "call-1", "type": "function"}
    for piece in (
        {**call, "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city": '}},
        {"index": 0, "function": {"arguments": '"Leeds"}'}},
    ):
        chunk = json.loads(run.chunk(""))
        chunk["choices"][0]["delta"] = {"tool_calls": [piece]}
        await run.push(structs.replace(run.delta(""), chunks=[json.dumps(chunk).encode()]))


@pytest.fixture
def acme(settings: Settings, dispatch_redis_url: str) -> Project:
    settings.CELERY_BROKER_URL = "memory://"
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.ALLOWED_HOSTS = ["*"]
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        for library in LIBRARIES:
            redis.function_load(library_text(library), replace=True)
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        pool = a_base(MODEL).pool
        assert pool.name == POOL
        ServedModel.objects.create(name=LARGE, pool=pool, context_tokens=2048)
        ServedModel.objects.update(capabilities=["chat", "tools", "json_schema"])
        for model, micros in ((MODEL, 1_000_000), (LARGE, 7_000_001)):
            Price.objects.create(
                model=model,
                prompt_micros_per_million_tokens=micros,
                cached_micros_per_million_tokens=micros,
                completion_micros_per_million_tokens=3 * micros,
            )
        alice = User.objects.create_user("alice@acme.example")
        Membership.objects.create(tenant=project.tenant, user=alice, role=Role.DEVELOPER)
    rebuild_policy()
    return project


@pytest.fixture
def cookies(acme: Project) -> dict[str, str]:
    return cookies_of(User.objects.get(email="alice@acme.example"))


@pytest.fixture
def url(acme: Project, gateway_redis_url: str) -> Iterator[str]:
    with whole_service(gateway_redis_url) as url:
        yield url


@pytest.fixture
def worker(acme: Project, worker_redis_url: Any) -> Iterator[ScriptedWorker]:
    with a_worker_in_a_thread(worker_redis_url(POOL), script) as worker:
        yield worker


@pytest.fixture
def browser(
    chromium: str, url: str, cookies: dict[str, str], worker: ScriptedWorker
) -> Iterator[Watched]:
    with browsing(chromium, url) as watched:
        yield watched


@pytest.fixture
def page(browser: Watched, acme: Project, url: str, cookies: dict[str, str]) -> Page:
    page = signed_in(browser.open(), url, cookies)
    page.goto(f"/t/{acme.tenant_id}/playground")
    return page


def say(page: Page, text: str) -> None:
    page.locator("[name=message]").fill(text)
    page.keyboard.press("Enter")


def answers(page: Page, pane: int) -> Any:
    return page.locator("[data-pane]").nth(pane).locator(".play-answer")


def wait_until_over(page: Page) -> None:
    expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.locator("[data-run]")).to_be_enabled()


def test_two_models_answer_beside_each_other_on_one_connection(
    page: Page, worker: ScriptedWorker
) -> None:
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.locator("[name=system]").fill(SYSTEM)
    page.locator("[name=temperature]").fill("0.5")
    say(page, "Count.")
    for pane in (0, 1):
        expect(answers(page, pane)).to_contain_text("One two three")
    wait_until_over(page)
    assert {run.envelope.model for run in worker.runs.values()} == {MODEL, LARGE}
    assert len({run.envelope.api_key_id for run in worker.runs.values()}) == 1
    body = json.loads(next(iter(worker.runs.values())).envelope.body)
    assert body["messages"][0] == {"role": "system", "content": SYSTEM}
    assert body["temperature"] == 0.5

    # What it cost is what the bill says, to the last nano-dollar.
    usage = TokenUsage(prompt_tokens=3, completion_tokens=3)
    for pane, model in ((0, MODEL), (1, LARGE)):
        envelope = next(run.envelope for run in worker.runs.values() if run.envelope.model == model)
        assert envelope.prices != FREE
        nanos = actual(Outcome.COMPLETED, usage, envelope.prices).nanos
        expect(answers(page, pane).locator("[data-figure=cost]")).to_have_text(exact_dollars(nanos))
        expect(answers(page, pane).locator("[data-figure=tokens]")).to_have_text("3 in, 3 out")

    say(page, "hold")
    for pane, model in ((0, MODEL), (1, LARGE)):
        expect(answers(page, pane).nth(1)).to_contain_text(f"held by {model}")
    page.get_by_role("button", name="Stop").click()
    for pane in (0, 1):
        expect(answers(page, pane).nth(1)).to_contain_text("You stopped this answer")
    wait_until_over(page)
    assert len(sockets) == 1
    assert len(worker.cancelled) == 2
    assert hard_to_use(page) == []

    say(page, "hostile")
    for pane in (0, 1):
        shown = answers(page, pane).nth(2).locator("[data-body]")
        expect(shown.locator("strong")).to_have_text("strong")
        expect(shown.locator("th")).to_have_text(["weight"])
        expect(shown).to_contain_text("<script>document.title='taken'</script>")
        assert (
            shown.locator("img, script, style, form, input, iframe, [id], [data-opens]").count()
            == 0
        )
        assert shown.locator("[href^='javascript:']").count() == 0
    assert hard_to_use(page) == []
    assert page.title().startswith("Playground")


@pytest.mark.rare
def test_a_call_of_a_tool_waits_for_its_result_and_the_answer_keeps_its_schema(
    page: Page, worker: ScriptedWorker
) -> None:
    schema = {"type": "object", "properties": {"celsius": {"type": "number"}}}
    tool = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": tool}]
    page.locator("[name=compare]").uncheck()
    page.get_by_text("Tools and JSON schema").click()
    page.locator("[name=tools]").fill(json.dumps(tools))
    page.locator("[name=json_schema]").fill(json.dumps(schema))
    say(page, "What is the weather in Leeds?")
    expect(answers(page, 0).locator("[data-calls]")).to_have_text('weather({"city": "Leeds"})')
    result = page.get_by_label("Result of weather")
    result.fill('{"celsius": 18}')
    assert hard_to_use(page) == []
    page.get_by_role("button", name="Send results").click()
    expect(answers(page, 0).nth(1)).to_contain_text("One two three")
    wait_until_over(page)
    expect(result).to_have_count(0)

    first, second = (json.loads(run.envelope.body) for run in worker.runs.values())
    assert first["tools"] == tools
    assert first["response_format"]["json_schema"]["schema"] == schema
    assert second["messages"][1]["tool_calls"][0]["function"] == {
        "name": "weather", "arguments": '{"city": "Leeds"}',
    }  # fmt: skip
    said = second["messages"][2]
    assert (said["role"], said["tool_call_id"]) == ("tool", "call-1")
    assert said["content"] == '{"celsius": 18}'


@pytest.mark.rare
def test_a_refusal_is_told_in_its_own_words(page: Page, acme: Project) -> None:
    page.locator("[name=max_tokens]").fill("999999")
    say(page, "Count.")
    refused = answers(page, 0).locator(".notice[data-kind=bad]")
    expect(refused).to_contain_text("max_tokens")
    wait_until_over(page)
    # What is wrong here is said beside its field, and nothing is sent.
    page.locator("[name=max_tokens]").fill("many")
    say(page, "Count.")
    expect(page.locator(".field-error")).to_contain_text("A whole number from 1")
    page.locator("[name=max_tokens]").fill("")
    page.locator("summary").click()
    tools = page.locator("[name=tools]")
    help_text = tools.get_attribute("aria-describedby")
    tools.fill("{}")
    page.locator("[name=message]").press("Enter")
    expect(page.locator(".field-error")).to_contain_text("A list of tools")
    assert help_text and tools.get_attribute("aria-describedby") == f"{help_text} id_tools_error"
    tools.fill("")
    page.locator("[name=message]").press("Enter")
    expect(page.locator(".field-error")).to_have_count(0)
    expect(tools).to_have_attribute("aria-describedby", help_text)
    assert answers(page, 0).count() == 2


@pytest.mark.rare
def test_what_a_lost_connection_cut_off_is_told_and_never_sent_again(
    page: Page, worker: ScriptedWorker
) -> None:
    routes: list[WebSocketRoute] = []

    def pass_on(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    page.route_web_socket("**/ws/v1/stream*", pass_on)
    page.reload()
    say(page, "hold")
    expect(answers(page, 0)).to_contain_text("held by")
    expect(answers(page, 1)).to_contain_text("held by")
    routes[0].close()
    for pane in (0, 1):
        expect(answers(page, pane)).to_contain_text("cut off after 1 pieces")
    expect(page.locator("[data-state=lost]")).to_be_visible()
    assert len(worker.runs) == 2
    say(page, "Count.")
    expect(answers(page, 0).nth(1)).to_contain_text("One two three")
    wait_until_over(page)
    assert len(routes) == 2 and len(worker.runs) == 4
    said = [json.loads(run.envelope.body)["messages"] for run in worker.runs.values()]
    assert all(len(messages) == 1 for messages in said)


@pytest.mark.rare
def test_a_huge_answer_stays_text_and_the_page_stays_quick(page: Page) -> None:
    page.locator("[name=compare]").uncheck()
    say(page, "huge")
    expect(answers(page, 0).locator(".plain-text")).to_contain_text("word word")
    wait_until_over(page)
    assert len(answers(page, 0).locator("[data-body]").inner_text()) > 390_000


@pytest.mark.rare
def test_the_page_works_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.reload()
    assert sideways(page) == [] and hard_to_use(page) == []
    say(page, "hostile")
    expect(answers(page, 1)).to_contain_text("Welcome")
    wait_until_over(page)
    assert sideways(page) == []


@pytest.mark.rare
def test_whose_key_is_revoked_is_told_and_cut_off(
    page: Page, acme: Project, browser: Watched
) -> None:
    say(page, "hold")
    expect(answers(page, 0)).to_contain_text("held by")
    page.goto(f"/t/{acme.tenant_id}/keys")
    row = page.get_by_role("row", name="Playground")
    expect(row).to_contain_text("playground")
    other = page.context.new_page()
    other.goto(f"/t/{acme.tenant_id}/playground")
    say(other, "hold")
    expect(answers(other, 0)).to_contain_text("held by")
    row.get_by_role("link").click()
    page.get_by_role("link", name="Revoke key").click()
    page.locator("dialog [name=confirm_name]").fill("Playground")
    page.get_by_role("dialog").get_by_role("button", name="Revoke key").click()
    expect(answers(other, 0)).to_contain_text("revoked")
    expect(other.locator("[data-problem]")).to_contain_text("revoked")


def test_the_code_has_the_request_and_no_key(page: Page) -> None:
    page.locator("[name=message]").fill('It\'s "here"')
    page.get_by_role("button", name="Code").click()
    code = page.locator("#play-code")
    expect(code.locator("[data-code=curl]")).to_contain_text("Bearer $PENSTOCK_API_KEY")
    expect(code.locator("[data-code=curl]")).to_contain_text("It'\\''s \\\"here\\\"")
    expect(code.locator("[data-code=python]")).to_contain_text('"stream": True')
    assert "pk-" not in code.inner_text()
    assert hard_to_use(page) == []
