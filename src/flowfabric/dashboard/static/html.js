// Texts of HTML become nodes here and nowhere else: the one policy that the browser is told of.
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("ff", { createHTML: (text) => text })
  : { createHTML: (text) => text };

export function parse(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), "text/html").body;
}

export function make(name, classes, text) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "i");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}
