/** Why is there no output: what stops records, event time or commits, named, and since when. */

import type { JSX } from "preact";
import { useRef } from "preact/hooks";

import * as api from "../../api";
import { Empty, Panel, Waiting } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { findSilence, standingText, WatermarkClock, watermarkKey, type SilenceFacts } from "../../diagnosis/silence";
import { isSource } from "../../diagnosis/facts";
import { duration, watermark } from "../../model/format";
import { checkpointFacts, loadLive, subtaskWatermarks, vertexFacts } from "../../model/jobFacts";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import type { Job } from "../../types";
import type { VertexRates } from "../../model/VertexRates";
import type { JobProps } from "./JobPage";
import { runningKey } from "./useLive";

async function load(job: Job, rates: VertexRates, clock: WatermarkClock, signal: AbortSignal): Promise<SilenceFacts> {
  const facts = { state: job.state, now: job.now, timestamps: job.timestamps };
  if (job.state !== "RUNNING") {
    return { ...facts, vertices: vertexFacts(job, new Map()), watermarks: [], standing: new Map(), checkpoints: null };
  }
  const vertices = vertexFacts(job, await loadLive(job, rates, signal));
  const watermarks = subtaskWatermarks((await api.jobWatermarks(job.jid, signal)).subtasks);
  for (const subtask of watermarks) {
    if (subtask.outputWatermark !== null) {
      clock.observe(watermarkKey(subtask.vertexId, subtask.subtask), subtask.outputWatermark, job.now);
    }
  }
  const statistics = await api.checkpoints(job.jid, signal);
  const configuration = await api.checkpointConfig(job.jid, signal);
  return {
    ...facts,
    vertices,
    watermarks,
    standing: clock.standing(),
    checkpoints: checkpointFacts(statistics, configuration?.interval ?? null),
  };
}

export function SilencePage({ job, rates }: JobProps): JSX.Element {
  const clock = useRef(new WatermarkClock());
  const latest = useRef(job);
  latest.current = job;
  const polled = usePoll("Diagnosis", (signal) => load(latest.current, rates, clock.current, signal), [job.jid, job.state, runningKey(job)]);
  const facts = polled.data;
  if (facts === undefined) {
    return <Waiting what="Following the records" failed={polled.failed} />;
  }
  const findings = findSilence(facts);
  const begins = new Set([
    ...facts.vertices.filter(isSource).map((vertex) => vertex.id),
    ...findings.filter((each) => each.kind === "watermark").map((each) => each.vertexId),
  ]);
  const shown = facts.watermarks.filter((each) => begins.has(each.vertexId));
  const names = new Map(facts.vertices.map((vertex) => [vertex.id, vertex.name]));
  return (
    <>
      <Panel title="Why is there no output?">
        {findings.every((each) => each.weight !== "cause") ? (
          <p class="headline" role="status">
            Nothing stops this job’s output
          </p>
        ) : null}
        {findings.length === 0 ? <Empty>Records and event time flow; no sink has received a record yet.</Empty> : null}
        <ol class="findings">
          {findings.map((each, index) => (
            <li key={index} class={each.weight}>
              <strong>{each.title}</strong>
              <p>{each.text}</p>
              {each.since === null ? null : <p class="since">{standingText(each.since, facts.now)}</p>}
              {each.vertexId === null ? null : (
                <a href={link(["job", job.jid, "overview"], { vertex: each.vertexId, subtask: each.subtask ?? undefined })}>
                  {each.subtask === null ? "Its subtasks" : `Its subtask ${each.subtask}`}
                </a>
              )}
            </li>
          ))}
        </ol>
      </Panel>
      {shown.length === 0 ? null : (
        <Panel title="Event time where it begins">
          <DataTable
            caption="Watermarks by subtask, the furthest behind first"
            rows={shown}
            rowKey={(row) => watermarkKey(row.vertexId, row.subtask)}
            sort={{ column: 2, descending: false }}
            columns={[
              { title: "vertex", wraps: true, cell: (row) => names.get(row.vertexId) ?? row.vertexId, order: (row) => names.get(row.vertexId) ?? "" },
              { title: "subtask", cell: (row) => row.subtask, order: (row) => row.subtask, numeric: true },
              { title: "watermark", cell: (row) => watermark(row.outputWatermark), order: (row) => row.outputWatermark },
              {
                title: "stands since",
                cell: (row) => {
                  const since = facts.standing.get(watermarkKey(row.vertexId, row.subtask));
                  return since === undefined || (!since.exact && facts.now - since.since < 1_000) ? "–" : `${since.exact ? "" : "at least "}${duration(facts.now - since.since)}`;
                },
              },
              { title: "last record", cell: (row) => (row.idleMs === null ? "–" : row.hasRead ? `${duration(row.idleMs)} ago` : "none yet"), order: (row) => row.idleMs },
              {
                title: "splits", wraps: true,
                cell: (row) => row.splits.map((split) => `${split.id}: ${watermark(split.watermark)}`).join("; ") || "–",
              },
            ]}
          />
        </Panel>
      )}
    </>
  );
}
