/** One job: its head with state and actions, and the tabs of its pages. */

import type { JSX } from "preact";
import { useContext, useEffect } from "preact/hooks";

import * as api from "../../api";
import { State, Tabs, Waiting } from "../../components/Basics";
import { Cluster } from "../../model/cluster";
import { duration, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { link, type Route } from "../../model/router";
import { TERMINAL, type Job } from "../../types";
import { CheckpointsPage } from "./CheckpointsPage";
import { ConfigurationPage } from "./ConfigurationPage";
import { ExceptionsPage } from "./ExceptionsPage";
import { FlameGraphPage } from "./FlameGraphPage";
import { GraphPage } from "./GraphPage";
import { JobActions } from "./JobActions";
import { JobMetricsPage } from "./JobMetricsPage";
import { SilencePage } from "./SilencePage";
import { SlownessPage } from "./SlownessPage";

export interface JobProps {
  job: Job;
  route: Route;
}

const PAGES: readonly (readonly [string, string, (props: JobProps) => JSX.Element])[] = [
  ["overview", "Graph", GraphPage],
  ["slow", "Why is it slow?", SlownessPage],
  ["no-output", "Why is there no output?", SilencePage],
  ["checkpoints", "Checkpoints", CheckpointsPage],
  ["exceptions", "Exceptions", ExceptionsPage],
  ["metrics", "Metrics", JobMetricsPage],
  ["flame-graph", "Flame graphs", FlameGraphPage],
  ["configuration", "Configuration", ConfigurationPage],
];

export function JobPage({ route }: { route: Route }): JSX.Element {
  const cluster = useContext(Cluster);
  const jobid = route.parts[1] ?? "";
  const wanted = route.parts[2] ?? "overview";
  const { data: job, failed, reload } = usePoll("Job", (signal) => api.job(jobid, signal), [jobid]);
  useEffect(() => {
    document.title = job === undefined ? "Headrace" : `${job.name} – Headrace`;
  }, [job?.name]);
  if (job === undefined) {
    return (
      <>
        <h1>Job {jobid}</h1>
        <Waiting what="Asking for the job" failed={failed} />
      </>
    );
  }
  const [id, , Page] = PAGES.find(([each]) => each === wanted) ?? (PAGES[0] as (typeof PAGES)[number]);
  const ended = TERMINAL.includes(job.state);
  return (
    <>
      <div class="job-head">
        <h1>{job.name}</h1>
        <State state={job.state} />
        <span class="quiet-text">
          {job.jid} · begun {time(job["start-time"])} · {ended ? `ended ${time(job["end-time"])}, ran` : "runs"} for {duration(job.duration)}
          {job["job-type"] === undefined ? "" : ` · ${job["job-type"].toLowerCase()}`}
        </span>
        {ended || cluster?.features["web-cancel"] !== true ? null : <JobActions job={job} onDone={reload} />}
      </div>
      <Tabs
        label="Pages of the job"
        current={id}
        tabs={PAGES.map(([each, title]) => ({ id: each, title, href: link(["job", jobid, each]) }))}
      />
      <Page key={id} job={job} route={route} />
    </>
  );
}
