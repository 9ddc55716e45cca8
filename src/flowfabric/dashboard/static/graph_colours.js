// Colours of the graph as the states of the members change; nothing is fetched for them.
import { onEvent } from "./live.js";
import { refresh } from "./regions.js";

const ICONS = {
  waiting: "ring", delayed: "clock", rate_limited: "gate", waiting_children: "fork", active: "play", suspended: "pause",
  resumable: "resume", completed: "tick", failed: "cross", cancelled: "slash", expired: "glass", skipped: "skip",
};
const LETTERS = Object.keys(ICONS);
const ENDED = ["failed", "cancelled", "expired", "skipped"];
const icons = new Map();
let members = null; // read when the first state changes: it need not be known to show the graph
let again = 0;
let told = { rev: NaN, states: new Map() };

// A graph that was fetched anew may be older than what the stream has told since it was asked for.
export function repaint(svg, rev, changed) {
  members = null;
  if (rev === told.rev && apply(svg, told.states)) changed();
}

// Which element shows which member: a card by its number, a stack by the ranges of its numbers.
function readMembers(svg) {
  const found = new Map();
  const cards = [...svg.querySelectorAll(".node")];
  const below = new Map();
  for (const path of svg.querySelectorAll(".arrows path:not(.child)")) {
    const above = Number(path.dataset.e.split(" ")[0]);
    if (!below.has(above)) below.set(above, []);
    below.get(above).push(path);
  }
  cards.forEach((card, place) => {
    if (card.dataset.n) {
      found.set(Number(card.dataset.n), { card, paths: below.get(place) || [] });
      return;
    }
    const numbers = card.dataset.of.split(" ").flatMap((part) => {
      const [first, last] = part.split("-").map(Number);
      return Array.from({ length: (last ?? first) - first + 1 }, (_, step) => first + step);
    });
    const states = [...card.dataset.has.matchAll(/(\d+)([a-z])/g)].flatMap(([, count, letter]) =>
      Array(Number(count)).fill(LETTERS[letter.charCodeAt(0) - 97]));
    const stack = { card, states: new Map(numbers.map((number, place) => [number, states[place]])) };
    for (const number of numbers) found.set(number, { stack });
  });
  return found;
}

function iconOf(state) {
  if (!icons.has(state)) icons.set(state, document.querySelector(`#i-${ICONS[state]} path`).getAttribute("d"));
  return icons.get(state);
}

function paint({ card, paths }, state) {
  if (card.dataset.state === state) return;
  card.dataset.state = state;
  const icon = card.querySelector(".icon");
  icon.setAttribute("d", icon.getAttribute("d").replace(/m.*/, iconOf(state))); // its place stays
  if (state !== "active") card.querySelector(".done")?.remove();
  const word = card.querySelector(".word");
  const title = card.querySelector("title");
  title.textContent = title.textContent.replace(`, ${word.textContent}`, `, ${state.replaceAll("_", " ")}`);
  word.textContent = state.replaceAll("_", " ");
  const edge = state === "completed" ? "satisfied" : ENDED.includes(state) ? "impossible" : "open";
  for (const path of paths) {
    path.classList.remove("open", "satisfied", "impossible");
    path.classList.add(edge);
  }
}

function pile({ card, states }) {
  const counts = {};
  for (const state of states.values()) counts[state] = (counts[state] || 0) + 1;
  let at = Number(card.dataset.at.split(" ")[0]) + 12;
  const bars = [...card.querySelectorAll(".mix rect")];
  const whole = Number(card.querySelector(".box").getAttribute("width")) - 24;
  for (const bar of bars) {
    const wide = ((counts[bar.dataset.state] || 0) * whole) / states.size;
    bar.setAttribute("x", at);
    bar.setAttribute("width", wide);
    at += wide;
  }
  const said = bars.map((bar) => bar.dataset.state).filter((state) => counts[state])
    .map((state) => `${counts[state].toLocaleString("en")} ${state.replaceAll("_", " ")}`).join(", ");
  const title = card.querySelector("title");
  title.textContent = `${title.textContent.split(": ")[0]}: ${said}`;
}

function apply(svg, states) {
  members ??= readMembers(svg);
  const piles = new Set();
  let touched = false;
  for (const [number, state] of states) {
    const found = members.get(number);
    if (!found) continue;
    if (found.stack) {
      if (found.stack.states.get(number) === state) continue;
      found.stack.states.set(number, state);
      piles.add(found.stack);
      touched = true;
    } else if (found.card.dataset.state !== state) {
      paint(found, state);
      touched = true;
    }
  }
  for (const each of piles) pile(each);
  return touched;
}

export function startColours(region, graph, changed) {
  onEvent("states", ({ rev, s }) => {
    if (told.rev !== rev) told = { rev, states: new Map() };
    for (const [number, state] of s) told.states.set(number, state);
    if (rev !== Number(region.dataset.rev)) {
      refresh(region, true);
      return;
    }
    if (!apply(graph(), s)) return;
    changed();
    // Joins and races are not told by the states of members: those are fetched, but seldom.
    if (region.querySelector(".join, .unneeded") && !again) {
      again = setTimeout(() => { again = 0; refresh(region); }, 3000);
    }
  });
}
