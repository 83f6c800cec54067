/** The frame of every page: navigation, name and version of the cluster, theme, notices. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { applyTheme, storedTheme, type Theme } from "../model/theme";
import type { DashboardConfiguration } from "../types";
import { NoticeList } from "./NoticeList";

const THEMES: readonly (readonly [Theme, string])[] = [
  ["system", "as the system"],
  ["light", "light"],
  ["dark", "dark"],
];

export function Shell(props: {
  configuration: DashboardConfiguration;
  current: string;
  /** Null where no sign-in was needed. */
  onSignOut: (() => void) | null;
  children: ComponentChildren;
}): JSX.Element {
  const isHistory = props.configuration.features["web-history"];
  const pages: readonly (readonly [string, string])[] = isHistory
    ? [
        ["overview", "Overview"],
        ["ended-jobs", "Ended jobs"],
      ]
    : [
        ["overview", "Overview"],
        ["ended-jobs", "Ended jobs"],
        ["task-manager", "TaskManagers"],
        ["job-manager", "JobManager"],
      ];
  const [theme, setTheme] = useState(storedTheme());
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={skip}>
        Skip to the content
      </a>
      <header>
        <a class="brand" href="#/overview">
          <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
            <path d="M4 11c5-5 8 5 12 0s8 0 12 0M4 17c5-5 8 5 12 0s8 0 12 0M4 23c5-5 8 5 12 0s8 0 12 0" />
          </svg>
          Headrace{isHistory ? " history" : ""}
        </a>
        <nav aria-label="Pages">
          {pages.map(([id, title]) => (
            <a key={id} href={`#/${id}`} aria-current={props.current === id ? "page" : undefined}>
              {title}
            </a>
          ))}
          {props.configuration.features["web-spark"] && (
            <a href="spark/" target="_blank" rel="noopener" title="Spark's own page, in a new tab">
              Spark
            </a>
          )}
        </nav>
        <div class="header-end">
          <span class="quiet-text" title={props.configuration["flink-revision"]}>
            {props.configuration["flink-revision"]}
          </span>
          <label class="select">
            <span class="hidden">Colours</span>
            <select
              value={theme}
              onChange={(event) => {
                const next = event.currentTarget.value as Theme;
                setTheme(next);
                applyTheme(next);
              }}
            >
              {THEMES.map(([id, title]) => (
                <option key={id} value={id}>
                  {title}
                </option>
              ))}
            </select>
          </label>
          {props.onSignOut === null ? null : (
            <button type="button" class="button" onClick={props.onSignOut}>
              Sign out
            </button>
          )}
        </div>
      </header>
      <NoticeList />
      <main id="content" tabIndex={-1}>
        {props.children}
      </main>
    </div>
  );
}

function skip(event: Event): void {
  event.preventDefault(); // The part behind `#` is the address of the page.
  document.getElementById("content")?.focus();
}
