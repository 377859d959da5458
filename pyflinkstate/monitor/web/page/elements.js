// Elements of the page. Data becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = ["svg", "path", "rect", "circle", "text", "g", "title", "svg-a"];

export const byId = (id) => document.getElementById(id);

// Make an element; "svg-a" is a link inside a drawing.
export function element(tag, attributes, ...children) {
  const made = SVG_TAGS.includes(tag)
    ? document.createElementNS(SVG, tag.replace("svg-", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "height%") made.dataset.height = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child.nodeType ? child : String(child));
  }
  return made;
}

// Make `old` what `made` is, and keep what stays the same: focus, open details and scrolled tables.
function become(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) { old.replaceWith(made); style(made); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== made.data) old.data = made.data; return; }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (made.dataset && made.dataset.height !== undefined) old.style.height = made.dataset.height + "%";
  fill(old, [...made.childNodes]);
}

export function fill(parent, children) {
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
  children.forEach((child, n) => {
    if (n < parent.childNodes.length) become(parent.childNodes[n], child);
    else { parent.append(child); style(child); }
  });
}

// The heights of bars are set here: the policy of the page forbids style attributes.
function style(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  for (const one of [node, ...node.querySelectorAll("[data-height]")]) {
    if (one.dataset && one.dataset.height !== undefined) one.style.height = one.dataset.height + "%";
  }
}

// Fill the body of a section.
export const show = (id, ...children) =>
  fill(byId(id).querySelector(".body"), children.flat(Infinity).filter((child) => child !== null && child !== undefined));

export const facts = (...pairs) => element("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) =>
  element("div", { title: typeof value === "string" ? value : null }, element("dt", null, name), element("dd", null, value))));

export const nothing = (text) => element("p", { class: "faint" }, text);

// Bars of values; the one at `marked` stands out.
export function bars(values, about, marked, most = Math.max(1, ...values)) {
  return element("div", { class: "bars", role: "img", "aria-label": about, title: about },
    values.map((value, n) => element("i", {
      class: n === marked ? "marked" : null, "height%": Math.max(2, (100 * (value ?? 0)) / most).toFixed(1) })));
}
