// Acts: the form of an act is shown in a dialog, sent, and answered by a toast.
import { parse } from "./html.js";
import { toast } from "./copies.js";
import { refreshAll } from "./regions.js";

const dialog = document.getElementById("act");
const header = { "x-ff-dialog": "1" };

function put(text) {
  dialog.replaceChildren(...parse(text).children);
  const first = dialog.querySelector("[autofocus]") || dialog.querySelector("textarea, input:not([type=hidden]), select, button");
  first?.focus();
}

let wanted = 0; // of two acts that were asked for, the last one is shown
export async function openAct(href) {
  const mine = (wanted += 1);
  let answer;
  try {
    answer = await fetch(href, { headers: header });
  } catch {
    toast("No connection: nothing was changed.", { bad: true });
    return;
  }
  if (answer.status === 401) { location.reload(); return; }
  const text = await answer.text();
  if (mine !== wanted) return;
  if (!(answer.headers.get("content-type") || "").startsWith("text/html")) {
    toast(text.slice(0, 400), { bad: true });
    return;
  }
  dialog.showModal();
  put(text);
}

async function send(form) {
  const button = form.querySelector("button.primary, button.danger");
  if (button) button.disabled = true;
  let answer;
  try {
    answer = await fetch(form.action, {
      method: "POST", headers: header, body: new URLSearchParams(new FormData(form)), redirect: "manual",
    });
  } catch {
    toast("No connection: it is not known whether it was done.", { bad: true });
    if (button) button.disabled = false;
    return;
  }
  const kind = answer.headers.get("content-type") || "";
  if (kind.startsWith("application/json")) {
    const done = await answer.json();
    if (form.isConnected) dialog.close();
    const here = location.pathname;
    if (done.to && (done.reload || new URL(done.to, location.href).pathname !== here)) {
      sessionStorage.setItem("ff-toast", JSON.stringify(done));
      location.assign(done.to);
      return;
    }
    toast(done.message, { link: done.link });
    document.dispatchEvent(new CustomEvent("ff:done"));
    refreshAll();
  } else if (kind.startsWith("text/html")) {
    const text = await answer.text();
    if (form.isConnected) put(text); // another dialog may have been opened meanwhile
  } else {
    toast((await answer.text()).slice(0, 400), { bad: true });
    if (button) button.disabled = false;
  }
}

// What the form would do is asked for while it is typed; an answer that came too late is dropped.
let asked = 0;
async function preview(form) {
  const mine = (asked += 1);
  await new Promise((done) => setTimeout(done, 350));
  if (mine !== asked || !form.isConnected) return;
  const body = new URLSearchParams(new FormData(form));
  body.set("_preview", "yes");
  try {
    const answer = await fetch(form.action, { method: "POST", headers: header, body, redirect: "manual" });
    const fresh = answer.ok && parse(await answer.text()).querySelector("[data-preview]");
    if (fresh && mine === asked) form.querySelector("[data-preview]")?.replaceWith(fresh);
  } catch {
    // The next key asks again.
  }
}

export function startDialogs() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-act]");
    if (link && !event.metaKey && !event.ctrlKey && event.button === 0) {
      event.preventDefault();
      openAct(link.href);
    }
    const close = event.target.closest("[data-close]");
    if (close && close.closest("dialog")) {
      event.preventDefault();
      close.closest("dialog").close();
    }
    if (event.target.closest("[aria-disabled=true]")) event.preventDefault();
  });
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-previews]");
    if (form && event.target.name !== "reason") preview(form);
  });
  dialog.addEventListener("submit", (event) => {
    if (event.target.matches("form[data-dialog]")) {
      event.preventDefault();
      send(event.target);
    }
  });
  dialog.addEventListener("close", () => dialog.replaceChildren());
  const kept = sessionStorage.getItem("ff-toast");
  if (kept) {
    sessionStorage.removeItem("ff-toast");
    const done = JSON.parse(kept);
    toast(done.message, { link: done.link });
  }
}
