/** Failures of a job: the user's file and line first, the stack folded. */

import type { JSX } from "preact";

import * as api from "../../api";
import { Empty, Panel, Waiting } from "../../components/Basics";
import { plural, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { readTraceback, shortFile } from "../../model/traceback";
import type { ExceptionEntry } from "../../types";
import type { JobProps } from "./JobPage";

export function ExceptionsPage({ job }: JobProps): JSX.Element {
  const { data, failed } = usePoll("Exceptions", (signal) => api.jobExceptions(job.jid, signal), [job.jid]);
  if (data === undefined) {
    return <Waiting what="Asking for the exceptions" failed={failed} />;
  }
  const { entries, truncated } = data.exceptionHistory;
  return (
    <Panel title="Exceptions">
      {entries.length === 0 ? <Empty>Nothing has failed.</Empty> : null}
      <ol class="exceptions">
        {entries.map((entry, index) => (
          <li key={index}>
            <Failure entry={entry} open={index === 0} />
          </li>
        ))}
      </ol>
      {truncated ? <p class="quiet-text">Earlier ones are not kept (web.exception-history-size).</p> : null}
    </Panel>
  );
}

function Failure({ entry, open }: { entry: ExceptionEntry; open: boolean }): JSX.Element {
  const traceback = readTraceback(entry.stacktrace);
  const others = entry.concurrentExceptions ?? [];
  return (
    <article class="failure">
      <p class="failure-message">{traceback.message === "" ? entry.exceptionName : traceback.message}</p>
      {traceback.user === null ? null : (
        <div class="user-line">
          <p>
            <strong title={traceback.user.file}>
              {shortFile(traceback.user.file)}, line {traceback.user.line}
            </strong>
            {traceback.user.name === "" ? "" : ` in ${traceback.user.name}`}
          </p>
          {traceback.user.source === "" ? null : <pre>{traceback.user.source}</pre>}
        </div>
      )}
      <p class="quiet-text">
        {time(entry.timestamp)}
        {entry.taskName === undefined || entry.taskName === null ? " · the whole job" : ` · ${entry.taskName}`}
        {entry.endpoint === undefined || entry.endpoint === null ? "" : ` · ${entry.endpoint}`}
      </p>
      <details class="fold" open={open && traceback.user === null}>
        <summary>Stack{traceback.frames.length > 0 ? ` of ${plural(traceback.frames.length, "frame")}` : ""}</summary>
        <pre class="stack" tabIndex={0}>
          {entry.stacktrace}
        </pre>
      </details>
      {others.length === 0 ? null : (
        <details class="fold">
          <summary>{plural(others.length, "other exception")} at the same time</summary>
          {others.map((other, index) => (
            <Failure key={index} entry={other} open={false} />
          ))}
        </details>
      )}
    </article>
  );
}
