/** @file A text field that offers completions while the user types, by pointer or keys (the combo box pattern of ARIA). */

import { el, fill, reporter } from "./dom.js";

/** @typedef {(text: string) => Promise<string[]> | string[]} Completions */

/** Maximum options in a list. */
const MOST = 50;

/** Minimum pause in typing before completions are requested. */
const PAUSE_MS = 120;

let lists = 0;

/**
 * Makes a field with completions. Calls `onChange` with the entered or chosen text.
 *
 * @param {object} options
 * @param {string} options.value
 * @param {string} options.label
 * @param {string} [options.placeholder]
 * @param {Completions} options.completions
 * @param {(value: string) => void} options.onChange
 * @param {string} [options.separator] the text after the last separator is completed, as in `a|b`
 * @returns {HTMLElement}
 */
export function comboBox({ value, label, placeholder, completions, onChange, separator }) {
  lists += 1;
  const id = `options-${lists}`;
  const list = el("ul", { class: "options", id, role: "listbox", hidden: true, "aria-label": label });
  const input = el("input", {
    type: "text",
    role: "combobox",
    "aria-label": label,
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": id,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    placeholder,
  });
  input.value = value;
  /** @type {string[]} */
  let options = [];
  let chosen = -1;
  let asked = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const report = reporter(input, onChange);
  const close = () => {
    clearTimeout(timer);
    asked += 1;
    list.hidden = true;
    chosen = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const mark = (/** @type {number} */ at) => {
    chosen = at;
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === at)));
    const item = list.children[at];
    if (item) {
      input.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  };
  const take = (/** @type {string} */ option) => {
    const cut = separator ? input.value.lastIndexOf(separator) + 1 : 0;
    input.value = input.value.slice(0, cut) + option;
    close();
    report();
  };
  const open = async () => {
    asked += 1;
    const ask = asked;
    const cut = separator ? input.value.lastIndexOf(separator) + 1 : 0;
    /** @type {string[]} */
    let found;
    try {
      found = await completions(input.value.slice(cut).trim());
    } catch {
      // If the request fails, the field works without completions.
      found = [];
    }
    if (ask !== asked || document.activeElement !== input) {
      return;
    }
    const before = options[chosen];
    options = found.slice(0, MOST);
    fill(
      list,
      options.map((option, index) => {
        const item = el("li", { id: `${id}-${index}`, role: "option", "aria-selected": "false" }, option);
        // `pointerdown` comes before the field loses the focus.
        item.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          take(option);
        });
        return item;
      }),
    );
    // Keeps the current choice if it is still in the list.
    mark(before === undefined ? -1 : options.indexOf(before));
    const useful = options.length > 1 || (options.length === 1 && options[0] !== input.value.slice(cut));
    list.hidden = !useful;
    input.setAttribute("aria-expanded", String(useful));
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => void open(), PAUSE_MS);
  });
  input.addEventListener("focus", () => void open());
  input.addEventListener("blur", () => {
    close();
    report();
  });
  input.addEventListener("keydown", (event) => {
    const shown = !list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!shown) {
        void open();
        return;
      }
      const by = event.key === "ArrowDown" ? 1 : -1;
      mark((chosen + by + options.length + (chosen < 0 && by < 0 ? 1 : 0)) % options.length);
    } else if (event.key === "Enter") {
      const option = shown ? options[chosen] : undefined;
      if (option !== undefined) {
        take(option);
      } else {
        close();
        report();
      }
    } else if (event.key === "Tab") {
      const option = shown ? options[chosen] : undefined;
      if (option !== undefined) {
        take(option);
      }
    } else if (event.key === "Escape" && shown) {
      event.stopPropagation();
      close();
    }
  });
  return el("div", { class: "combo" }, input, list);
}
