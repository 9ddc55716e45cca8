// The page of a signed link. The token stays in the fragment; it is sent in bodies alone.
import { make } from "./html.js";

const token = location.hash.slice(1);
const nonce = crypto.getRandomValues(new Uint32Array(4)).join("-");
const form = document.getElementById("answer");
const about = document.getElementById("about");
const buttons = document.getElementById("buttons");
const WORDS = { approved: "Approve", rejected: "Deny" };

async function post(body) {
  const answer = await fetch(location.pathname, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  if (!(answer.headers.get("content-type") || "").startsWith("application/json")) {
    return { told: answer.status === 429 ? "Too many tries: wait a minute." : "It was not possible." };
  }
  return answer.json();
}

function tell(text) {
  about.textContent = text;
  document.getElementById("fields").hidden = true;
  buttons.replaceChildren();
}

function when(text) {
  return new Date(text).toLocaleString();
}

// A field of the answer, as the schema of the waitpoint describes it.
function draw(field) {
  const label = make("label", field.kind === "check" ? "check" : "", field.kind === "check" ? "" : field.label);
  const tag = { select: "select", area: "textarea" }[field.kind] || "input";
  const input = make(tag);
  input.name = field.name;
  if (field.kind === "number") input.inputMode = "decimal";
  for (const [value, word] of field.choices) input.append(new Option(word, value, false, value === field.value));
  if (field.kind === "check") {
    input.type = "checkbox";
    input.value = "yes";
    input.checked = field.value === "yes";
  } else if (tag !== "select") input.value = field.value;
  label.append(input);
  if (field.kind === "check") label.append(field.label);
  if (field.hint) label.append(make("span", "hint", field.hint));
  return label;
}

async function send(signal) {
  for (const each of buttons.children) each.disabled = true;
  const fields = new FormData(form);
  try {
    const typed = Object.fromEntries([...fields].filter(([name]) => name.startsWith("answer.")));
    const done = await post({ token, signal, nonce, name: fields.get("name"), comment: fields.get("comment"), fields: typed });
    if (done.told) { tell(done.told); return; }
    about.textContent = done.wrong;
    for (const each of buttons.children) each.disabled = false;
  } catch {
    about.textContent = "No connection: press again. It counts once.";
    for (const each of buttons.children) each.disabled = false;
  }
}

function show(asked) {
  if (asked.told) { tell(asked.told); return; }
  document.getElementById("question").textContent = asked.question;
  const list = document.getElementById("answers");
  for (const each of asked.answers) list.append(make("li", "", `${each.signal} by ${each.by}, ${when(each.at)}`));
  list.hidden = !asked.answers.length;
  if (!asked.open) { tell("It was answered already, or has expired."); return; }
  about.textContent = asked.kind + (asked.expires ? `. It can be answered until ${when(asked.expires)}.` : ".");
  const box = document.getElementById("fields");
  box.prepend(...asked.fields.map(draw));
  box.hidden = false;
  for (const signal of asked.signals) {
    const kind = signal === "rejected" ? "button danger" : "button primary";
    const button = make("button", kind, WORDS[signal] || signal);
    button.type = "button";
    button.addEventListener("click", () => send(signal));
    buttons.prepend(button);
  }
}

form.addEventListener("submit", (event) => event.preventDefault());
if (token) post({ token }).then(show, () => tell("No connection: reload the page."));
else tell("This link is not complete.");
