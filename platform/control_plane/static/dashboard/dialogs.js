// Dialogs over the page. What opens one is a link to a page that asks the same without JavaScript.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    event.preventDefault();
    opener.closest("[popover]")?.hidePopover();
    const dialog = document.getElementById(opener.dataset.opens);
    dialog.querySelector("form").reset();
    update(dialog);
    dialog.showModal();
  }
  event.target.closest("[data-closes-dialog]")?.closest("dialog").close();
});

document.addEventListener("input", (event) => {
  const dialog = event.target.closest("dialog");
  if (dialog) update(dialog);
});

// The button of no return works once the name is typed; the server asks for it too.
function update(dialog) {
  const input = dialog.querySelector("[data-must-be]");
  if (input) dialog.querySelector("[type=submit]").disabled = input.value.trim() !== input.dataset.mustBe;
}
