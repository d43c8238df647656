// Fetches the page again every few seconds and replaces its parts.
// Without this script, the page shows the state at the time it was loaded.
"use strict";
(() => {
  const EVERY = 3000, SLOWEST = 60000;
  const live = document.getElementById("live"), button = document.getElementById("pause");
  const parts = (page) => [...page.querySelectorAll("[data-part]")];
  const kind = (page) => parts(page).map((part) => part.id).join();
  let paused = false, failures = 0, timer = 0, busy = false;

  function show() {
    const lost = failures > 1 ? "The service does not respond. This page shows the last known state." : "";
    live.textContent = paused ? "Updates are paused." : lost;
  }

  // Keep open details, focus, selection, typed text, checked boxes and scroll positions.
  function replace(part, fresh) {
    const selected = !getSelection().isCollapsed && getSelection().containsNode(part, true);
    const typing = part.contains(document.activeElement) && document.activeElement.value;
    if (selected || typing || part.innerHTML === fresh.innerHTML) return;
    const open = [...part.querySelectorAll("details[open]")].map((d) => d.id);
    const marked = [...part.querySelectorAll("input:checked")].map((box) => box.id);
    const scrolled = [...part.querySelectorAll(".scroll")].map((s) => [s.id, s.scrollLeft, s.scrollTop]);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    part.className = fresh.className;
    part.replaceChildren(...fresh.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const box of part.querySelectorAll("[data-arms]")) box.checked = marked.includes(box.id);
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  async function update() {
    try {
      const answer = await fetch(location.origin + location.pathname + location.search, { cache: "no-store" });
      const gone = answer.status === 401 || answer.status === 404; // the key was revoked, or a restart
      if (!gone && !answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (paused) return;
      // The first cascade and the first round change the parts of a page.
      if (gone || kind(page) !== kind(document)) location.reload();
      else for (const fresh of parts(page)) replace(document.getElementById(fresh.id), fresh);
      failures = 0;
    } catch {
      failures += 1;
    }
    show();
  }

  async function run() {
    clearTimeout(timer);
    if (busy || paused || document.hidden) return;
    busy = true;
    await update();
    busy = false;
    timer = setTimeout(run, Math.min(EVERY * 2 ** failures, SLOWEST));
  }

  // The label page: send the chosen answer, a typed answer (on Enter), or the arms marked as right.
  async function send(list, round, body) {
    const status = document.getElementById(`status-${round}`);
    try {
      const headers = { "Content-Type": "application/json" };
      const reply = await fetch(`${list.dataset.labels}/${round}`, { method: "POST", headers, body });
      document.activeElement.blur(); // `replace` keeps a part with typed text
      if (reply.ok) await update();
      else status.textContent = (await reply.json()).error.message;
    } catch {
      status.textContent = "The service does not respond. Try again.";
    }
  }
  // The JSON text is sent unchanged, because numbers may exceed the precision of JavaScript.
  const label = (list, round, json) => send(list, round, `{"label": ${json}}`);
  document.addEventListener("click", (event) => {
    const chosen = event.target.closest("[data-answer]"), marks = event.target.closest("[data-mark]");
    if (chosen) label(chosen.closest("[data-labels]"), chosen.dataset.round, chosen.dataset.answer);
    if (!marks) return;
    const boxes = [...marks.parentElement.querySelectorAll("[data-arms]")];
    const arms = (box) => JSON.parse(box.dataset.arms).map((arm) => [arm, box.checked]);
    const right = Object.fromEntries(boxes.flatMap(arms));
    send(marks.closest("[data-labels]"), marks.dataset.mark, JSON.stringify({ right }));
  });
  document.addEventListener("keydown", (event) => {
    const typed = event.target;
    if (event.key !== "Enter" || !typed.matches("input[data-round]") || !typed.value.trim()) return;
    let json = typed.value.trim(); // text or JSON, like the other answers
    const texts = typed.parentElement.querySelector("[data-answer^='\"']") !== null;
    try { JSON.parse(texts ? "" : json); } catch { json = JSON.stringify(json); }
    label(typed.closest("[data-labels]"), typed.dataset.round, json);
  });

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.firstChild.data = paused ? "Resume" : "Pause";
    show();
    run();
  });
  document.addEventListener("visibilitychange", run);
  show();
  timer = setTimeout(run, EVERY);
})();
