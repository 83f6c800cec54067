/** Jobs that have ended, to search among thousands; each opens in the pages that running jobs have. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import * as api from "../api";
import { Panel, Search, Select, Waiting } from "../components/Basics";
import { usePoll } from "../model/poll";
import { TERMINAL } from "../types";
import { isEnded, JobTable } from "./JobTable";

export function EndedJobsPage(): JSX.Element {
  const [search, setSearch] = useState("");
  const [state, setState] = useState("all");
  const { data, failed } = usePoll("Jobs", api.jobs, []);
  const needle = search.toLowerCase();
  const found = (data ?? []).filter(
    (job) =>
      isEnded(job) && (state === "all" || job.state === state) && `${job.name} ${job.jid}`.toLowerCase().includes(needle),
  );
  return (
    <>
      <h1>Ended jobs</h1>
      <Panel title="Find a job">
        <div class="toolbar">
          <Search label="Name or id of a job" value={search} onChange={setSearch} />
          <Select
            label="State"
            value={state}
            options={[["all", "all"], ...TERMINAL.map((each) => [each, each] as const)]}
            onChange={setState}
          />
        </div>
        {data === undefined ? (
          <Waiting what="Asking for the jobs" failed={failed} />
        ) : (
          <JobTable caption="Jobs that have ended" jobs={found} empty="No ended job matches." />
        )}
      </Panel>
    </>
  );
}
