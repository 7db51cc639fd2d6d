// Sets the theme before the page is painted.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("script");
  try {
    const theme = localStorage.getItem("ackwise-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* no storage: the system's theme */ }
})();
