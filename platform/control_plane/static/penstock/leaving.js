// A page that is being left asks nothing more by itself: what it asks about may be gone, as a session
// that ends is. Where it stays after all, because the answer was a file, it goes on a little later.
const PAUSE_MS = 5000;
const POLLS = "[data-polls], [data-live-ms]";
let pausedUntil = 0;

export function isLeaving() {
  return Date.now() < pausedUntil;
}

addEventListener("beforeunload", () => {
  pausedUntil = Date.now() + PAUSE_MS;
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.matches(POLLS) && isLeaving()) event.preventDefault();
});
