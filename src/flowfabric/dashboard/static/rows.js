// Rows of a list: move by keys, select by box, range by shift, and act on what is selected.
let last = null;
let matching = false; // is everything that matches selected, beyond the rows of the page?

function rows() {
  return [...document.querySelectorAll("tbody tr[data-id]")];
}

function boxOf(row) {
  return row.querySelector("input[data-pick]");
}

export function moveRow(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((each) => each.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

export function openRow() {
  document.querySelector("tr.at a")?.click();
}

export function pickRow() {
  const box = document.querySelector("tr.at input[data-pick]");
  if (box) box.click();
}

function show() {
  const picked = rows().filter((each) => boxOf(each)?.checked);
  for (const row of rows()) row.classList.toggle("picked", picked.includes(row));
  for (const bar of document.querySelectorAll("[data-picked]")) {
    bar.hidden = !picked.length;
    const all = bar.querySelector("[data-pick-matching]");
    if (!all || !picked.length) matching = false;
    all?.setAttribute("aria-pressed", String(matching));
    bar.querySelector(".count").textContent = matching ? all.dataset.pickMatching : `${picked.length} selected`;
    for (const link of bar.querySelectorAll("a[data-do]")) {
      const url = new URL(matching ? bar.dataset.matching : bar.dataset.picked, location.href);
      if (!matching) for (const row of picked) url.searchParams.append("id", row.dataset.id);
      url.searchParams.set("do", link.dataset.do);
      link.href = url;
    }
  }
}

export function startRows() {
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-pick-matching]")) {
      matching = !matching;
      if (matching) for (const row of rows()) boxOf(row).checked = true;
      show();
      return;
    }
    const box = event.target.closest("input[data-pick]");
    if (!box) return;
    const all = rows();
    const here = all.indexOf(box.closest("tr"));
    if (event.shiftKey && last !== null && all[last]) {
      const [low, high] = [Math.min(here, last), Math.max(here, last)];
      for (const row of all.slice(low, high + 1)) boxOf(row).checked = box.checked;
    }
    last = here;
    if (!box.checked) matching = false;
    show();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-pick-all]")) return;
    for (const row of rows()) boxOf(row).checked = event.target.checked;
    if (!event.target.checked) matching = false;
    show();
  });
  document.addEventListener("ff:done", () => {
    for (const row of rows()) if (boxOf(row)) boxOf(row).checked = false;
    matching = false;
    show();
  });
  document.addEventListener("ff:morphed", show);
}
