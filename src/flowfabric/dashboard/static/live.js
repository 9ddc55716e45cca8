// One stream for everything on the page; three visible tabs of a browser hold one, others poll.
import { refreshAll, refreshTopics, topics } from "./regions.js";
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
let release = null;
let paused = localStorage.getItem(KEY) === "1";

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

function markLost() {
  if (lost) return;
  const at = full(now()).slice(11, 19);
  lost = setTimeout(() => show("lost", `Connection lost, as of ${at}`), LOST);
}

function markHeard() {
  clearTimeout(lost);
  lost = 0;
  show("on", "Live");
}

function open() {
  const url = new URL(`${document.documentElement.dataset.base}/live`, location.href);
  for (const topic of wanted()) url.searchParams.append("t", topic);
  source = new EventSource(url);
  let before = false;
  source.onopen = () => {
    markHeard();
    if (before) refreshAll();
    before = true;
  };
  source.onerror = () => {
    markLost();
    if (source && source.readyState === EventSource.CLOSED) {
      close();
      timer = setTimeout(start, POLL);
    }
  };
  source.addEventListener("changed", (event) => {
    markHeard();
    refreshTopics(JSON.parse(event.data).t);
  });
  source.addEventListener("resync", () => refreshAll());
  source.addEventListener("bye", () => markLost());
  for (const name of ["frame", "states"]) {
    source.addEventListener(name, (event) => listeners.get(name)?.(JSON.parse(event.data), event));
  }
}

function poll() {
  show("polling", "Polling");
  refreshAll();
  timer = setTimeout(poll, POLL);
}

function close() {
  source?.close();
  source = null;
  clearTimeout(timer);
  clearTimeout(lost);
  lost = 0;
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

let starting = false;
async function start() {
  if (starting) return;
  starting = true;
  close();
  if (paused) show("paused", "Paused");
  else if (document.visibilityState === "visible" && wanted().length) {
    if (await slot()) open();
    else poll();
  }
  starting = false;
}

export function restart() {
  if (!paused) start();
}

export function toggle() {
  paused = !paused;
  localStorage.setItem(KEY, paused ? "1" : "0");
  start();
  if (!paused) refreshAll();
}

export function startLive() {
  if (!wanted().length) return;
  button.hidden = false;
  button.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible") close();
    else if (!paused) {
      start();
      refreshAll();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && start());
  show(paused ? "paused" : "off", paused ? "Paused" : "Connecting");
  start();
}
