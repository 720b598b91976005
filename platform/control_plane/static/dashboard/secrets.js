// A secret that is shown once does not stay in the page that the browser keeps for going back.
window.addEventListener("pagehide", () => {
  for (const secret of document.querySelectorAll("[data-secret]")) secret.remove();
});
