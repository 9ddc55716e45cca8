// The graph of a flow: move and zoom it, walk along its edges, find members, choose one.
import { refresh } from "./regions.js";
import { repaint, startColours } from "./graph_colours.js";
import { paintMinimap, startMinimap } from "./graph_minimap.js";
import { adopt, centre, centreOn, fit, graph, measured, nodes, placeOf, seen, show, startMoves, view, zoom } from "./graph_view.js";

let region = null;
let pins = null;

// Edges as pairs of places in the order of the nodes: a path has those of one upstream.
const edges = () => [...graph().querySelectorAll(".arrows path")].flatMap((each) => {
  const [above, ...below] = each.dataset.e.split(" ").map(Number);
  return below.map((place) => [above, place]);
});

function neighbour(node, key) {
  const all = nodes();
  const here = all.indexOf(node);
  const lr = graph().classList.contains("lr");
  const along = lr ? { ArrowRight: 1, ArrowLeft: -1 } : { ArrowDown: 1, ArrowUp: -1 };
  if (along[key]) {
    const found = edges().filter((each) => each[along[key] > 0 ? 0 : 1] === here).map((each) => all[each[along[key] > 0 ? 1 : 0]]);
    const at = placeOf(node);
    const far = (each) => Math.abs(lr ? placeOf(each).y - at.y : placeOf(each).x - at.x);
    return found.sort((one, other) => far(one) - far(other))[0];
  }
  const rank = (each) => (lr ? placeOf(each).x : placeOf(each).y);
  const across = (each) => (lr ? placeOf(each).y : placeOf(each).x);
  const mates = all.filter((each) => rank(each) === rank(node)).sort((one, other) => across(one) - across(other));
  return mates[mates.indexOf(node) + (key === "ArrowDown" || key === "ArrowRight" ? 1 : -1)];
}

function focusOn(node) {
  for (const each of graph().querySelectorAll('.node[tabindex="0"]')) each.setAttribute("tabindex", "-1");
  node.setAttribute("tabindex", "0");
  if (!seen(node)) centreOn(node);
  node.focus({ preventScroll: true });
}

function keyed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  const node = event.target.closest(".node");
  if (node && event.key.startsWith("Arrow")) {
    const next = neighbour(node, event.key);
    if (next) focusOn(next);
  } else if (event.key === "+" || event.key === "=") zoom(1.25);
  else if (event.key === "-") zoom(0.8);
  else if (event.key === "0") fit(0);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

export function choose(id) {
  const url = new URL(location.href);
  if (id) url.searchParams.set("member", id);
  else url.searchParams.delete("member");
  history.replaceState(null, "", url);
  for (const each of graph().querySelectorAll(".node[aria-current]")) each.removeAttribute("aria-current");
  if (id) graph().querySelector(`.node[data-id="${CSS.escape(id)}"]`)?.setAttribute("aria-current", "true");
  const panel = document.getElementById("panel");
  if (id) refresh(panel, true);
  else panel.hidden = true;
}

// The first click on a member shows it beside the graph, the second opens its page. A stack opens
// in place: what was clicked stays under the pointer.
async function clicked(event) {
  const node = event.target.closest(".node");
  if (!node || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (node.classList.contains("pile")) {
    event.preventDefault();
    const at = placeOf(node);
    pins = { id: node.dataset.id, x: (at.x - view.x) * view.k, y: (at.y - view.y) * view.k };
    history.pushState(null, "", node.getAttribute("href"));
    refresh(region, true);
  } else if (!node.hasAttribute("aria-current")) {
    event.preventDefault();
    choose(node.dataset.id);
  }
}

function find(text, step) {
  const wanted = text.trim().toLowerCase();
  const hits = [];
  for (const each of nodes()) {
    const hit = wanted !== "" && each.querySelector("title").textContent.toLowerCase().includes(wanted);
    each.classList.toggle("hit", hit);
    each.classList.toggle("dim", wanted !== "" && !hit);
    if (hit) hits.push(each);
  }
  const field = document.getElementById("seek");
  const at = hits.length ? (Number(field.dataset.at || 0) + step + hits.length) % hits.length : 0;
  field.dataset.at = at;
  field.parentElement.querySelector("output").textContent = wanted ? (hits.length ? `${at + 1} of ${hits.length}` : "none") : "";
  if (hits.length) centreOn(hits[at]);
}

function refreshed(event) {
  if (event.target !== region) return;
  adopt(region);
  repaint(graph(), Number(region.dataset.rev), paintMinimap);
  const node = pins && graph().querySelector(`.node[data-id="${CSS.escape(pins.id)}"]`);
  if (node) {
    const at = placeOf(node);
    view.x = at.x - pins.x / view.k;
    view.y = at.y - pins.y / view.k;
  }
  pins = null;
  show();
}

function start() {
  region = document.getElementById("graph");
  if (!region) return;
  const port = document.getElementById("viewport");
  adopt(region);
  fit();
  startMoves(clicked);
  startMinimap(port, centre);
  startColours(region, graph, paintMinimap);
  port.addEventListener("keydown", keyed);
  region.addEventListener("ff:morphed", refreshed);
  region.addEventListener("click", (event) => {
    const way = event.target.closest("[data-zoom]")?.dataset.zoom;
    if (way === "fit") fit(0);
    else if (way) zoom(way === "in" ? 1.25 : 0.8);
  });
  region.addEventListener("input", (event) => { if (event.target.id === "seek") { event.target.dataset.at = 0; find(event.target.value, 0); } });
  region.addEventListener("keydown", (event) => {
    if (event.target.id !== "seek") return;
    if (event.key === "Enter") find(event.target.value, event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { event.target.value = ""; find("", 0); }
  });
  document.getElementById("panel").addEventListener("click", (event) => {
    const other = event.target.closest("[data-member]");
    if (other) { event.preventDefault(); choose(other.dataset.member); }
    if (event.target.closest("[data-unchoose]")) choose("");
  });
  addEventListener("popstate", () => location.reload());
  new ResizeObserver(([entry]) => measured(entry.contentRect)).observe(port);
}

start();
