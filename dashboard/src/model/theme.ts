/** Light, dark, or what the system says; the choice is kept in the browser. */

import { read, write } from "./storage";

export type Theme = "system" | "light" | "dark";

const KEY = "headrace.theme";

export function storedTheme(): Theme {
  const value = read(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") {
    delete document.documentElement.dataset["theme"];
  } else {
    document.documentElement.dataset["theme"] = theme;
  }
  write(KEY, theme);
  dispatchEvent(new Event("themechange"));
}

/** Reads a value of a theme's colours, for canvases, which know no style sheets. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Calls `listener` whenever colours change; returns what ends that. */
export function onThemeChange(listener: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", listener);
  addEventListener("themechange", listener);
  return () => {
    media.removeEventListener("change", listener);
    removeEventListener("themechange", listener);
  };
}
