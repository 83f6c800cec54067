/** The subtasks of a vertex: how they spend their time, what each received, attempts, watermarks, times of states. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import * as api from "../api";
import { Facts, Share, State, TimeBar, Waiting } from "../components/Basics";
import { DataTable } from "../components/DataTable";
import { Drawer } from "../components/Drawer";
import { bytes, count, duration, number, percent, time, watermark } from "../model/format";
import { inTurns } from "../model/Poller";
import { usePoll } from "../model/poll";
import { link } from "../model/router";
import { TASK_STATES, TERMINAL, type Attempt, type BackPressure, type Job, type SubtaskTimes } from "../types";

interface Row {
  attempt: Attempt;
  busy: number | null;
  backPressured: number | null;
  idle: number | null;
  watermark: number | null;
  share: number;
}

export function VertexDrawer(props: {
  job: Job;
  vertexId: string;
  /** The subtask of whose row it is about; null: of all alike. */
  subtask: string | null;
  hasTaskManagers: boolean;
  onClose(): void;
}): JSX.Element {
  const { job, vertexId } = props;
  const vertex = job.vertices.find((each) => each.id === vertexId);
  const ended = TERMINAL.includes(job.state);
  const polled = usePoll(
    "Subtasks",
    async (signal) => {
      const [details, times] = await Promise.all([
        api.vertex(job.jid, vertexId, signal),
        api.vertexSubtaskTimes(job.jid, vertexId, signal),
      ]);
      if (ended) {
        // An archive has no live figures.
        return { details, times, pressure: { status: "deprecated" } as BackPressure, watermarks: [] };
      }
      const [pressure, watermarks] = await Promise.all([
        api.vertexBackPressure(job.jid, vertexId, signal),
        api.vertexWatermarks(job.jid, vertexId, signal),
      ]);
      return { details, times, pressure, watermarks };
    },
    [job.jid, vertexId, ended],
    ended ? "once" : "interval",
  );
  const title = vertex?.name ?? vertexId;
  if (polled.data === undefined) {
    return (
      <Drawer title={title} onClose={props.onClose}>
        <Waiting what="Asking for the subtasks" failed={polled.failed} />
      </Drawer>
    );
  }
  const { details, pressure, times } = polled.data;
  const ratios = new Map((pressure.subtasks ?? []).map((each) => [each.subtask, each]));
  const marks = new Map(polled.data.watermarks.map((each) => [Number(each.id.split(".", 1)[0]), number(each.value)]));
  const received = details.subtasks.map((attempt) => attempt.metrics["read-records"] || attempt.metrics["write-records"]);
  const total = received.reduce((sum, each) => sum + each, 0);
  const rows = details.subtasks.map((attempt, index): Row => {
    const ratio = ratios.get(attempt.subtask);
    return {
      attempt,
      busy: number(ratio?.busyRatio),
      backPressured: ratio?.ratio ?? null,
      idle: ratio?.idleRatio ?? null,
      watermark: marks.get(attempt.subtask) ?? null,
      share: total === 0 ? 0 : (received[index] ?? 0) / total,
    };
  });
  const most = Math.max(0, ...rows.map((row) => row.share));
  return (
    <Drawer title={title} onClose={props.onClose}>
      <Facts
        rows={[
          ["state", <State state={vertex?.status ?? "CREATED"} />],
          ["parallelism", `${details.parallelism} of at most ${details.maxParallelism}`],
          ["back pressure", ended ? "ended" : (pressure.backpressureLevel ?? "not known yet")],
          ["records", total === 0 ? "none yet" : `${count(total)}; the fullest subtask has ${(most * rows.length).toFixed(1)} times its share`],
        ]}
      />
      <p>
        <a href={link(["job", job.jid, "metrics"], { vertex: vertexId })}>Metrics</a> ·{" "}
        <a href={link(["job", job.jid, "flame-graph"], { vertex: vertexId })}>Flame graph</a>
      </p>
      <DataTable
        caption="Subtasks"
        rows={rows}
        rowKey={(row) => String(row.attempt.subtask)}
        current={props.subtask}
        columns={[
          { title: "#", cell: (row) => row.attempt.subtask, order: (row) => row.attempt.subtask, numeric: true },
          { title: "state", cell: (row) => <State state={row.attempt.status} />, order: (row) => row.attempt.status },
          {
            title: "time",
            cell: (row) => <TimeBar busy={row.busy} backPressured={row.backPressured} idle={row.idle} />,
            order: (row) => row.busy,
          },
          {
            title: "share of records",
            cell: (row) => <Share value={most === 0 ? 0 : row.share / most} label={percent(row.share)} />,
            order: (row) => row.share,
          },
          { title: "received", cell: (row) => count(row.attempt.metrics["read-records"]), order: (row) => row.attempt.metrics["read-records"], numeric: true },
          { title: "sent", cell: (row) => count(row.attempt.metrics["write-records"]), order: (row) => row.attempt.metrics["write-records"], numeric: true },
          { title: "bytes in", cell: (row) => bytes(row.attempt.metrics["read-bytes"]), order: (row) => row.attempt.metrics["read-bytes"], numeric: true },
          { title: "watermark", cell: (row) => watermark(row.watermark), order: (row) => row.watermark },
          { title: "attempt", cell: (row) => attemptText(row.attempt), order: (row) => row.attempt.attempt, numeric: true },
          {
            title: "TaskManager",
            cell: (row) =>
              props.hasTaskManagers && row.attempt["taskmanager-id"] !== "" ? (
                <a href={link(["task-manager", row.attempt["taskmanager-id"]])}>{row.attempt.endpoint}</a>
              ) : (
                row.attempt.endpoint
              ),
            order: (row) => row.attempt.endpoint,
          },
          { title: "since", cell: (row) => time(row.attempt["start-time"]), order: (row) => row.attempt["start-time"] },
        ]}
      />
      <Times times={times} />
      {details.subtasks.some((each) => each.attempt > 0) ? (
        <Earlier jobid={job.jid} vertexId={vertexId} current={details.subtasks} />
      ) : null}
    </Drawer>
  );
}

function attemptText(attempt: Attempt): string {
  const others = attempt["other-concurrent-attempts"] ?? [];
  const beside = others.map((each) => each.attempt).join(", ");
  return others.length === 0 ? String(attempt.attempt) : `${attempt.attempt} (beside ${beside})`;
}

/** Earlier attempts that are asked for: the last ones of each subtask. */
const EARLIER_MAX = 60;

function Earlier(props: { jobid: string; vertexId: string; current: readonly Attempt[] }): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <details class="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Earlier attempts</summary>
      {open ? <EarlierTable {...props} /> : null}
    </details>
  );
}

function EarlierTable(props: { jobid: string; vertexId: string; current: readonly Attempt[] }): JSX.Element {
  const { jobid, vertexId } = props;
  const wanted = props.current
    .flatMap((each) => Array.from({ length: each.attempt }, (_, before) => ({ subtask: each.subtask, number: each.attempt - 1 - before, before })))
    .sort((a, b) => a.before - b.before)
    .slice(0, EARLIER_MAX);
  const polled = usePoll(
    "Earlier attempts",
    (signal) => inTurns(wanted, 4, (each) => api.attempt(jobid, vertexId, each.subtask, each.number, signal)),
    [jobid, vertexId, wanted.map((each) => `${each.subtask}.${each.number}`)],
    "once",
  );
  if (polled.data === undefined) {
    return <Waiting what="Asking for earlier attempts" failed={polled.failed} />;
  }
  return (
    <DataTable
      caption="Earlier attempts, those that are kept"
      rows={polled.data.filter((each) => each !== null)}
      rowKey={(row) => `${row.subtask}.${row.attempt}`}
      empty="None is kept."
      columns={[
        { title: "#", cell: (row) => row.subtask, order: (row) => row.subtask, numeric: true },
        { title: "attempt", cell: (row) => row.attempt, order: (row) => row.attempt, numeric: true },
        { title: "state", cell: (row) => <State state={row.status} />, order: (row) => row.status },
        { title: "TaskManager", cell: (row) => row.endpoint, order: (row) => row.endpoint },
        { title: "begun", cell: (row) => time(row["start-time"]), order: (row) => row["start-time"] },
        { title: "ended", cell: (row) => time(row["end-time"]), order: (row) => row["end-time"] },
        { title: "ran for", cell: (row) => duration(row.duration), order: (row) => row.duration, numeric: true },
      ]}
    />
  );
}

function Times({ times }: { times: SubtaskTimes }): JSX.Element {
  const states = TASK_STATES.filter((state) => times.subtasks.some((each) => (each.timestamps[state] ?? 0) > 0));
  return (
    <details class="fold">
      <summary>Times of states</summary>
      <DataTable
        caption="When each subtask entered each state"
        rows={times.subtasks}
        rowKey={(row) => String(row.subtask)}
        columns={[
          { title: "#", cell: (row) => row.subtask, order: (row) => row.subtask, numeric: true },
          ...states.map((state) => ({
            title: state,
            cell: (row: SubtaskTimes["subtasks"][0]) => time(row.timestamps[state]),
            order: (row: SubtaskTimes["subtasks"][0]) => row.timestamps[state] ?? 0,
          })),
          { title: "duration", cell: (row) => duration(row.duration), order: (row) => row.duration, numeric: true },
        ]}
      />
    </details>
  );
}
