// Times: how long ago by the clock of the database, in the zone that was chosen.
const root = document.documentElement;
let offset = Number(root.dataset.now) - Date.now();
const units = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function setNow(millis) {
  offset = millis - Date.now();
}

export function now() {
  return Date.now() + offset;
}

function ago(millis) {
  const seconds = (now() - millis) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const far = Math.abs(seconds);
  const [size, name] = units.find(([each]) => far >= each);
  const text = `${Math.floor(far / size)} ${name}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

export function lasting(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1).replace(".0", "")} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const place = units.findIndex(([size]) => whole >= size);
  const [size, name] = units[place];
  const count = Math.floor(whole / size);
  const [smaller, word] = units[place + 1] || [1, ""];
  const rest = Math.floor((whole % size) / smaller);
  return rest && count < 10 && word ? `${count} ${name} ${rest} ${word}` : `${count} ${name}`;
}

// Made once, and only for local time: making it takes as long as laying out a page.
let local = null;

export function full(millis) {
  if (root.dataset.zone === "utc") return `${new Date(millis).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  local ??= new Intl.DateTimeFormat("en-CA", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
    second: "2-digit", hourCycle: "h23", timeZoneName: "short",
  });
  const parts = local.formatToParts(new Date(millis));
  const of = (type) => (parts.find((part) => part.type === type) || {}).value;
  return `${of("year")}-${of("month")}-${of("day")} ${of("hour")}:${of("minute")}:${of("second")} ${of("timeZoneName")}`;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// What a node shows that does not change by itself: there may be thousands, and a second is short.
const shown = new WeakMap();

export function showTimes(within = document) {
  for (const node of within.querySelectorAll("time[data-form]")) {
    const { form } = node.dataset;
    const key = `${root.dataset.zone} ${node.dateTime}`;
    let seen = shown.get(node);
    if (seen?.key !== key) {
      const at = Date.parse(node.dateTime);
      if (Number.isNaN(at)) continue;
      seen = { key, at, text: full(at) };
      shown.set(node, seen);
    }
    if (form === "ago") put(node, ago(seen.at));
    else if (form === "for") put(node, lasting((now() - seen.at) / 1000));
    else if (form === "clock") put(node, seen.text.slice(11, 19));
    else put(node, seen.text);
    if (form !== "full" && node.title !== seen.text) node.title = seen.text;
  }
}

export function startTimes() {
  requestAnimationFrame(() => setTimeout(showTimes, 200)); // the server has shown them: the page is painted first
  setInterval(() => document.visibilityState === "visible" && showTimes(), 1000);
}
