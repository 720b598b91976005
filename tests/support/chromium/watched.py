"""People at their browsers, each with cookies of their own, and what no page may do meanwhile."""

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

_TIMEOUT_MS = 15_000


class Watched:
    """`problems` are errors on the console, which holds reports of the policy too, requests to
    other hosts, and answers of 500 and above."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._url = url
        self._expected: set[int] = set()
        self._others: set[str] = set()

    def open(self) -> Page:
        """A page of somebody whom the service has never seen."""
        context = self._browser.new_context(base_url=self._url, reduced_motion="reduce")
        context.set_default_timeout(_TIMEOUT_MS)
        self._watch(context)
        return context.new_page()

    def expect(self, status: int) -> None:
        """The test is about an answer with that status, which Chromium notes as an error."""
        self._expected.add(status)

    def allow(self, url: str) -> None:
        """People go there too: what that server's pages do is not ours."""
        self._others.add(f"{url}/")

    def _watch(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"script: {error.error}"))
        context.on("request", self._request)
        context.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        is_expected = any(f"status of {status}" in message.text for status in self._expected)
        is_ours = not message.location["url"].startswith(tuple(self._others))
        if message.type in {"error", "warning"} and is_ours and not is_expected:
            self.problems.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", *self._others)):
            self.problems.append(f"asked {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self.problems.append(f"{response.status} from {response.url}")
