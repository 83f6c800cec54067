/** One job: its head with state and actions, and the tabs of its pages. */

import type { JSX } from "preact";
import { useContext, useEffect, useMemo } from "preact/hooks";

import * as api from "../../api";
import { State, Tabs, Waiting } from "../../components/Basics";
import { Cluster } from "../../model/cluster";
import { duration, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { VertexRates } from "../../model/VertexRates";
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
import { StatePage } from "./state/StatePage";

export interface JobProps {
  job: Job;
  route: Route;
  /** Rates from the totals of the job's answers so far. */
  rates: VertexRates;
}

const PAGES: readonly (readonly [string, string, (props: JobProps) => JSX.Element])[] = [
  ["overview", "Graph", GraphPage],
  ["slow", "Why is it slow?", SlownessPage],
  ["no-output", "Why is there no output?", SilencePage],
  ["checkpoints", "Checkpoints", CheckpointsPage],
  ["state", "State", StatePage],
  ["exceptions", "Exceptions", ExceptionsPage],
  ["metrics", "Metrics", JobMetricsPage],
  ["flame-graph", "Flame graphs", FlameGraphPage],
  ["configuration", "Configuration", ConfigurationPage],
];

/** Pages that an archive of a job cannot show: files of state are no part of it. */
const OF_CLUSTERS = ["state"];

export function JobPage({ route }: { route: Route }): JSX.Element {
  const cluster = useContext(Cluster);
  const jobid = route.parts[1] ?? "";
  const wanted = route.parts[2] ?? "overview";
  const { data: job, failed, reload } = usePoll("Job", (signal) => api.job(jobid, signal), [jobid]);
  const rates = useMemo(() => new VertexRates(), [jobid]);
  if (job !== undefined) {
    rates.observe(job);
  }
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
  const isHistory = cluster?.features["web-history"] === true;
  const pages = PAGES.filter(([each]) => !(isHistory && OF_CLUSTERS.includes(each)));
  const [id, , Page] = pages.find(([each]) => each === wanted) ?? (PAGES[0] as (typeof PAGES)[number]);
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
        tabs={pages.map(([each, title]) => ({ id: each, title, href: link(["job", jobid, each]) }))}
      />
      <Page key={id} job={job} route={route} rates={rates} />
    </>
  );
}
