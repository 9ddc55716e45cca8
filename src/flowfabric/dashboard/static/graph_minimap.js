// A small map of a large graph: a rectangle for each node, and a frame around what is seen.
const NS = "http://www.w3.org/2000/svg";
const WIDE = 180;
let map = null;
let frame = null;
let cards = [];
let spots = [];

function make(name, attributes) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// One path for each state, of the rectangles of its nodes: a thousand elements would take long.
export function paintMinimap() {
  if (!map) return;
  const drawn = new Map();
  cards.forEach((card, place) => {
    const state = card.dataset.state || "waiting";
    drawn.set(state, (drawn.get(state) || "") + spots[place]);
  });
  for (const path of map.querySelectorAll("path")) if (!drawn.has(path.dataset.state)) path.remove();
  for (const [state, d] of drawn) {
    const path = map.querySelector(`path[data-state="${state}"]`);
    if (path) path.setAttribute("d", d);
    else map.prepend(make("path", { "data-state": state, d }));
  }
}

export function drawMinimap(port, svg, size) {
  port.querySelector(".minimap")?.remove();
  map = null;
  if (!port.hasAttribute("data-minimap")) return;
  const high = Math.min(Math.max((WIDE * size.h) / size.w, 24), 140);
  map = make("svg", { class: "minimap", viewBox: `0 0 ${size.w} ${size.h}`, width: WIDE, height: high, preserveAspectRatio: "none", "aria-hidden": "true" });
  cards = [...svg.querySelectorAll(".node")];
  spots = cards.map((card) => `M${card.dataset.at}h212v48h-212z`);
  frame = make("rect", { class: "frame", "vector-effect": "non-scaling-stroke" });
  map.append(frame);
  paintMinimap();
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
