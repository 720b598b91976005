// What Unfold's markup lacks for those who hear a page: where its contents begin, and names of
// what scrolls or is chosen from.
function name() {
  const scrolling = document.querySelectorAll(".simplebar-content-wrapper[role=region]");
  scrolling.forEach((each, place) => each.setAttribute("aria-label", `Scrolls, part ${place + 1}`));
  document.getElementById("nav-sidebar-inner")?.setAttribute("aria-label", "Pages");
  for (const each of document.querySelectorAll(".select2-selection[role=combobox]")) {
    const select = each.closest(".select2")?.previousElementSibling;
    const label = select?.labels?.[0];
    if (!label) continue;
    label.id ||= `${select.id}-label`;
    const value = each.querySelector(".select2-selection__rendered");
    value?.setAttribute("aria-labelledby", label.id);
    each.setAttribute("aria-labelledby", `${label.id} ${value?.id ?? ""}`.trim());
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("main")?.setAttribute("role", "main");
  name();
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
});
