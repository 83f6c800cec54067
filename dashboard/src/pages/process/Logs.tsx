/** The log files of a process, and one of them. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { Empty, Select, Waiting } from "../../components/Basics";
import { LogView } from "../../components/LogView";
import { bytes } from "../../model/format";
import { usePoll } from "../../model/poll";
import type { LogFile } from "../../types";

export function Logs(props: {
  /** What tells this process from others. */
  id: string;
  list(signal: AbortSignal): Promise<LogFile[]>;
  load(name: string, signal: AbortSignal): Promise<string>;
  address(name: string): string;
}): JSX.Element {
  const { data, failed } = usePoll("List of logs", props.list, [props.id], "once");
  const [picked, setPicked] = useState<string | null>(null);
  if (data === undefined) {
    return <Waiting what="Asking for the logs" failed={failed} />;
  }
  const files = [...data].sort((a, b) => a.name.localeCompare(b.name));
  const current = files.find((file) => file.name === picked) ?? files.find((file) => file.name.endsWith(".log")) ?? files[0];
  if (current === undefined) {
    return <Empty>This process has written no log.</Empty>;
  }
  return (
    <>
      <div class="toolbar">
        <Select
          label="File"
          value={current.name}
          options={files.map((file) => [file.name, `${file.name} (${bytes(file.size)})`] as const)}
          onChange={setPicked}
        />
      </div>
      <LogView
        key={current.name}
        name={current.name}
        load={(signal) => props.load(current.name, signal)}
        keys={[props.id, current.name]}
        address={props.address(current.name)}
      />
    </>
  );
}
