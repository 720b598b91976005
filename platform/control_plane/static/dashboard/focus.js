// Who turned a page of a list by keyboard goes on from the new one: its link is gone with the old.
document.addEventListener("htmx:afterSettle", (event) => {
  if (document.activeElement !== document.body) return;
  const fragment = event.detail.elt;
  fragment.tabIndex = -1;
  fragment.focus({ preventScroll: true });
});
