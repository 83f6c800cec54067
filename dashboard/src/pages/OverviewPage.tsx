/** The cluster at a glance: jobs, slots, TaskManagers. */

import type { JSX } from "preact";
import { useContext } from "preact/hooks";

import * as api from "../api";
import { Figure, Panel, Share, Waiting } from "../components/Basics";
import { count } from "../model/format";
import { Cluster } from "../model/cluster";
import { usePoll } from "../model/poll";
import { link } from "../model/router";
import { isEnded, JobTable } from "./JobTable";

export function OverviewPage(): JSX.Element {
  const cluster = useContext(Cluster);
  const overview = usePoll("Overview", api.overview, []);
  const jobs = usePoll("Jobs", api.jobs, []);
  const figures = overview.data;
  const used = figures === undefined ? 0 : figures["slots-total"] - figures["slots-available"];
  return (
    <>
      <h1>Overview</h1>
      {figures === undefined ? (
        <Waiting what="Asking for the overview" failed={overview.failed} />
      ) : (
        <div class="figures">
          <Figure title="Running jobs" value={figures["jobs-running"]} />
          <Figure
            title="Ended jobs"
            value={figures["jobs-finished"] + figures["jobs-cancelled"] + figures["jobs-failed"]}
            detail={`${count(figures["jobs-finished"])} finished, ${count(figures["jobs-cancelled"])} canceled, ${count(figures["jobs-failed"])} failed`}
          />
          {cluster?.features["web-history"] === true ? null : (
            <>
              <div class="figure">
                <span class="figure-title">Slots in use</span>
                <span class="figure-value">
                  {count(used)} <small>of {count(figures["slots-total"])}</small>
                </span>
                <Share
                  value={figures["slots-total"] === 0 ? 0 : used / figures["slots-total"]}
                  label={`${used} of ${figures["slots-total"]} slots are in use`}
                />
              </div>
              <Figure
                title="TaskManagers"
                value={<a href={link(["task-manager"])}>{count(figures.taskmanagers)}</a>}
                {...(figures["taskmanagers-decommissioned"] === undefined ? {} : { detail: leavingText(figures["taskmanagers-decommissioned"]) })}
              />
            </>
          )}
        </div>
      )}
      {jobs.data === undefined ? (
        <Waiting what="Asking for the jobs" failed={jobs.failed} />
      ) : (
        <>
          <Panel title="Running">
            <JobTable caption="Jobs that run" jobs={jobs.data.filter((job) => !isEnded(job))} empty="No job runs. Start one with: headrace run program.py" />
          </Panel>
          <Panel title="Ended">
            <JobTable caption="Jobs that have ended" jobs={jobs.data.filter(isEnded)} empty="No job has ended yet." />
          </Panel>
        </>
      )}
    </>
  );
}

function leavingText(leaving: number): string {
  return `${count(leaving)} leaving: ${leaving === 1 ? "its executor is" : "their executors are"} decommissioned`;
}
