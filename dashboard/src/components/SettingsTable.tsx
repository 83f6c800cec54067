/** Keys and values, with search. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import type { KeyValue } from "../types";
import { Search } from "./Basics";
import { DataTable } from "./DataTable";

export function SettingsTable({ caption, settings }: { caption: string; settings: readonly KeyValue[] }): JSX.Element {
  const [search, setSearch] = useState("");
  const needle = search.toLowerCase();
  const found = settings.filter((each) => `${each.key} ${each.value}`.toLowerCase().includes(needle));
  return (
    <div>
      {settings.length < 8 ? null : (
        <div class="toolbar">
          <Search label="Search in settings" value={search} onChange={setSearch} />
        </div>
      )}
      <DataTable
        caption={caption}
        rows={found}
        rowKey={(each) => each.key}
        sort={{ column: 0, descending: false }}
        empty={settings.length === 0 ? "None is set." : "No setting matches."}
        columns={[
          { title: "key", wraps: true, cell: (each) => <code>{each.key}</code>, order: (each) => each.key },
          { title: "value", wraps: true, cell: (each) => <code class="value">{each.value}</code>, order: (each) => each.value },
        ]}
      />
    </div>
  );
}
