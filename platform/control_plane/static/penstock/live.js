// Keeps a page's panels current while it is seen, by htmx, which the page has loaded.
import { isLeaving } from "./leaving.js";

const panels = document.querySelector("[data-live-ms]");
const note = document.querySelector("[data-live-note]");
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: "UTC" });
let isAsking = false;
let currentAt = new Date();
let scrolled = new Map();

function ask() {
  // An answer that takes longer than the pause is waited for; a page that nobody sees asks nothing.
  if (isAsking || isLeaving() || document.visibilityState !== "visible") return;
  if (!panels.isConnected) return;
  isAsking = true;
  htmx.trigger(panels, "live");
}

function say(text) {
  note.textContent = text;
  note.hidden = text === "";
  panels.classList.toggle("is-old", text !== "");
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target !== panels) return;
  const tables = panels.querySelectorAll("[tabindex][id]");
  scrolled = new Map([...tables].map((table) => [table.id, table.scrollLeft]));
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== panels) return;
  for (const [id, left] of scrolled) {
    const table = document.getElementById(id);
    if (table !== null) table.scrollLeft = left;
  }
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.elt !== panels) return;
  isAsking = false;
  if (event.detail.successful) {
    currentAt = new Date();
    say("");
  } else {
    say(`Not updated since ${clock.format(currentAt)} UTC: the server did not answer. Trying again.`);
  }
});
document.addEventListener("visibilitychange", ask);
setInterval(ask, Number(panels.dataset.liveMs));
