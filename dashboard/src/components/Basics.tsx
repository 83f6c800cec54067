/** Small pieces of which pages are made. */

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

import { count } from "../model/format";
import type { Stats } from "../types";

const STATE_KIND: Record<string, string> = {
  RUNNING: "good",
  FINISHED: "done",
  COMPLETED: "good",
  FAILED: "bad",
  FAILING: "bad",
  RESTARTING: "warn",
  CANCELLING: "warn",
  CANCELING: "warn",
  CANCELED: "quiet",
  SUSPENDED: "quiet",
};

export function State({ state }: { state: string }): JSX.Element {
  return <span class={`state ${STATE_KIND[state] ?? "wait"}`}>{state}</span>;
}

export function Loading({ what }: { what: string }): JSX.Element {
  return (
    <p class="quiet-text" aria-busy="true">
      {what} …
    </p>
  );
}

/** What stands in place of data that failed to load; the notice on top of the page says why. */
export function Waiting({ what, failed }: { what: string; failed: boolean }): JSX.Element {
  return failed ? <p class="quiet-text">No answer yet.</p> : <Loading what={what} />;
}

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>;
}

export function Panel(props: {
  title: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}): JSX.Element {
  const id = useId();
  return (
    <section class={`panel ${props.class ?? ""}`} aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{props.title}</h2>
        {props.actions}
      </div>
      {props.children}
    </section>
  );
}

export function Facts({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export interface Tab {
  id: string;
  title: string;
  href: string;
}

export function Tabs({ tabs, current, label }: { tabs: readonly Tab[]; current: string; label: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <a key={tab.id} href={tab.href} aria-current={tab.id === current ? "page" : undefined}>
          {tab.title}
        </a>
      ))}
    </nav>
  );
}

/** How a task spends its time: three parts of one bar, told in words as well. */
export function TimeBar(props: { busy: number | null; backPressured: number | null; idle: number | null }): JSX.Element {
  const parts = [
    ["busy", props.busy],
    ["back-pressured", props.backPressured],
    ["idle", props.idle],
  ] as const;
  if (parts.every(([, share]) => share === null)) {
    return <span class="quiet-text">–</span>;
  }
  const text = parts.map(([name, share]) => `${name} ${share === null ? "unknown" : `${Math.round(share * 100)} %`}`).join(", ");
  return (
    <span class="time-bar" role="img" aria-label={text} title={text}>
      {parts.map(([name, share]) => (
        <span key={name} class={name} style={{ width: `${Math.max(0, Math.min(1, share ?? 0)) * 100}%` }} />
      ))}
    </span>
  );
}

export function Share({ value, label }: { value: number; label: string }): JSX.Element {
  const width = Math.max(0, Math.min(1, value)) * 100;
  return (
    <span class="share" role="img" aria-label={label} title={label}>
      <span style={{ width: `${width}%` }} />
    </span>
  );
}

export function Search(props: { label: string; value: string; onChange(value: string): void }): JSX.Element {
  return (
    <input
      type="search"
      class="search"
      placeholder={props.label}
      aria-label={props.label}
      value={props.value}
      onInput={(event) => props.onChange(event.currentTarget.value)}
    />
  );
}

export function Select<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange(value: T): void;
}): JSX.Element {
  return (
    <label class="select">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value as T)}>
        {props.options.map(([value, title]) => (
          <option key={value} value={value}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Percentiles of figures, a row each. */
export function StatsTable(props: {
  caption: string;
  rows: readonly (readonly [string, Stats, (value: number | null) => string])[];
}): JSX.Element {
  const columns = ["min", "avg", "p50", "p90", "p99", "p999", "max"] as const;
  return (
    <div class="scroll">
      <table>
        <caption>{props.caption}</caption>
        <thead>
          <tr>
            <th scope="col">figure</th>
            {columns.map((column) => (
              <th key={column} scope="col" class="number">
                {column === "p999" ? "p99.9" : column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map(([name, stats, format]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {columns.map((column) => {
                const value = stats[column];
                return (
                  <td key={column} class="number">
                    {typeof value === "number" ? format(value) : "–"}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Figure({ title, value, detail }: { title: string; value: ComponentChildren; detail?: string }): JSX.Element {
  return (
    <div class="figure">
      <span class="figure-title">{title}</span>
      <span class="figure-value">{typeof value === "number" ? count(value) : value}</span>
      {detail === undefined ? null : <span class="quiet-text">{detail}</span>}
    </div>
  );
}
