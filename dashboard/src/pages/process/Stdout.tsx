/** What the program printed in a process; one that has printed nothing need not have a file. */

import type { JSX } from "preact";

import { Empty, Waiting } from "../../components/Basics";
import { LogView } from "../../components/LogView";
import { usePoll } from "../../model/poll";
import type { LogFile } from "../../types";

export function Stdout(props: {
  /** What tells this process from others. */
  id: string;
  list(signal: AbortSignal): Promise<LogFile[]>;
  load(signal: AbortSignal): Promise<string>;
  address: string;
}): JSX.Element {
  const { data, failed } = usePoll("List of logs", props.list, [props.id, "stdout"], "once");
  if (data === undefined) {
    return <Waiting what="Asking for the logs" failed={failed} />;
  }
  if (!data.some((file) => file.name.endsWith(".out"))) {
    return <Empty>The program has printed nothing here.</Empty>;
  }
  return <LogView name={`stdout of ${props.id}`} load={props.load} keys={[props.id]} address={props.address} />;
}
