// Shortcuts; never inside fields, and off if that was chosen.
import { setPref } from "./prefs.js";
import { toggle } from "./live.js";
import { moveRow, openRow, pickRow } from "./rows.js";

const root = document.documentElement;
let going = 0;

function inField(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

function go(key) {
  const link = [...document.querySelectorAll("#nav a[data-key]")].find((each) => each.dataset.key === key);
  if (link) location.assign(link.href);
  return Boolean(link);
}

const keys = {
  "?": () => document.getElementById("help").showModal(),
  "/": () => document.getElementById("find").focus(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  x: () => pickRow(),
  Enter: () => openRow(),
  ".": () => document.querySelector(".acts a, .acts button")?.focus(),
  "[": () => document.querySelector("a[rel=prev]")?.click(),
  "]": () => document.querySelector("a[rel=next]")?.click(),
  p: () => toggle(),
  t: () => setPref("zone", root.dataset.zone === "utc" ? "local" : "utc"),
};

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && inField(event.target)) event.target.blur();
    if (root.dataset.keys === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (inField(event.target) || document.querySelector("dialog[open]")) return;
    if (going) {
      clearTimeout(going);
      going = 0;
      if (go(event.key)) { event.preventDefault(); return; }
    }
    if (event.key === "g") {
      going = setTimeout(() => { going = 0; }, 1200);
      return;
    }
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    const run = keys[event.key];
    if (run) {
      event.preventDefault();
      run();
    }
  });
}
