/** Jobs in a table: of the overview and of the history. */

import type { JSX } from "preact";

import { State } from "../components/Basics";
import { DataTable } from "../components/DataTable";
import { duration, time } from "../model/format";
import { link } from "../model/router";
import { TERMINAL, type JobDetails } from "../types";

const SHOWN_STATES = ["running", "finished", "failed", "canceled", "initializing", "deploying", "scheduled", "created"];

export function JobTable(props: { caption: string; jobs: readonly JobDetails[]; empty: string }): JSX.Element {
  return (
    <DataTable
      caption={props.caption}
      rows={props.jobs}
      rowKey={(job) => job.jid}
      sort={{ column: 1, descending: true }}
      empty={props.empty}
      columns={[
        {
          title: "job", wraps: true,
          cell: (job) => (
            <a href={link(["job", job.jid, "overview"])}>
              <strong>{job.name}</strong> <span class="quiet-text">{job.jid.slice(0, 8)}</span>
            </a>
          ),
          order: (job) => job.name,
        },
        { title: "begun", cell: (job) => time(job["start-time"]), order: (job) => job["start-time"] },
        { title: "ran for", cell: (job) => duration(job.duration), order: (job) => job.duration, numeric: true },
        { title: "ended", cell: (job) => time(job["end-time"]), order: (job) => job["end-time"] },
        { title: "tasks", cell: (job) => tasksText(job), order: (job) => job.tasks["total"] ?? 0 },
        { title: "state", cell: (job) => <State state={job.state} />, order: (job) => job.state },
      ]}
    />
  );
}

export function isEnded(job: JobDetails): boolean {
  return TERMINAL.includes(job.state);
}

function tasksText(job: JobDetails): string {
  const parts = SHOWN_STATES.filter((state) => (job.tasks[state] ?? 0) > 0).map((state) => `${job.tasks[state]} ${state}`);
  return parts.length === 0 ? "–" : parts.join(", ");
}
