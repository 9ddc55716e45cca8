// Copy buttons; where there is no clipboard, the text is shown selected in a field.
import { icon, make } from "./html.js";

export function toast(text, { bad = false, link = "" } = {}) {
  const box = make("div", bad ? "toast bad" : "toast");
  box.append(icon(bad ? "cross" : "tick"), make("span", "", text));
  if (link) {
    const more = make("a", "", "Record");
    more.href = link;
    box.append(more);
  }
  const close = make("button", "plain");
  close.setAttribute("aria-label", "Close");
  close.append(icon("cross"));
  close.addEventListener("click", () => box.remove());
  box.append(close);
  document.getElementById("toasts").append(box);
  if (!bad) setTimeout(() => box.remove(), 8000);
}

async function copied(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  }
  return false;
}

export function startCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    event.preventDefault();
    if (await copied(button.dataset.copy)) {
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
      return;
    }
    const field = make("input");
    field.value = button.dataset.copy;
    field.readOnly = true;
    field.setAttribute("aria-label", "Text to copy");
    button.after(field);
    field.focus();
    field.select();
    field.addEventListener("blur", () => field.remove());
  });
}
