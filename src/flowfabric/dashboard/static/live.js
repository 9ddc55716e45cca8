// One stream for everything on the page; three visible tabs of a browser hold one, others poll.
import { refreshAll, refreshTopics, setStill, topics } from "./regions.js";
import { full, now } from "./times.js";

const POLL = 5000;
const LOST = 5000;
const SLOTS = 3;
const KEY = "ff-paused";
const head = document.querySelector(".head");
const button = document.getElementById("live");
const listeners = new Map();
let source = null;
let timer = 0;
let lost = 0;
let silent = 0;
let release = null;
let paused = localStorage.getItem(KEY) === "1";
let followed = ""; // what the stream was opened for
let stale = document.visibilityState !== "visible"; // may something have been missed?

export function onEvent(name, listener) {
  listeners.set(name, listener);
}

function show(state, text) {
  head.dataset.live = state;
  button.querySelector(".word").textContent = text;
  button.setAttribute("aria-pressed", String(!paused));
  button.title = paused ? "Updates are paused. Press to go on." : "Press to pause updates.";
  button.setAttribute("aria-label", `${text}. ${button.title}`);
}

function wanted() {
  const extra = [...document.querySelectorAll("[data-stream]")].map((each) => each.dataset.stream);
  return [...topics(), ...extra].slice(0, 32);
}

// What the page wants to hear of, whatever it has heard already.
function wantedKey() {
  return wanted().map((each) => each.split("@")[0]).join(" ");
}

function markLost(after = LOST) {
  stale = true;
  if (lost) return;
  const at = full(now() - LOST + after).slice(11, 19);
  lost = setTimeout(() => show("lost", `Connection lost, as of ${at}`), after);
}

function forgetLost() {
  clearTimeout(lost);
  clearTimeout(silent);
  lost = 0;
}

// Topics are told of every two seconds. A connection that broke without a word, as when a laptop
// changes its network, tells of nothing: that is said, and soon it is opened anew.
function watchSilence() {
  silent = setTimeout(() => {
    markLost(0);
    silent = setTimeout(start, LOST);
  }, LOST);
}

function markHeard() {
  forgetLost();
  show("on", "Live");
  if (!stale) return;
  stale = false;
  refreshAll();
}

function open() {
  const url = new URL(`${document.documentElement.dataset.base}/live`, location.href);
  for (const topic of wanted()) url.searchParams.append("t", topic);
  followed = wantedKey();
  source = new EventSource(url);
  source.onopen = markHeard;
  source.onerror = () => {
    markLost();
    if (source && source.readyState === EventSource.CLOSED) {
      close();
      timer = setTimeout(start, POLL);
    }
  };
  source.addEventListener("changed", (event) => {
    markHeard();
    watchSilence();
    refreshTopics(JSON.parse(event.data).t);
  });
  source.addEventListener("resync", () => refreshAll());
  source.addEventListener("bye", () => markLost());
  for (const name of ["frames", "states"]) {
    source.addEventListener(name, (event) => listeners.get(name)?.(JSON.parse(event.data), event));
  }
}

function poll() {
  forgetLost();
  show("polling", "Polling");
  refreshAll();
  timer = setTimeout(start, POLL); // another tab may have given its stream back
}

function close() {
  source?.close();
  source = null;
  clearTimeout(timer);
  release?.();
  release = null;
}

async function slot() {
  if (!navigator.locks) return true;
  for (let each = 0; each < SLOTS; each += 1) {
    const got = await new Promise((resolve) => {
      navigator.locks.request(`ff-stream-${each}`, { ifAvailable: true }, (lock) => {
        resolve(Boolean(lock));
        return lock ? new Promise((done) => { release = done; }) : undefined;
      });
    });
    if (got) return true;
  }
  return false;
}

// One at a time: what changes while a place for a stream is asked for is looked at again.
let starting = false;
let again = false;
async function start() {
  again = starting;
  if (starting) return;
  starting = true;
  do {
    again = false;
    close();
    const seen = document.visibilityState === "visible";
    if (paused || !seen) forgetLost();
    if (paused) show("paused", "Paused");
    else if (seen && wanted().length) {
      const got = await slot();
      if (!again && got) open();
      else if (!again) poll();
    }
  } while (again);
  starting = false;
}

export function toggle() {
  paused = !paused;
  localStorage.setItem(KEY, paused ? "1" : "0");
  setStill(paused);
  stale = true;
  start();
}

export function startLive() {
  if (!wanted().length) return;
  button.hidden = false;
  button.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => {
    stale = true;
    start();
  });
  // A refreshed region may have a stream that the page did not have before.
  document.addEventListener("ff:morphed", () => source && wantedKey() !== followed && start());
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    stale = stale || event.persisted;
    if (event.persisted) start();
  });
  setStill(paused);
  show(paused ? "paused" : "off", paused ? "Paused" : "Connecting");
  start();
}
