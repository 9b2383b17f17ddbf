/** @file The signed-in user in the head of the page, and the way to sign out. */

import { button, byId, el, fill } from "./dom.js";

/** The file whose response makes the browser forget the credentials. */
const SIGNED_OUT = "/s/page/signed_out.html";

/** @param {string} name empty without authentication */
export function showUser(name) {
  const place = byId("user");
  if (place.dataset["name"] === name) {
    return;
  }
  place.dataset["name"] = name;
  place.hidden = name === "";
  fill(
    place,
    el("span", { class: "dim", title: "The user of the daemon that this browser has signed in" }, name),
    button("Sign out", signOut, { class: "quiet", id: "sign-out" }),
  );
}

function signOut() {
  const address = new URL(SIGNED_OUT, location.href);
  if (!isSecureContext) {
    // Over plain HTTP only other credentials, which are wrong, replace those of the browser.
    address.username = "signed-out";
    address.password = "signed-out";
  }
  location.assign(address);
}
