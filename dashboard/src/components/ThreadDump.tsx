/** The stacks of a process's threads, with search. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { plural } from "../model/format";
import { usePoll } from "../model/poll";
import type { ThreadInfo } from "../types";
import { Search, Waiting } from "./Basics";

export function ThreadDump(props: { load(signal: AbortSignal): Promise<ThreadInfo[]>; keys: readonly unknown[] }): JSX.Element {
  const [search, setSearch] = useState("");
  const { data, failed, reload } = usePoll("Thread dump", props.load, props.keys, "once");
  if (data === undefined) {
    return <Waiting what="Asking for the threads" failed={failed} />;
  }
  const needle = search.toLowerCase();
  const found = data.filter((thread) => `${thread.threadName}\n${thread.stringifiedThreadInfo}`.toLowerCase().includes(needle));
  return (
    <div>
      <div class="toolbar">
        <Search label="Search in the threads" value={search} onChange={setSearch} />
        <span class="quiet-text" role="status">
          {plural(found.length, "thread")}
        </span>
        <button type="button" class="button" onClick={reload}>
          Take another
        </button>
      </div>
      {found.map((thread, index) => (
        <details key={`${thread.threadName}-${index}`} class="fold" open={found.length <= 5}>
          <summary>{thread.threadName}</summary>
          <pre class="stack">{thread.stringifiedThreadInfo}</pre>
        </details>
      ))}
    </div>
  );
}
