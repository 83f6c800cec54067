/** The settings of a job and what the job is. */

import type { JSX } from "preact";

import * as api from "../../api";
import { Facts, Panel, State, Waiting } from "../../components/Basics";
import { SettingsTable } from "../../components/SettingsTable";
import { duration, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import type { JobStatus, KeyValue } from "../../types";
import type { JobProps } from "./JobPage";

export function ConfigurationPage({ job }: JobProps): JSX.Element {
  const { data, failed } = usePoll("Configuration", (signal) => api.jobConfig(job.jid, signal), [job.jid], "once");
  const states = Object.entries(job.timestamps)
    .filter(([, at]) => at > 0)
    .sort(([, a], [, b]) => a - b);
  return (
    <>
      <Panel title="Execution">
        {data === undefined ? (
          <Waiting what="Asking for the configuration" failed={failed} />
        ) : (
          <Facts
            rows={[
              ["restart strategy", data["execution-config"]["restart-strategy"]],
              ["parallelism", String(data["execution-config"]["job-parallelism"])],
              ["maximum parallelism", job.maxParallelism > 0 ? String(job.maxParallelism) : "not set"],
              ["objects are reused", data["execution-config"]["object-reuse-mode"] ? "yes" : "no"],
              ["scheduler", job.schedulerType ?? "–"],
              ["duration", duration(job.duration)],
            ]}
          />
        )}
      </Panel>
      {data === undefined ? null : (
        <>
          <Panel title="Global job parameters">
            <SettingsTable
              caption="Parameters that the program gave the job for its functions"
              settings={pairsOf(data["execution-config"]["user-config"])}
            />
          </Panel>
          <Panel title="Settings">
            <SettingsTable caption="Settings of the job over those of its cluster, secrets masked" settings={pairsOf(data.settings)} />
          </Panel>
        </>
      )}
      <Panel title="States">
        <Facts rows={states.map(([state, at]) => [time(at), <State key={state} state={state as JobStatus} />] as const)} />
      </Panel>
    </>
  );
}

function pairsOf(settings: Readonly<Record<string, string>>): KeyValue[] {
  return Object.entries(settings).map(([key, value]) => ({ key, value: String(value) }));
}
