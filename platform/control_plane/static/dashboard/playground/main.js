// The playground. Conversations are kept here and nowhere else: they go with the page.
import { Connection, ticketFrom } from "./connection.js";
import { Pane } from "./pane.js";
import { mark, read } from "./settings.js";
import { curl, javascript, python } from "./snippets.js";

const STATES = { closed: "connects with the first message", opening: "connecting", open: "connected", lost: "connection lost; the next message opens another" };
const page = document.querySelector("[data-playground]");
const form = page.querySelector("form");
const composer = form.elements.message;
const stop = page.querySelector("[data-stop]");
const run = page.querySelector("[data-run]");

const connection = new Connection({
  ticket: () => ticketFrom(page.dataset.tickets, form),
  tell(state) {
    const badge = page.querySelector("[data-state]");
    badge.dataset.state = state;
    badge.textContent = STATES[state];
  },
  problem: ({ message }) => tell(message),
});
const panes = [...page.querySelectorAll("[data-pane]")].map((element) => new Pane(element, connection, refresh));

function shown() {
  return panes.filter((pane) => !pane.element.hidden);
}

function refresh() {
  const isRunning = panes.some((pane) => pane.isRunning);
  stop.disabled = !isRunning;
  run.disabled = isRunning || !form.elements.project.value || !panes[0].model;
}

// What is about the connection and no one request.
function tell(text) {
  const notice = page.querySelector("[data-problem]");
  notice.hidden = !text;
  notice.querySelector("[data-text]").textContent = text;
}

function isTooLong(bodies) {
  const most = Number(page.dataset.mostBytes) - 200;
  const bytes = Math.max(...bodies.map((body) => new TextEncoder().encode(JSON.stringify(body)).length));
  mark(composer, bytes > most ? `A request on this connection has at most ${most.toLocaleString("en")} bytes; with its conversation this one has ${bytes.toLocaleString("en")}. Clear the conversation or call the API over HTTP.` : "");
  return bytes > most;
}

function send(those, asked) {
  const settings = read(form);
  const system = form.elements.system.value.trim();
  if (!settings || isTooLong(those.map((pane) => pane.body(system, settings, asked)))) return false;
  tell("");
  for (const pane of those) pane.run(system, settings, asked);
  return true;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = composer.value.trim();
  if (run.disabled || !text) return;
  if (send(shown(), [{ role: "user", content: text }])) composer.value = "";
});

composer.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

stop.addEventListener("click", () => {
  for (const pane of panes) pane.stop();
});

for (const pane of panes) {
  pane.goOn = (one, results) => !panes.some((each) => each.isRunning) && send([one], results);
}

page.querySelector("[data-clear]").addEventListener("click", () => {
  for (const pane of panes) {
    pane.stop();
    pane.clear();
  }
  composer.focus();
});

form.elements.compare.addEventListener("change", () => {
  panes[1].element.hidden = !form.elements.compare.checked;
  if (panes[1].element.hidden) panes[1].stop();
});

// Another project is another key.
form.elements.project.addEventListener("change", () => connection.close());
for (const pane of panes) pane.select.addEventListener("change", refresh);

const dialog = document.getElementById("play-code");
page.querySelector("[data-show-code]").addEventListener("click", () => {
  const settings = read(form);
  if (!settings) return;
  const text = composer.value.trim() || (panes[0].messages.length ? "" : "What is Penstock?");
  const asked = text ? [{ role: "user", content: text }] : [];
  const bodies = shown().map((pane) => pane.body(form.elements.system.value.trim(), settings, asked));
  const whose = dialog.querySelector("[data-whose]");
  whose.hidden = bodies.length < 2 || bodies[0].model === bodies[1].model;
  whose.replaceChildren(...bodies.map((body, place) => new Option(body.model, place)));
  const fill = () => {
    const body = bodies[whose.value || 0];
    for (const [name, write] of Object.entries({ curl, python, javascript })) {
      const block = dialog.querySelector(`[data-code=${name}]`);
      block.querySelector("code").textContent = write(body);
      block.querySelector("[data-copy]").dataset.copy = write(body);
    }
  };
  whose.onchange = fill;
  fill();
  dialog.showModal();
});

refresh();
window.addEventListener("pagehide", () => connection.close());
