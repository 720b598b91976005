// A click on what has data-copy copies all of it.
import { say } from "./notices.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say("Copied.");
  } catch {
    // Refused, or a page in clear text: the text itself is all that can be offered.
    say(`Copy it by hand: ${button.dataset.copy}`);
  }
});
