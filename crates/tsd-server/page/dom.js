/**
 * @file Elements of the page. Text of others (names, tags, errors) becomes text nodes and attribute values only: nothing here parses
 * markup.
 */

/** @typedef {string | number | Node | null | undefined | false} Child */
/** @typedef {Record<string, unknown>} Props */

/** Event of the window: what was drawn has colours of the moment before, and is drawn again. */
export const COLOURS_CHANGED = "colours";

/**
 * Makes an element. Keys of `props` that begin with `on` are listeners, `class` and `for` are attributes, true and false set and leave
 * out an attribute.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on") && typeof value === "function") {
      made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === "value" && "value" in made) {
      /** @type {{ value: unknown }} */ (made).value = value;
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, String(value));
    }
  }
  add(made, children);
  return made;
}

/**
 * @param {Element} to
 * @param {(Child | Child[])[]} children
 */
function add(to, children) {
  for (const child of children.flat()) {
    if (child instanceof Node) {
      to.append(child);
    } else if (child !== null && child !== undefined && child !== false) {
      to.append(String(child));
    }
  }
}

/**
 * Replaces what an element contains.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * An element of the document's own markup.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) {
    throw new Error(`the page has no element ${id}`);
  }
  return found;
}

/**
 * A labelled control.
 *
 * @param {string} label
 * @param {HTMLElement} control
 * @returns {HTMLElement}
 */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", null, label), control);
}

/**
 * A check box with its label.
 *
 * @param {string} label
 * @param {boolean} checked
 * @param {(checked: boolean) => void} onChange
 * @param {string} [title]
 * @returns {HTMLElement}
 */
export function check(label, checked, onChange, title) {
  const box = el("input", { type: "checkbox" });
  box.checked = checked;
  box.addEventListener("change", () => onChange(box.checked));
  return el("label", { class: "check", title }, box, label);
}

/**
 * A list to choose from. A value that is not listed is added, so that a link of another release is shown as it is.
 *
 * @param {readonly (string | readonly [string, string])[]} options values, or pairs of value and label
 * @param {string} value
 * @param {(value: string) => void} onChange
 * @param {Props} [props]
 * @returns {HTMLSelectElement}
 */
export function select(options, value, onChange, props) {
  const pairs = options.map((option) => (typeof option === "string" ? /** @type {const} */ ([option, option]) : option));
  if (!pairs.some(([known]) => known === value)) {
    pairs.push([value, value]);
  }
  const made = el("select", props, pairs.map(([known, label]) => el("option", { value: known }, label)));
  made.value = value;
  made.addEventListener("change", () => onChange(made.value));
  return made;
}

/**
 * A text field that reports what was entered when it is left or Enter is pressed.
 *
 * @param {string} value
 * @param {(value: string) => void} onChange
 * @param {Props} [props]
 * @returns {HTMLInputElement}
 */
export function textField(value, onChange, props) {
  const made = el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props });
  made.value = value;
  made.addEventListener("change", () => onChange(made.value.trim()));
  return made;
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {Props} [props]
 * @returns {HTMLButtonElement}
 */
export function button(label, onClick, props) {
  return el("button", { type: "button", onclick: onClick, ...props }, label);
}

const FOCUSABLE = "a[href], button, input, select, textarea, summary";

/**
 * Renders a part of the page anew and gives the focus to the control in the same place, so that keys go on where they were.
 *
 * @param {HTMLElement} part
 * @param {() => void} render
 */
export function keepFocus(part, render) {
  const controls = () => [.../** @type {NodeListOf<HTMLElement>} */ (part.querySelectorAll(FOCUSABLE))];
  const at = controls().findIndex((control) => control === document.activeElement);
  render();
  if (at >= 0) {
    const after = controls();
    after[Math.min(at, after.length - 1)]?.focus();
  }
}

/**
 * Offers data as a file.
 *
 * @param {string} name
 * @param {Blob} data
 */
export function download(name, data) {
  const url = URL.createObjectURL(data);
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
