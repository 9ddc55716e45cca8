// What is seen of the graph: it is moved and zoomed by changing the view box, and nothing else.
import { drawMinimap, frameMinimap } from "./graph_minimap.js";

const LEAST = 0.6;
export const view = { x: 0, y: 0, k: 1 };
let region = null;
let port = null;
let svg = null;
let size = { w: 1, h: 1 };
let room = null; // of the port, in pixels: asking the port itself makes the browser lay out the graph

export const graph = () => svg;
export const nodes = () => [...svg.querySelectorAll(".node")];

export function placeOf(node) {
  const [x, y] = node.dataset.at.split(" ").map(Number);
  return { x, y };
}

// A person may move the graph nearly out of sight; what moves by itself leaves little empty.
export function show(empty = 0.8) {
  const w = room.w / view.k;
  const h = room.h / view.k;
  const keep = (at, seen, whole) => (seen >= whole ? (whole - seen) / 2 : Math.min(Math.max(at, -seen * empty), whole - seen * (1 - empty)));
  view.x = keep(view.x, w, size.w);
  view.y = keep(view.y, h, size.h);
  frameMinimap(view, w, h);
  const box = `${view.x} ${view.y} ${w} ${h}`;
  if (svg.getAttribute("viewBox") === box && svg.hasAttribute("data-fitted")) return; // it would be laid out again
  svg.setAttribute("viewBox", box);
  svg.setAttribute("data-fitted", ""); // shown from now on: every size before would be laid out, too
}

export function measured({ width, height }) {
  room = { w: Math.round(width), h: Math.round(height) };
  show();
}

export function zoom(factor, atX = room.w / 2, atY = room.h / 2) {
  const k = Math.min(Math.max(view.k * factor, 0.05), 2.5);
  view.x += atX / view.k - atX / k;
  view.y += atY / view.k - atY / k;
  view.k = k;
  show();
}

export function centre(x, y) {
  view.x = x - room.w / view.k / 2;
  view.y = y - room.h / view.k / 2;
  show(0.1);
}

export function centreOn(node) {
  const at = placeOf(node);
  const box = svg.querySelector(".box");
  centre(at.x + box.getAttribute("width") / 2, at.y + box.getAttribute("height") / 2);
}

export function seen(node) {
  const inside = node.getBoundingClientRect();
  const outer = port.getBoundingClientRect();
  return inside.left >= outer.left && inside.right <= outer.right && inside.top >= outer.top && inside.bottom <= outer.bottom;
}

export function fit(least = LEAST) {
  const whole = Math.min(room.w / size.w, room.h / size.h, 1);
  view.k = Math.max(whole, least);
  const found = svg.querySelectorAll('.node[data-state="active"], .node[data-state="failed"], .node[data-state="suspended"]');
  const busy = svg.querySelector(".node[aria-current]") || found[Math.floor(found.length / 2)];
  if (view.k > whole && busy) centreOn(busy);
  else { view.x = 0; view.y = view.k > whole ? size.h / 2 - room.h / view.k / 2 : 0; show(0.1); }
}

export function adopt(within) {
  region = within;
  port = region.querySelector(".viewport");
  svg = port.querySelector("svg.graph");
  room ??= { w: port.clientWidth, h: port.clientHeight }; // before anything changes
  const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
  size = { w, h };
  port.classList.add("moves");
  region.querySelector(".zoom").hidden = false;
  const all = nodes();
  const first = all.find((each) => each.hasAttribute("aria-current")) || all[0];
  for (const each of all) each.setAttribute("tabindex", each === first ? "0" : "-1");
  drawMinimap(port, svg, size);
}

export function startMoves(clicked) {
  const fingers = new Map();
  let moved = false;
  port.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest(".minimap")) return;
    fingers.set(event.pointerId, event);
    moved = fingers.size > 1;
  });
  addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    if (!moved && Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY) < 4) return;
    moved = true;
    port.classList.add("moving");
    if (fingers.size === 2) {
      const [other] = [...fingers.values()].filter((each) => each.pointerId !== event.pointerId);
      const apart = (each) => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY) || 1;
      const outer = port.getBoundingClientRect();
      zoom(apart(event) / apart(before), (event.clientX + other.clientX) / 2 - outer.left, (event.clientY + other.clientY) / 2 - outer.top);
    } else {
      view.x -= (event.clientX - before.clientX) / view.k;
      view.y -= (event.clientY - before.clientY) / view.k;
      show();
    }
    fingers.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    addEventListener(end, (event) => { fingers.delete(event.pointerId); port.classList.remove("moving"); });
  }
  port.addEventListener("dragstart", (event) => event.preventDefault());
  port.addEventListener("click", (event) => { if (moved) event.preventDefault(); else clicked(event); moved = false; });
  port.addEventListener("wheel", (event) => {
    event.preventDefault();
    const outer = port.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event.clientX - outer.left, event.clientY - outer.top);
  }, { passive: false });
}
