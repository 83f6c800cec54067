/** One TaskManager: memory by part, slots, metrics, logs, stdout, threads, profiles. */

import type { JSX } from "preact";

import * as api from "../../api";
import { MetricCharts } from "../../charts/MetricCharts";
import { Facts, Panel, Share, Tabs, Waiting } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { Profiler } from "../../components/Profiler";
import { ThreadDump } from "../../components/ThreadDump";
import { bytes, count, duration, percent } from "../../model/format";
import { usePoll } from "../../model/poll";
import { link, type Route } from "../../model/router";
import type { MemoryConfiguration, TaskManagerDetails } from "../../types";
import { singleValues } from "../job/JobMetricsPage";
import { Logs } from "./Logs";
import { Stdout } from "./Stdout";
import { LastHeartbeat, Leaving } from "./TaskManagersPage";

const TABS = [
  ["overview", "Memory and slots"],
  ["metrics", "Metrics"],
  ["logs", "Logs"],
  ["stdout", "Stdout"],
  ["thread-dump", "Threads"],
  ["profiler", "Profiler"],
] as const;

const DEFAULTS = ["Status.JVM.CPU.Load", "Status.JVM.Memory.Heap.Used", "Status.Flink.Memory.Managed.Used", "Status.Shuffle.Netty.UsedMemory"];

export function TaskManagerPage({ route }: { route: Route }): JSX.Element {
  const id = route.parts[1] ?? "";
  const current = TABS.find(([each]) => each === route.parts[2])?.[0] ?? "overview";
  return (
    <>
      <p>
        <a href={link(["task-manager"])}>TaskManagers</a>
      </p>
      <h1>{id}</h1>
      <Tabs
        label="Pages of the TaskManager"
        current={current}
        tabs={TABS.map(([each, title]) => ({ id: each, title, href: link(["task-manager", id, each]) }))}
      />
      <Page key={`${id} ${current}`} id={id} tab={current} />
    </>
  );
}

function Page({ id, tab }: { id: string; tab: (typeof TABS)[number][0] }): JSX.Element {
  switch (tab) {
    case "overview":
      return <Overview id={id} />;
    case "metrics":
      return (
        <Panel title="Metrics">
          <MetricCharts
            kind="taskmanager"
            keys={[id]}
            defaults={DEFAULTS}
            names={async (signal) => (await api.taskManagerMetrics(id, undefined, signal)).map((metric) => metric.id)}
            values={async (names, signal) => singleValues(await api.taskManagerMetrics(id, names, signal))}
          />
        </Panel>
      );
    case "logs":
      return (
        <Panel title="Logs">
          <Logs
            id={id}
            list={(signal) => api.taskManagerLogs(id, signal)}
            load={(name, signal) => api.taskManagerLog(id, name, signal)}
            address={(filename) => api.addressOf(api.ROUTES.taskManagerLog, { taskmanagerid: id, filename })}
          />
        </Panel>
      );
    case "stdout":
      return (
        <Panel title="Stdout">
          <Stdout
            id={id}
            list={(signal) => api.taskManagerLogs(id, signal)}
            load={(signal) => api.taskManagerStdout(id, signal)}
            address={api.addressOf(api.ROUTES.taskManagerStdout, { taskmanagerid: id })}
          />
        </Panel>
      );
    case "thread-dump":
      return (
        <Panel title="Threads">
          <ThreadDump load={(signal) => api.taskManagerThreadDump(id, signal)} keys={[id]} />
        </Panel>
      );
    case "profiler":
      return (
        <Panel title="Profiler">
          <Profiler
            keys={[id]}
            list={(signal) => api.taskManagerProfiles(id, signal)}
            start={(mode, seconds) => api.profileTaskManager(id, mode, seconds)}
            address={(filename) => api.addressOf(api.ROUTES.taskManagerProfile, { taskmanagerid: id, filename })}
          />
        </Panel>
      );
  }
}

function Overview({ id }: { id: string }): JSX.Element {
  const { data, failed } = usePoll("TaskManager", (signal) => api.taskManager(id, signal), [id]);
  if (data === undefined) {
    return <Waiting what="Asking for the TaskManager" failed={failed} />;
  }
  const { metrics } = data;
  return (
    <>
      <Panel title="Process">
        <Leaving of={data} />
        <Facts
          rows={[
            ["address", data.path],
            ["data port", String(data.dataPort)],
            ["last heartbeat", <LastHeartbeat of={data} />],
            ["cores", count(data.hardware.cpuCores)],
            ["memory of the host", bytes(data.hardware.physicalMemory)],
            ["free there", bytes(data.hardware.freeMemory)],
          ]}
        />
      </Panel>
      <Panel title="Memory by part">
        <MemoryBar memory={data.memoryConfiguration} />
        <Facts
          rows={[
            ["process", <Used used={metrics.heapUsed} total={metrics.heapMax} />],
            ["network", <Used used={metrics.nettyShuffleMemoryUsed} total={metrics.nettyShuffleMemoryTotal} />],
          ]}
        />
        <DataTable
          caption="Garbage collection"
          rows={metrics.garbageCollectors}
          rowKey={(row) => row.name}
          columns={[
            { title: "collector", cell: (row) => row.name, order: (row) => row.name },
            { title: "collections", cell: (row) => count(row.count), order: (row) => row.count, numeric: true },
            { title: "time", cell: (row) => duration(row.time), order: (row) => row.time, numeric: true },
          ]}
        />
      </Panel>
      <Panel title="Slots">
        <p>
          {count(data.slotsNumber - data.freeSlots)} of {count(data.slotsNumber)} slots are in use.
        </p>
        <Slots details={data} />
      </Panel>
    </>
  );
}

const PARTS: readonly (readonly [keyof MemoryConfiguration, string])[] = [
  ["frameworkHeap", "runtime"],
  ["taskHeap", "user code"],
  ["frameworkOffHeap", "runtime, outside the heap"],
  ["taskOffHeap", "user code, outside the heap"],
  ["networkMemory", "network"],
  ["managedMemory", "managed (state)"],
  ["jvmOverhead", "overhead"],
];

function MemoryBar({ memory }: { memory: MemoryConfiguration }): JSX.Element {
  const parts = PARTS.map(([key, title], index) => ({ title, index, size: Math.max(0, memory[key] ?? 0) })).filter((part) => part.size > 0);
  const total = parts.reduce((sum, part) => sum + part.size, 0);
  if (total === 0) {
    return <p class="empty">No budget of memory is set.</p>;
  }
  const text = parts.map((part) => `${part.title} ${bytes(part.size)}`).join(", ");
  return (
    <>
      <div class="memory-bar" role="img" aria-label={`Budget of ${bytes(total)}: ${text}`}>
        {parts.map((part) => (
          <span key={part.title} class={`series-${part.index}`} style={{ width: `${(part.size / total) * 100}%` }} title={`${part.title} ${bytes(part.size)}`} />
        ))}
      </div>
      <ul class="legend">
        {parts.map((part) => (
          <li key={part.title}>
            <span class={`swatch series-${part.index}`} aria-hidden="true" />
            {part.title} <strong>{bytes(part.size)}</strong>
          </li>
        ))}
      </ul>
    </>
  );
}

function Used({ used, total }: { used: number; total: number }): JSX.Element {
  return total > 0 ? (
    <>
      {bytes(used)} of {bytes(total)} ({percent(used / total)}) <Share value={used / total} label={percent(used / total)} />
    </>
  ) : (
    <>{bytes(used)}</>
  );
}

function Slots({ details }: { details: TaskManagerDetails }): JSX.Element {
  return (
    <DataTable
      caption="Allocated slots"
      rows={details.allocatedSlots.map((slot, index) => ({ ...slot, index }))}
      rowKey={(row) => String(row.index)}
      empty="No slot is allocated."
      columns={[
        { title: "job", cell: (row) => <a href={link(["job", row.jobId, "overview"])}>{row.jobId}</a>, order: (row) => row.jobId },
        { title: "cores", cell: (row) => row.resource.cpuCores, order: (row) => row.resource.cpuCores, numeric: true },
        { title: "managed memory", cell: (row) => `${count(row.resource.managedMemory)} MB`, order: (row) => row.resource.managedMemory, numeric: true },
        { title: "network memory", cell: (row) => `${count(row.resource.networkMemory)} MB`, order: (row) => row.resource.networkMemory, numeric: true },
      ]}
    />
  );
}
