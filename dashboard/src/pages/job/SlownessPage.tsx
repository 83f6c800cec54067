/** Why is it slow: the bottleneck, named, with its evidence. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";

import * as api from "../../api";
import { Panel, Share, TimeBar, Waiting } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { findSlowness, isKeyed, skewOf, type SlownessFacts } from "../../diagnosis/slowness";
import { count, percent } from "../../model/format";
import { loadGc, loadLive, loadPhases, loadSamples, vertexFacts, withSubtasks } from "../../model/jobFacts";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import { useMetricsHistory } from "../../model/useMetricsHistory";
import type { Job } from "../../types";
import type { VertexRates } from "../../model/VertexRates";
import type { JobProps } from "./JobPage";
import { LargestKeys } from "./LargestKeys";
import { runningKey } from "./useLive";

async function load(job: Job, rates: VertexRates, signal: AbortSignal): Promise<Omit<SlownessFacts, "history" | "samples">> {
  const facts = { state: job.state, now: job.now, timestamps: job.timestamps };
  if (job.state !== "RUNNING") {
    return { ...facts, vertices: vertexFacts(job, new Map()), gcMsPerSecond: {}, checkpointPhases: [] };
  }
  const vertices = await withSubtasks(job, vertexFacts(job, await loadLive(job, rates, signal)), signal);
  const suspects = vertices.filter((vertex) => vertex.subtasks.length > 0).map((vertex) => vertex.id);
  const statistics = await api.checkpoints(job.jid, signal);
  return {
    ...facts,
    vertices,
    gcMsPerSecond: await loadGc(vertices, signal),
    checkpointPhases: await loadPhases(job.jid, statistics, suspects, signal),
  };
}

export function SlownessPage({ job, rates }: JobProps): JSX.Element {
  const latest = useRef(job);
  latest.current = job;
  const polled = usePoll("Diagnosis", (signal) => load(latest.current, rates, signal), [job.jid, job.state, runningKey(job)]);
  const history = useMetricsHistory(job).data ?? null;
  const facts = polled.data;
  // Samples do not change which vertex is found, only what is said of it.
  const suspect = facts === undefined ? null : findSlowness({ ...facts, history: null, samples: null });
  const place = suspect === null || suspect.vertexId === null ? null : { vertexId: suspect.vertexId, subtask: suspect.subtask ?? undefined };
  const samples = usePoll(
    "Samples of its time",
    (signal) => (place === null ? Promise.resolve(null) : loadSamples(job.jid, place.vertexId, place.subtask, signal)),
    [job.jid, place?.vertexId, place?.subtask],
  ).data;
  if (facts === undefined) {
    return <Waiting what="Looking at every vertex" failed={polled.failed} />;
  }
  const found = findSlowness({ ...facts, history, samples: samples ?? null });
  const vertex = facts.vertices.find((each) => each.id === found.vertexId);
  const most = Math.max(1, ...(vertex?.subtasks ?? []).map((each) => each.readRecords));
  return (
    <>
      <Panel title="Why is it slow?" class={`verdict ${found.verdict}`}>
        <p class="headline" role="status">
          {found.headline}
        </p>
        {vertex === undefined ? null : (
          <p class="actions">
            <a class="button" href={link(["job", job.jid, "overview"], { vertex: vertex.id, subtask: found.subtask ?? undefined })}>
              Its subtasks
            </a>
            <a
              class="button"
              href={link(["job", job.jid, "flame-graph"], {
                vertex: vertex.id,
                type: found.computes === null ? "FULL" : found.computes ? "ON_CPU" : "OFF_CPU",
                subtask: found.subtask ?? undefined,
              })}
            >
              Its flame graph
            </a>
          </p>
        )}
        {found.evidence.length === 0 ? null : <h3>What shows it</h3>}
        <ul class="evidence">
          {found.evidence.map((each, index) => (
            <li key={index}>
              {each.text}
            </li>
          ))}
        </ul>
        {found.advice.length === 0 ? null : <h3>What helps</h3>}
        <ul>
          {found.advice.map((each, index) => (
            <li key={index}>{each}</li>
          ))}
        </ul>
      </Panel>
      {vertex === undefined || !isKeyed(vertex) || (found.subtask === null && skewOf(vertex) === null) ? null : <LargestKeys job={job} vertex={vertex} />}
      {vertex === undefined || vertex.subtasks.length < 2 ? null : (
        <Panel title="Its subtasks">
          <DataTable
            caption={`Subtasks of ${vertex.name}, the busiest first`}
            rows={vertex.subtasks}
            rowKey={(row) => String(row.index)}
            sort={{ column: 1, descending: true }}
            columns={[
              { title: "#", cell: (row) => row.index, order: (row) => row.index, numeric: true },
              {
                title: "busy",
                cell: (row) => percent(row.busy),
                order: (row) => row.busy,
                numeric: true,
              },
              { title: "time", cell: (row) => <TimeBar busy={row.busy} backPressured={row.backPressured} idle={row.idle} /> },
              {
                title: "received",
                cell: (row) => <Share value={row.readRecords / most} label={`${count(row.readRecords)} records`} />,
                order: (row) => row.readRecords,
              },
              { title: "records", cell: (row) => count(row.readRecords), order: (row) => row.readRecords, numeric: true },
              { title: "TaskManager", cell: (row) => row.endpoint, order: (row) => row.endpoint },
            ]}
          />
        </Panel>
      )}
    </>
  );
}
