// A small map of a large graph: one rectangle for each node, and a frame around what is seen.
const NS = "http://www.w3.org/2000/svg";
const WIDE = 180;
let map = null;
let frame = null;
let cards = [];

function make(name, attributes) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function paintMinimap() {
  if (!map) return;
  const rects = map.querySelectorAll("rect[data-at]");
  cards.forEach((card, place) => {
    const state = card.dataset.state || "waiting";
    if (rects[place].dataset.state !== state) rects[place].dataset.state = state;
  });
}

export function drawMinimap(port, svg, size) {
  port.querySelector(".minimap")?.remove();
  map = null;
  if (!port.hasAttribute("data-minimap")) return;
  const high = Math.min(Math.max((WIDE * size.h) / size.w, 24), 140);
  map = make("svg", { class: "minimap", viewBox: `0 0 ${size.w} ${size.h}`, width: WIDE, height: high, preserveAspectRatio: "none", "aria-hidden": "true" });
  cards = [...svg.querySelectorAll(".node")];
  for (const [place, card] of cards.entries()) {
    const [x, y] = card.getAttribute("transform").match(/-?\d+/g);
    map.append(make("rect", { x, y, width: 212, height: 48, "data-at": place, "data-state": card.dataset.state || "waiting" }));
  }
  frame = make("rect", { class: "frame", "vector-effect": "non-scaling-stroke" });
  map.append(frame);
  port.append(map);
}

export function frameMinimap(view, w, h) {
  if (!map) return;
  for (const [key, value] of Object.entries({ x: view.x, y: view.y, width: w, height: h })) frame.setAttribute(key, value);
}

export function startMinimap(port, centre) {
  const go = (event) => {
    if (!map || !(event.buttons & 1) || !event.target.closest?.(".minimap")) return;
    event.preventDefault();
    const outer = map.getBoundingClientRect();
    const [, , w, h] = map.getAttribute("viewBox").split(" ").map(Number);
    centre(((event.clientX - outer.left) / outer.width) * w, ((event.clientY - outer.top) / outer.height) * h);
  };
  port.addEventListener("pointerdown", go);
  port.addEventListener("pointermove", go);
}
