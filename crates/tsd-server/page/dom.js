/**
 * @file Elements of the page. Untrusted text (names, tags, errors) becomes only text nodes and attribute values: no function
 * parses markup.
 */

/** @typedef {string | number | Node | null | undefined | false} Child */
/** @typedef {Record<string, unknown>} Props */

/** Event of the window: the colours changed, so canvases must be drawn again. */
export const COLOURS_CHANGED = "colours";

/**
 * Makes an element. Keys of `props` that begin with `on` are listeners, `class` and `for` are attributes. True sets an attribute,
 * false omits it.
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
 * Replaces the content of an element.
 *
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

/**
 * Returns an element of the document's own markup.
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
 * Makes a labelled control.
 *
 * @param {string} label
 * @param {HTMLElement} control
 * @returns {HTMLElement}
 */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", null, label), control);
}

/**
 * Makes a check box with its label.
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
 * Makes a list to choose from. Adds a value that is not listed, so that a link of another release keeps its value.
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
 * Makes a text field that reports its text when it loses the focus, Enter is pressed, or `commitFocused` is called.
 *
 * @param {string} value
 * @param {(value: string) => void} onChange
 * @param {Props} [props]
 * @returns {HTMLInputElement}
 */
export function textField(value, onChange, props) {
  const made = el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props });
  made.value = value;
  const report = reporter(made, onChange);
  made.addEventListener("change", report);
  return made;
}

/** By field, the function that reports its pending text. @type {WeakMap<Element, () => void>} */
const reports = new WeakMap();

/**
 * Makes a function that reports the text of a field once, and registers it for `commitFocused`.
 *
 * @param {HTMLInputElement} field
 * @param {(value: string) => void} onChange
 * @returns {() => void}
 */
export function reporter(field, onChange) {
  let reported = field.value.trim();
  const report = () => {
    const now = field.value.trim();
    if (now !== reported) {
      reported = now;
      onChange(now);
    }
  };
  reports.set(field, report);
  return report;
}

/**
 * Reports the text of the focused field as if the field had lost the focus. Shortcuts and gestures do not move the focus, so no
 * `change` precedes them.
 */
export function commitFocused() {
  const focused = document.activeElement;
  if (focused) {
    reports.get(focused)?.();
  }
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
 * Renders a section of the page again and gives the focus to the control at the same position, so that keyboard input continues.
 *
 * @param {HTMLElement} part
 * @param {() => void} render
 */
export function keepFocus(part, render) {
  const controls = () => [.../** @type {NodeListOf<HTMLElement>} */ (part.querySelectorAll(FOCUSABLE))];
  const at = controls().findIndex((control) => control === document.activeElement);
  if (at >= 0) {
    // A tap on a button leaves the focus in the field, which is about to be replaced.
    commitFocused();
  }
  render();
  if (at >= 0) {
    const after = controls();
    after[Math.min(at, after.length - 1)]?.focus();
  }
}

/**
 * Copies a text to the clipboard. Over plain HTTP, browsers lack `navigator.clipboard` but have the older command that copies a
 * selection.
 *
 * @param {string} text
 * @returns {Promise<boolean>} false if the browser allows neither way
 */
export async function copyText(text) {
  try {
    // The declared type ignores that insecure pages have no clipboard.
    const clipboard = /** @type {Clipboard | undefined} */ (navigator.clipboard);
    if (clipboard) {
      await clipboard.writeText(text);
      return true;
    }
  } catch {
    // The browser may still allow the command below.
  }
  const focused = document.activeElement;
  const selected = el("textarea", { class: "skip", readonly: true, "aria-hidden": "true" });
  selected.value = text;
  document.body.append(selected);
  selected.select();
  let copied = false;
  try {
    copied = document.execCommand("copy");
  } catch {
    // The caller shows the text instead.
  }
  selected.remove();
  if (focused instanceof HTMLElement) {
    focused.focus();
  }
  return copied;
}

/**
 * Makes a text to copy by hand: a field that selects its whole text when it gets the focus.
 *
 * @param {string} text
 * @param {string} label
 * @returns {HTMLInputElement}
 */
export function selectableText(text, label) {
  const shown = el("input", { type: "text", class: "mono selectable", readonly: true, "aria-label": label });
  shown.value = text;
  shown.addEventListener("focus", () => shown.select());
  return shown;
}

/**
 * Offers data as a download.
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
