// Regions: parts of the page that are fetched again and morphed in, so that nothing is lost.
import { Idiomorph } from "./vendor/idiomorph.js";
import { make, parse } from "./html.js";
import { setNow, showTimes } from "./times.js";

const states = new WeakMap();
const GAP = 1000;
let still = false;

// While updates are paused, nothing is asked for that no person has asked for.
export function setStill(wanted) {
  still = wanted;
}

function stateOf(region) {
  if (!states.has(region)) states.set(region, { etag: "", busy: false, again: false, at: 0 });
  return states.get(region);
}

export function regions() {
  return [...document.querySelectorAll("[data-region]")];
}

export function topics() {
  return [...new Set(regions().flatMap((each) => (each.dataset.topics || "").split(" ")))].filter(Boolean);
}

function address(region) {
  const url = new URL(region.dataset.src || location.href, location.href);
  url.searchParams.set("_region", region.dataset.region);
  return url;
}

// What a person is at must not move: a dialog that is open, rows that are selected.
function held(region) {
  if (region.hasAttribute("data-held")) return true;
  if (!region.hasAttribute("data-list")) return false;
  return Boolean(document.querySelector("dialog[open]") || region.querySelector(".picked"));
}

function ids(node) {
  return new Set([...node.querySelectorAll("[data-id]")].map((each) => each.dataset.id));
}

function offer(region, fresh) {
  const known = ids(region);
  const count = [...ids(fresh)].filter((each) => !known.has(each)).length;
  if (!count) return;
  let pill = region.querySelector(".pill");
  if (!pill) {
    pill = make("button", "pill");
    pill.type = "button";
    pill.addEventListener("click", () => {
      for (const each of region.querySelectorAll(".picked input")) each.click();
      refresh(region, true);
    });
    region.prepend(pill);
  }
  pill.textContent = `${count} new, show`;
}

// What events of the stream are added to stays, until it is about something else.
function keeps(node, other) {
  if (!node.hasAttribute("data-keep") || node.dataset.keep !== other.dataset.keep) return false;
  return document.querySelector(".head").dataset.live !== "polling";
}

export function morph(old, fresh) {
  Idiomorph.morph(old, fresh, {
    ignoreActiveValue: /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName),
    callbacks: {
      beforeAttributeUpdated(name, node) {
        if (name === "open" && node.tagName === "DETAILS") return false;
        if (name === "checked" || (name === "class" && node.tagName === "TR")) return false;
        return true;
      },
      beforeNodeMorphed(node, other) {
        return !(node instanceof Element && keeps(node, other));
      },
    },
  });
}

// The number of questions that wait for a person: every answer brings it along.
function showWaiting(count) {
  if (count === null) return;
  for (const each of document.querySelectorAll("[data-waiting]")) {
    each.textContent = count;
    (each.closest(".inbox") || each).hidden = !count;
  }
}

function failed(region, why) {
  region.classList.add("failed");
  let line = region.querySelector(":scope > .refresh");
  if (!line) {
    line = make("p", "refresh");
    region.prepend(line);
  }
  line.textContent = `could not refresh: ${why} `;
  const retry = make("button", "button small", "retry");
  retry.type = "button";
  retry.addEventListener("click", () => refresh(region, true));
  line.append(retry);
}

export async function refresh(region, forced = false) {
  const state = stateOf(region);
  const wait = state.at + Number(region.dataset.gap || GAP) - performance.now();
  if (state.busy || (wait > 0 && !forced)) {
    if (!state.again) {
      state.again = true;
      setTimeout(() => { state.again = false; if (!still) refresh(region); }, Math.max(wait, 200));
    }
    return;
  }
  state.busy = true;
  state.at = performance.now();
  try {
    const headers = { "x-ff-region": "1" };
    if (state.etag && !forced) headers["if-none-match"] = state.etag;
    const answer = await fetch(address(region), { headers, cache: "no-store" });
    const at = Number(answer.headers.get("x-ff-now"));
    if (at) setNow(at);
    showWaiting(answer.headers.get("x-ff-inbox"));
    if (answer.status === 200) {
      const fresh = parse(await answer.text()).firstElementChild;
      if (fresh && !forced && held(region)) {
        offer(region, fresh);
      } else if (fresh) {
        state.etag = answer.headers.get("etag") || "";
        region.classList.remove("failed");
        morph(region, fresh);
        showTimes(region);
        region.dispatchEvent(new CustomEvent("ff:morphed", { bubbles: true }));
      }
    } else if (answer.status === 304) {
      region.classList.remove("failed");
      region.querySelector(":scope > .refresh")?.remove();
    } else if (answer.status !== 404) {
      failed(region, (await answer.text()).slice(0, 120) || String(answer.status));
    }
  } catch {
    failed(region, "no connection,");
  } finally {
    state.busy = false;
  }
}

export function refreshTopics(dirty) {
  for (const region of regions()) {
    const own = (region.dataset.topics || "").split(" ");
    if (own.some((each) => dirty.includes(each))) refresh(region);
  }
}

export function refreshAll() {
  for (const region of regions()) if (region.dataset.topics) refresh(region, true);
}

// A list that a person holds stays as it is, and counts what is new.
function startHolds() {
  for (const button of document.querySelectorAll("button[data-hold]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const region = document.getElementById(button.dataset.hold);
      const holds = region.toggleAttribute("data-held");
      button.setAttribute("aria-pressed", String(holds));
      if (!holds) refresh(region, true);
    });
  }
}

export function startRegions() {
  startHolds();
  for (const region of regions()) if (region.hasAttribute("data-lazy")) refresh(region, true);
}
