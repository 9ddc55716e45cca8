// Frames of a stream as they come: at most 2,000 rows stay in the page.
import { make } from "./html.js";
import { onEvent } from "./live.js";
import { showTimes } from "./times.js";

const MOST = 2000;
let waiting = [];
let drawing = 0;

function row(frame) {
  const line = make("li", "frame");
  line.dataset.id = frame.id;
  const at = make("time", "faint");
  at.dateTime = frame.at;
  at.dataset.form = "clock";
  line.append(at, make("span", "tag", frame.type), make("span", "text", frame.text));
  return line;
}

function draw(list) {
  drawing = 0;
  const batch = waiting.slice(-MOST);
  waiting = [];
  const known = new Set([...list.children].slice(-400).map((each) => each.dataset.id));
  const fresh = batch.filter((each) => !known.has(each.id)).map(row);
  if (!fresh.length) return;
  document.querySelector("[data-no-frames]")?.remove();
  list.append(...fresh);
  while (list.children.length > MOST) list.firstElementChild.remove();
  showTimes(list);
  const box = list.parentElement;
  if (document.getElementById("follow")?.checked) box.scrollTop = box.scrollHeight;
}

export function startFrames() {
  const list = document.getElementById("frames");
  if (!list) return;
  list.parentElement.scrollTop = list.parentElement.scrollHeight;
  onEvent("frame", (frame) => {
    waiting.push(frame);
    if (!drawing) drawing = setTimeout(() => draw(list), 60);
  });
}
