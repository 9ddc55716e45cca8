// Preferences: kept in a cookie, so that the server renders the next page with them.
import { showTimes } from "./times.js";

const root = document.documentElement;
const names = ["theme", "zone", "density", "keys"];

export function setPref(name, value) {
  root.dataset[name] = value;
  const text = names.map((each) => `${each}=${root.dataset[each]}`).join("|");
  document.cookie = `ff_prefs=${text}; path=/; max-age=31536000; samesite=strict`;
  for (const control of document.querySelectorAll(`[data-pref="${name}"]`)) control.value = value;
  if (name === "zone") showTimes();
}

export function startPrefs() {
  const button = document.getElementById("theme");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme === "dark"
        || (root.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
      setPref("theme", dark ? "light" : "dark");
    });
  }
  document.addEventListener("change", (event) => {
    const control = event.target;
    if (control.dataset.pref) setPref(control.dataset.pref, control.value);
    if (control.dataset.submits !== undefined) control.form.requestSubmit();
  });
}
