/** The end of a log, with search; follows it while the reader wants that. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { bytes, plural } from "../model/format";
import { usePoll } from "../model/poll";
import { Search, Waiting } from "./Basics";

/** Lines that are drawn: a browser scrolls so many without delay. */
const LINES_MAX = 3_000;

export function LogView(props: {
  name: string;
  load(signal: AbortSignal): Promise<string>;
  /** What `load` depends on. */
  keys: readonly unknown[];
  /** The address of the whole file. */
  address: string;
}): JSX.Element {
  const [follow, setFollow] = useState(true);
  const [search, setSearch] = useState("");
  const [only, setOnly] = useState(true);
  const box = useRef<HTMLPreElement>(null);
  const polled = usePoll(props.name, props.load, [...props.keys, follow], follow ? "interval" : "once");
  const [text, setText] = useState<string | undefined>(undefined);
  useEffect(() => {
    if (polled.data !== undefined) {
      setText(polled.data); // Kept while following is turned on or off.
    }
  }, [polled.data]);
  const needle = search.toLowerCase();
  const { lines, matches } = useMemo(() => {
    const all = (text ?? "").split("\n");
    const found = needle === "" ? [] : all.filter((line) => line.toLowerCase().includes(needle));
    return { lines: (needle !== "" && only ? found : all).slice(-LINES_MAX), matches: found.length };
  }, [text, needle, only]);
  useEffect(() => {
    if (follow && box.current !== null) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [lines, follow]);
  return (
    <div>
      <div class="toolbar">
        <Search label="Search in the log" value={search} onChange={setSearch} />
        <label class="check">
          <input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} />
          matching lines only
        </label>
        <label class="check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
          follow
        </label>
        <span class="quiet-text" role="status">
          {needle === "" ? `the last ${bytes((text ?? "").length)}` : plural(matches, "matching line")}
        </span>
        <a class="button" href={props.address} download={props.name}>
          Whole file
        </a>
      </div>
      {text === undefined ? (
        <Waiting what={`Reading ${props.name}`} failed={polled.failed} />
      ) : text === "" ? (
        <p class="empty">It is empty.</p>
      ) : (
        <pre ref={box} class="log" tabIndex={0} aria-label={props.name}>
          {lines.map((line, index) => (
            <div key={index} class={levelOf(line)}>
              {marked(line, needle)}
            </div>
          ))}
        </pre>
      )}
    </div>
  );
}

function levelOf(line: string): string {
  if (/\b(ERROR|CRITICAL|FATAL)\b/.test(line)) {
    return "line error";
  }
  return /\bWARN(ING)?\b/.test(line) ? "line warning" : "line";
}

function marked(line: string, needle: string): (string | JSX.Element)[] {
  if (needle === "") {
    return [line === "" ? " " : line];
  }
  const parts: (string | JSX.Element)[] = [];
  const lower = line.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0 && parts.length < 100; at = lower.indexOf(needle, from)) {
    parts.push(line.slice(from, at), <mark>{line.slice(at, at + needle.length)}</mark>);
    from = at + needle.length;
  }
  parts.push(line.slice(from));
  return parts;
}
