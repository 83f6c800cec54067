/** The driver process: metrics, configuration, environment, logs, stdout, threads, profiles. */

import type { JSX } from "preact";

import * as api from "../../api";
import { MetricCharts } from "../../charts/MetricCharts";
import { Facts, Panel, Tabs, Waiting } from "../../components/Basics";
import { Profiler } from "../../components/Profiler";
import { SettingsTable } from "../../components/SettingsTable";
import { ThreadDump } from "../../components/ThreadDump";
import { usePoll } from "../../model/poll";
import { link, type Route } from "../../model/router";
import { singleValues } from "../job/JobMetricsPage";
import { Logs } from "./Logs";
import { Stdout } from "./Stdout";

const TABS = [
  ["metrics", "Metrics"],
  ["configuration", "Configuration"],
  ["logs", "Logs"],
  ["stdout", "Stdout"],
  ["thread-dump", "Threads"],
  ["profiler", "Profiler"],
] as const;

const DEFAULTS = ["Status.JVM.CPU.Load", "Status.JVM.Memory.Heap.Used", "Status.JVM.Threads.Count", "taskSlotsAvailable"];

export function JobManagerPage({ route }: { route: Route }): JSX.Element {
  const current = TABS.find(([id]) => id === route.parts[1])?.[0] ?? "metrics";
  return (
    <>
      <h1>JobManager</h1>
      <Tabs label="Pages of the JobManager" current={current} tabs={TABS.map(([id, title]) => ({ id, title, href: link(["job-manager", id]) }))} />
      <Page key={current} tab={current} />
    </>
  );
}

function Page({ tab }: { tab: (typeof TABS)[number][0] }): JSX.Element {
  switch (tab) {
    case "metrics":
      return (
        <Panel title="Metrics">
          <MetricCharts
            kind="jobmanager"
            keys={[]}
            defaults={DEFAULTS}
            names={async (signal) => (await api.jobManagerMetrics(undefined, signal)).map((metric) => metric.id)}
            values={async (names, signal) => singleValues(await api.jobManagerMetrics(names, signal))}
          />
        </Panel>
      );
    case "configuration":
      return <Configuration />;
    case "logs":
      return (
        <Panel title="Logs">
          <Logs
            id="jobmanager"
            list={api.jobManagerLogs}
            load={api.jobManagerLog}
            address={(filename) => api.addressOf(api.ROUTES.jobManagerLog, { filename })}
          />
        </Panel>
      );
    case "stdout":
      return (
        <Panel title="Stdout">
          <Stdout
            id="the JobManager"
            list={api.jobManagerLogs}
            load={api.jobManagerStdout}
            address={api.addressOf(api.ROUTES.jobManagerStdout)}
          />
        </Panel>
      );
    case "thread-dump":
      return (
        <Panel title="Threads">
          <ThreadDump load={api.jobManagerThreadDump} keys={["jobmanager"]} />
        </Panel>
      );
    case "profiler":
      return (
        <Panel title="Profiler">
          <Profiler
            keys={["jobmanager"]}
            list={api.jobManagerProfiles}
            start={api.profileJobManager}
            address={(filename) => api.addressOf(api.ROUTES.jobManagerProfile, { filename })}
          />
        </Panel>
      );
  }
}

function Configuration(): JSX.Element {
  const settings = usePoll("Configuration", api.jobManagerConfig, [], "once");
  const environment = usePoll("Environment", api.jobManagerEnvironment, [], "once");
  return (
    <>
      <Panel title="Configuration">
        {settings.data === undefined ? (
          <Waiting what="Asking for the configuration" failed={settings.failed} />
        ) : (
          <SettingsTable caption="Settings of the cluster, secrets masked" settings={settings.data} />
        )}
      </Panel>
      <Panel title="Environment">
        {environment.data === undefined ? (
          <Waiting what="Asking for the environment" failed={environment.failed} />
        ) : (
          <>
            <Facts
              rows={[
                ["interpreter", environment.data.jvm.version],
                ["architecture", environment.data.jvm.arch],
                ["options", environment.data.jvm.options.join(" ") || "none"],
              ]}
            />
            <details class="fold">
              <summary>Module path</summary>
              <ul class="plain">
                {environment.data.classpath.map((each) => (
                  <li key={each}>
                    <code>{each}</code>
                  </li>
                ))}
              </ul>
            </details>
          </>
        )}
      </Panel>
    </>
  );
}
