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
    const copy = event.target.closest("[data-copy], [data-copy-from]");
    if (copy) {
      navigator.clipboard?.writeText(copy.dataset.copy ?? $(`#${copy.dataset.copyFrom}`).textContent).then(() => {
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
    if (event.target !== dialog) return;
    // A question about something that is gone leads to its list.
    if (!dialog.firstElementChild) location.assign(event.detail.pathInfo.requestPath);
    else if (!dialog.open) dialog.showModal();
  });
  document.body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.target === dialog) location.assign(event.detail.pathInfo.requestPath);
    else if (event.detail.xhr.status === 404) { gone = true; show("Gone"); } else show("Failed");
  });
  dialog?.addEventListener("close", () => { dialog.replaceChildren(); });

  // Live blocks. htmx fetches a block when its topic changes. This feed holds changes back while the user is busy,
  // and has no connection while the page is hidden.
  const blocks = () => $$("[data-topics]");
  let gone = false;
  function refresh() {
    if (!window.htmx || gone || blocks().length === 0) { location.reload(); return; }
    for (const block of blocks()) window.htmx.trigger(block, "refresh");
  }
  const state = $("[data-live-state]");
  const show = (text) => { if (state && state.textContent !== text) state.textContent = text; };
  const selected = () => {
    const selection = getSelection();
    return selection && !selection.isCollapsed && $("#content").contains(selection.anchorNode);
  };
  const busy = () => {
    const focus = document.activeElement;
    return Boolean($("dialog[open]") || selected() || $(".live input[type=checkbox]:checked")
      || (focus && $("#content").contains(focus) && typing(focus)));
  };

  class Feed extends EventTarget {
    constructor(url, topics) {
      super();
      this.url = url;
      this.topics = topics;
      this.changed = new Set();
      this.failures = 0;
      this.ended = false;
      document.addEventListener("visibilitychange", () => this.follow());
      for (const event of ["selectionchange", "focusout", "close", "change"]) {
        document.addEventListener(event, () => setTimeout(() => this.flush()), true);
      }
      this.follow();
    }
    get readyState() { return this.source ? this.source.readyState : EventSource.CONNECTING; }
    follow() {
      if (document.hidden || this.ended) { this.disconnect(); return; }
      if (!this.source) this.connect();
    }
    connect() {
      clearTimeout(this.timer);
      const source = this.source = new EventSource(this.url);
      source.onopen = () => {
        this.failures = 0;
        if (this.missed) for (const topic of this.topics) this.changed.add(topic);
        this.missed = true;
        this.flush();
      };
      source.onmessage = (message) => {
        for (const topic of message.data.split(" ")) this.changed.add(topic);
        this.flush();
      };
      source.onerror = () => {
        show("Offline");
        if (source.readyState !== EventSource.CLOSED) return;
        this.disconnect();
        this.timer = setTimeout(() => this.follow(), Math.min(60, 2 ** this.failures++) * 1000);
      };
    }
    disconnect() {
      clearTimeout(this.timer);
      this.source?.close();
      this.source = null;
    }
    close() {
      this.ended = true;
      this.disconnect();
    }
    flush() {
      if (!this.source || this.source.readyState !== EventSource.OPEN) return;
      if (busy()) { show(this.changed.size ? "Paused" : "Live"); return; }
      show("Live");
      const changed = [...this.changed];
      this.changed.clear();
      for (const topic of changed) this.dispatchEvent(new Event(topic));
    }
  }

  const content = $("#content");
  if (window.htmx && blocks().length) {
    const topics = [...new Set(blocks().flatMap((block) => block.dataset.topics.split(" ")))];
    const live = document.body.dataset.live;
    window.htmx.createEventSource = (url) => url.startsWith(`${live}?`) ? new Feed(url, topics) : new EventSource(url);
    content.setAttribute("hx-ext", "sse");
    content.setAttribute("sse-connect", `${document.body.dataset.live}?topics=${encodeURIComponent(topics.join(" "))}`);
  }

  // A box that scrolls can be reached with the keyboard.
  const boxes = () => {
    for (const box of $$(".scroll, pre")) {
      const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
      if (scrolls) box.tabIndex = 0; else box.removeAttribute("tabindex");
    }
  };
  boxes();
  addEventListener("resize", boxes);
  document.addEventListener("toggle", boxes, true);
  document.body.addEventListener("htmx:afterSwap", boxes);

  // A block keeps its open details, its scroll positions and its focus.
  const kept = new WeakMap();
  const places = (block) => $$("a[href], button, summary", block);
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const block = event.detail.target;
    if (!block.matches("[data-topics]")) return;
    kept.set(block, {
      details: $$("details", block).map((details) => details.open),
      scrolls: $$(".scroll", block).map((box) => box.scrollLeft),
      focus: places(block).indexOf(document.activeElement),
    });
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const block = event.detail.target;
    const before = kept.get(block);
    if (!before) return;
    $$("details", block).forEach((details, at) => { if (before.details[at]) details.open = true; });
    $$(".scroll", block).forEach((box, at) => { box.scrollLeft = before.scrolls[at] || 0; });
    if (before.focus >= 0) places(block)[before.focus]?.focus({ preventScroll: true });
  });
})();
