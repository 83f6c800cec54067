/** A table that sorts by its columns and shows a bounded number of rows at a time. */

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { count } from "../model/format";

export interface Column<R> {
  title: string;
  cell(row: R): ComponentChildren;
  /** By what rows are sorted; a column without it is not sorted. */
  order?(row: R): number | string | null;
  numeric?: boolean;
  /** Long texts, which may take several lines. */
  wraps?: boolean;
}

const PAGE = 200;

export function DataTable<R>(props: {
  caption: string;
  columns: readonly Column<R>[];
  rows: readonly R[];
  rowKey(row: R): string;
  sort?: { column: number; descending: boolean };
  current?: string | null;
  empty?: string;
}): JSX.Element {
  const [sort, setSort] = useState(props.sort ?? null);
  const [shown, setShown] = useState(PAGE);
  const rows = sorted(props.rows, sort === null ? undefined : props.columns[sort.column]?.order, sort?.descending ?? false);
  if (rows.length === 0) {
    return <p class="empty">{props.empty ?? "Nothing yet."}</p>;
  }
  return (
    <div class="scroll" role="region" aria-label={props.caption} tabIndex={0}>
      <table>
        <caption>{props.caption}</caption>
        <thead>
          <tr>
            {props.columns.map((column, index) => {
              const active = sort?.column === index;
              return (
                <th
                  key={column.title}
                  scope="col"
                  class={column.numeric ? "number" : ""}
                  aria-sort={active ? (sort.descending ? "descending" : "ascending") : undefined}
                >
                  {column.order === undefined ? (
                    column.title
                  ) : (
                    <button
                      type="button"
                      class="sort"
                      onClick={() => setSort({ column: index, descending: active ? !sort.descending : column.numeric === true })}
                    >
                      {column.title}
                      <span aria-hidden="true">{active ? (sort.descending ? " ▾" : " ▴") : ""}</span>
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((row) => {
            const key = props.rowKey(row);
            return (
              <tr key={key} class={props.current === key ? "current" : ""}>
                {props.columns.map((column) => (
                  <td key={column.title} class={column.numeric ? "number" : column.wraps ? "" : "short"}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
      {rows.length > shown ? (
        <button type="button" class="button" onClick={() => setShown(shown + PAGE)}>
          Show more: {count(shown)} of {count(rows.length)}
        </button>
      ) : null}
    </div>
  );
}

function sorted<R>(rows: readonly R[], order: Column<R>["order"], descending: boolean): R[] {
  const copy = [...rows];
  if (order === undefined) {
    return copy;
  }
  return copy.sort((a, b) => {
    const [left, right] = descending ? [order(b), order(a)] : [order(a), order(b)];
    if (left === right) {
      return 0;
    }
    if (left === null || right === null) {
      return left === null ? -1 : 1;
    }
    return left < right ? -1 : 1;
  });
}
