/** Starts the dashboard. A token in the address is taken out of it before anything else happens. */

import { render } from "preact";

import { App } from "./App";
import { tokenOf } from "./model/router";
import { applyTheme, storedTheme } from "./model/theme";
import "./styles.css";

function start(): void {
  const token = tokenOf(location.hash);
  if (token !== null) {
    history.replaceState(null, "", location.pathname + location.search);
  }
  const root = document.getElementById("app");
  if (root !== null) {
    render(<App token={token} />, root);
  }
}

applyTheme(storedTheme());
start();
addEventListener("hashchange", () => {
  if (tokenOf(location.hash) !== null) {
    start(); // Somebody opened an address with a token in a tab that shows the dashboard already.
  }
});
