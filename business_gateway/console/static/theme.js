// Before anything is drawn, so that no page flashes in the other theme.
(() => {
  const chosen = localStorage.getItem("tdp.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
