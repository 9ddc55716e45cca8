// Frames of a stream as they come: at most 2,000 rows stay in the page.
import { make } from "./html.js";
import { onEvent } from "./live.js";
import { showTimes } from "./times.js";

const MOST = 2000;
const AT_ONCE = 100; // a page that is told thousands still hears keys and clicks
const PAUSE = 60;
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

function draw() {
  drawing = 0;
  if (waiting.length > MOST) waiting = waiting.slice(-MOST);
  const batch = waiting.splice(0, AT_ONCE);
  if (waiting.length) drawing = setTimeout(draw, 0);
  const list = document.getElementById("frames");
  if (!list) return;
  const { only, stream } = list.dataset;
  const known = new Set();
  for (let each = list.lastElementChild; each && known.size < 400; each = each.previousElementSibling) known.add(each.dataset.id);
  const fresh = batch.filter((each) => !known.has(each.id) && (!only || each.type === only)).map(row);
  list.dataset.stream = `${stream.split("@")[0]}@${batch.at(-1).id}`; // where a new stream goes on
  if (!fresh.length) return;
  for (const each of fresh) showTimes(each);
  list.append(...fresh);
  while (list.children.length > MOST) list.firstElementChild.remove();
  follow(list);
  if (!drawing) toEnd();
}

// Rows have their true height only once they are seen, so the end moves as they are: the list is
// held at its end for as long as it grows. Whoever moves up reads, and does not follow any more.
let followed = null;
function toEnd() {
  const box = document.getElementById("frame-box");
  if (box && document.getElementById("follow")?.checked) box.scrollTop = box.scrollHeight;
}
const growth = new ResizeObserver(toEnd);

function follow(list) {
  if (followed === list) return;
  followed = list;
  growth.disconnect();
  growth.observe(list);
  const box = list.parentElement;
  const stop = () => { document.getElementById("follow").checked = false; };
  box.addEventListener("wheel", (event) => { if (event.deltaY < 0) stop(); }, { passive: true });
  box.addEventListener("touchmove", stop, { passive: true });
  box.addEventListener("keydown", (event) => { if (/^(ArrowUp|PageUp|Home)$/.test(event.key)) stop(); });
}

export function startFrames() {
  const list = document.getElementById("frames");
  if (list) follow(list);
  document.addEventListener("change", (event) => { if (event.target.id === "follow") toEnd(); });
  onEvent("frames", (frames) => {
    waiting.push(...frames);
    if (!drawing) drawing = setTimeout(draw, PAUSE);
  });
}
