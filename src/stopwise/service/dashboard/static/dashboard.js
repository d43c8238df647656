// Keeps the page fresh: every few seconds its parts are fetched again and put in place.
// Without this script the page says the same, as of when it was loaded.
"use strict";
(() => {
  const EVERY = 3000, SLOWEST = 60000;
  const live = document.getElementById("live");
  const button = document.getElementById("pause");
  let paused = false, failures = 0, timer = 0, busy = false;

  const say = (text) => { if (live.textContent !== text) live.textContent = text; };

  function told() {
    if (paused) say("Updates are paused.");
    else if (failures > 1) say("The service does not answer; this page shows what it said last.");
    else say("");
    document.documentElement.classList.toggle("stale", failures > 1);
  }

  const selectedIn = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(part, true);
  };

  // What the reader has unfolded, focused and scrolled to stays as it is.
  function replace(part, fresh) {
    if (part.innerHTML === fresh.innerHTML || selectedIn(part)) return;
    const open = [...part.querySelectorAll("details[open]")].map((d) => d.id);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...part.querySelectorAll(".scroll")].map((s) => [s.id, s.scrollLeft, s.scrollTop]);
    part.className = fresh.className;
    part.replaceChildren(...fresh.childNodes);
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  // With the first cascade or the first decision a page becomes one of another kind.
  const kind = (page) => [...page.querySelectorAll("[data-part]")].map((p) => p.id).join();

  async function refresh() {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(location.href, {
        headers: { Accept: "text/html" }, redirect: "manual", cache: "no-store",
      });
      if (answer.type === "opaqueredirect" || answer.status === 404) {
        location.reload(); // signed out, or gone
        return;
      }
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (paused) return;
      if (kind(page) !== kind(document)) {
        location.reload();
        return;
      }
      for (const fresh of page.querySelectorAll("[data-part]")) {
        replace(document.getElementById(fresh.id), fresh);
      }
      failures = 0;
    } catch {
      failures += 1;
    } finally {
      busy = false;
    }
    told();
  }

  function plan() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    const wait = Math.min(EVERY * 2 ** Math.min(failures, 6), SLOWEST);
    timer = setTimeout(() => refresh().then(plan), wait);
  }

  button.hidden = false;
  told(); // no need to reload
  button.addEventListener("click", () => {
    paused = !paused;
    button.firstChild.data = paused ? "Resume" : "Pause";
    told();
    if (paused) clearTimeout(timer);
    else refresh().then(plan);
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || paused) clearTimeout(timer);
    else refresh().then(plan);
  });
  plan();
})();
