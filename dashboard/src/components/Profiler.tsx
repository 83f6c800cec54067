/** Profiles of a process: take one, see the newest, open the flame graph of each. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { orNull } from "../api";
import { messageOf } from "../model/errors";
import { duration, time } from "../model/format";
import { notices } from "../model/Notices";
import { unknownBecause } from "../model/operations";
import { usePoll } from "../model/poll";
import { PROFILING_MODES, type Profiling, type ProfilingMode } from "../types";
import { Empty, Waiting } from "./Basics";
import { DataTable } from "./DataTable";

const EXPLANATIONS: Record<ProfilingMode, string> = {
  CPU: "what computes",
  WALL: "all threads, also those that wait",
  ALLOC: "memory that is taken and kept meanwhile; slows the process down",
};

export function Profiler(props: {
  keys: readonly unknown[];
  list(signal: AbortSignal): Promise<Profiling[]>;
  start(mode: ProfilingMode, seconds: number): Promise<Profiling>;
  address(filename: string): string;
}): JSX.Element {
  const [mode, setMode] = useState<ProfilingMode>("CPU");
  const [seconds, setSeconds] = useState(10);
  const { data, failed, reload } = usePoll("Profiles", (signal) => orNull(props.list(signal)), props.keys);
  if (data === undefined) {
    return <Waiting what="Asking for the profiles" failed={failed} />;
  }
  if (data === null) {
    return (
      <Empty>
        The profiler is off. It shows names of functions and lines of all that runs in a process: start the cluster with{" "}
        <code>-D rest.profiling.enabled=true</code>. Flame graphs of a job's vertices are there without it.
      </Empty>
    );
  }
  const start = async (): Promise<void> => {
    try {
      await props.start(mode, seconds);
    } catch (error) {
      const why = unknownBecause(error);
      if (why === null) {
        notices.tell("error", "No profile has been started", messageOf(error));
      } else {
        notices.tell("pending", "It is not known whether a profile has been started", why);
      }
    }
    reload();
  };
  return (
    <div>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <label>
          Mode{" "}
          <select value={mode} onChange={(event) => setMode(event.currentTarget.value as ProfilingMode)}>
            {PROFILING_MODES.map((each) => (
              <option key={each} value={each}>
                {each}: {EXPLANATIONS[each]}
              </option>
            ))}
          </select>
        </label>
        <label>
          Seconds <input type="number" min={1} value={seconds} onInput={(event) => setSeconds(event.currentTarget.valueAsNumber)} />
        </label>
        <button type="submit" class="button" disabled={data.some((each) => each.status === "RUNNING")}>
          Take a profile
        </button>
      </form>
      <DataTable
        caption="Newest profiles"
        rows={data}
        rowKey={(row) => String(row.triggerTime)}
        empty="No profile yet."
        columns={[
          { title: "begun", cell: (row) => time(row.triggerTime), order: (row) => row.triggerTime },
          { title: "mode", cell: (row) => row.mode, order: (row) => row.mode },
          { title: "length", cell: (row) => duration(row.duration * 1000), order: (row) => row.duration, numeric: true },
          { title: "status", cell: (row) => (row.status === "FAILED" ? `FAILED: ${row.message ?? ""}` : row.status), order: (row) => row.status },
          {
            title: "flame graph",
            cell: (row) =>
              row.outputFile === null ? (
                ""
              ) : (
                <a href={props.address(row.outputFile)} target="_blank" rel="noreferrer">
                  open
                </a>
              ),
            order: (row) => row.outputFile ?? "",
          },
        ]}
      />
    </div>
  );
}
