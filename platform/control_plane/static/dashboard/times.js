// Moments, relative to now and kept so; the title is the exact one in the viewer's zone. The words
// are those of figures.py, which the page first came with.
const MINUTE = 60, HOUR = 3600, DAY = 86400, OLD_DAYS = 30;
const EVERY_MS = 30_000;
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

function relative(moment) {
  const away = (Date.now() - moment) / 1000;
  const seconds = Math.floor(Math.abs(away));
  if (seconds >= OLD_DAYS * DAY) return null;
  if (seconds < MINUTE) return "just now";
  const days = Math.floor(seconds / DAY);
  const text = seconds < HOUR ? `${Math.floor(seconds / MINUTE)} min`
    : seconds < DAY ? `${Math.floor(seconds / HOUR)} h`
    : `${days} day${days === 1 ? "" : "s"}`;
  return away > 0 ? `${text} ago` : `in ${text}`;
}

function refresh() {
  for (const element of document.querySelectorAll("[data-moment]")) {
    const moment = new Date(element.dateTime);
    element.title = exact.format(moment);
    const text = relative(moment);
    // The same words again would be a change of the page that nobody needs.
    if (text !== null && text !== element.textContent) element.textContent = text;
  }
}

refresh();
setInterval(refresh, EVERY_MS);
document.addEventListener("htmx:load", refresh);
