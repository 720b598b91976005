// The choice of a theme. The server reads the cookie, so no page is drawn in the wrong one first.
const YEAR_SECONDS = 365 * 24 * 3600;

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-theme-choice]");
  if (!button) return;
  const theme = button.dataset.themeChoice;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `penstock_theme=${theme}; path=/; samesite=lax; max-age=${theme ? YEAR_SECONDS : 0}${secure}`;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const each of button.parentElement.querySelectorAll("[data-theme-choice]")) {
    each.setAttribute("aria-pressed", String(each === button));
  }
});
