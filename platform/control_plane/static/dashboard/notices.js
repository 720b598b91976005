// Short notes in the live region, and what htmx could not fetch.
const SHOWN_MS = 5000;

export function say(text) {
  const toast = document.createElement("p");
  toast.className = "toast";
  toast.textContent = text;
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), SHOWN_MS);
}

document.addEventListener("click", (event) => {
  event.target.closest("[data-close-notice]")?.closest(".notice").remove();
});

document.addEventListener("htmx:responseError", (event) => {
  const status = event.detail.xhr.status;
  if (event.detail.xhr.getResponseHeader("HX-Redirect") || polls(event)) return;
  if (status === 403) say("Not permitted: your role or the organisation may have changed. Reload the page.");
  else if (status === 404) say("This no longer exists. Reload the page.");
  else say(`The server answered ${status}; nothing was changed. Try again.`);
});

document.addEventListener("htmx:sendError", (event) => {
  if (!polls(event)) say("No connection; nothing was changed. Try again.");
});

// What asks every few seconds by itself has nothing to tell: it asks again.
function polls(event) {
  return event.detail.elt.matches("[data-polls]");
}
