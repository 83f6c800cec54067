/** Addresses behind the `#`: `#/job/<id>/checkpoints?checkpoint=7`. */

import { useEffect, useState } from "preact/hooks";

export interface Route {
  parts: readonly string[];
  query: URLSearchParams;
}

/** Reads an address; those of Flink's own dashboard (`#/job/running/<id>/overview`) lead to the same pages. */
export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path
    .split("/")
    .filter((part) => part !== "")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  if (parts[0] === "job" && (parts[1] === "running" || parts[1] === "completed")) {
    if (parts.length === 2) {
      return { parts: [parts[1] === "running" ? "overview" : "ended-jobs"], query: new URLSearchParams(search) };
    }
    parts.splice(1, 1);
  }
  return { parts, query: new URLSearchParams(search) };
}

export function link(parts: readonly (string | number)[], query: Record<string, string | number | undefined> = {}): string {
  const path = parts.map((part) => encodeURIComponent(String(part))).join("/");
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined) {
      search.set(key, String(value));
    }
  }
  const text = search.toString();
  return `#/${path}${text === "" ? "" : `?${text}`}`;
}

/** Takes the token out of an address such as `#token=…`. */
export function tokenOf(hash: string): string | null {
  const match = /^#(?:\/?\??)token=([^&]*)/.exec(hash);
  if (match === null) {
    return null;
  }
  try {
    return decodeURIComponent(match[1] ?? "");
  } catch {
    return match[1] ?? "";
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const listener = (): void => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return route;
}
