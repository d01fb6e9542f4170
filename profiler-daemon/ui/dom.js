// Making elements. Text from the daemon only ever becomes text nodes and attribute values, never markup: there is no way
// here to set markup, styles in attributes or handlers in attributes.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An element; `attributes.on` holds event handlers by name, the rest are attributes (true: empty, false: none).
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same in SVG.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Sets a text only where it differs, so that a selection within it survives updates.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Sets an attribute only where it differs; null removes it.
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Puts these children in place of all others, leaving alone what is already there.
export function setChildren(parent, children) {
  const wanted = children.filter(Boolean);
  let at = parent.firstChild;
  for (const child of wanted) {
    if (child === at) at = at.nextSibling;
    else parent.insertBefore(child, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// Tells people who do not see the page what has changed.
export function announce(sentence) {
  const live = document.getElementById("live");
  if (live) setText(live, sentence);
}
