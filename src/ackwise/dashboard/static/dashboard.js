// Behaviour of the dashboard: theme, keys, dialogs, copy buttons, live blocks.
"use strict";
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: system, light, dark.
  const root = document.documentElement;
  const themes = ["system", "light", "dark"];
  const themeButton = $("[data-theme-button]");
  const showTheme = () => { themeButton.textContent = `Theme: ${root.dataset.theme || "system"}`; };
  themeButton?.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try { localStorage.setItem("ackwise-theme", next); } catch { /* kept for this page only */ }
    showTheme();
  });
  if (themeButton) showTheme();

  // Menu of narrow screens.
  const menu = $("[data-menu]");
  menu?.addEventListener("click", () => {
    const open = menu.getAttribute("aria-expanded") !== "true";
    menu.setAttribute("aria-expanded", String(open));
    $("#navigation").classList.toggle("open", open);
  });

  // Keys.
  const keys = $("#keys");
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || $("dialog[open]")) return;
    if (event.key === "/") {
      const search = $("[data-search], input[type=search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "?") {
      event.preventDefault();
      keys.showModal();
    } else if (event.key === "r" || event.key === "R") {
      event.preventDefault();
      refresh();
    }
  });
  $("[data-keys-button]")?.addEventListener("click", () => keys.showModal());

  // Copy buttons and links that close a dialog.
  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard?.writeText(copy.dataset.copy).then(() => {
        copy.classList.add("done");
        setTimeout(() => copy.classList.remove("done"), 1200);
      }, () => {});
    }
    const close = event.target.closest("dialog [data-close]");
    if (close) { event.preventDefault(); close.closest("dialog").close(); }
  });

  // Check boxes of a list: [data-check-all] checks those of its form.
  document.addEventListener("change", (event) => {
    const all = event.target.closest("[data-check-all]");
    if (all) for (const box of $$("input[type=checkbox][name]", all.form || document)) box.checked = all.checked;
  });

  // Dialogs: htmx loads the page that asks into #dialog.
  const dialog = $("#dialog");
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target === dialog && !dialog.open) dialog.showModal();
  });
  dialog?.addEventListener("close", () => { dialog.replaceChildren(); });

  // Live blocks.
  const blocks = () => $$("[data-topics]");
  function refresh() {
    if (!window.htmx || blocks().length === 0) { location.reload(); return; }
    for (const block of blocks()) window.htmx.trigger(block, "refresh");
  }
})();
