/** Flame graphs of a vertex: on the processor, off it, or both. */

import type { JSX } from "preact";

import * as api from "../../api";
import { Empty, Panel, Select, Waiting } from "../../components/Basics";
import { shortName } from "../../diagnosis/facts";
import { FlameGraph } from "../../flame/FlameGraph";
import { time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import { TERMINAL, type FlameGraphAnswer, type FlameGraphType } from "../../types";
import type { JobProps } from "./JobPage";

const TYPES: readonly (readonly [FlameGraphType, string])[] = [
  ["ON_CPU", "on the processor"],
  ["OFF_CPU", "off the processor (waiting)"],
  ["FULL", "mixed"],
];
/** Subtasks that can be picked by name. */
const PICKED_MAX = 256;

export function FlameGraphPage({ job, route }: JobProps): JSX.Element {
  const ended = TERMINAL.includes(job.state);
  const first = job.vertices[0]?.id ?? "";
  const asked = route.query.get("vertex");
  const vertexId = job.vertices.some((vertex) => vertex.id === asked) ? (asked as string) : first;
  const type = TYPES.find(([each]) => each === route.query.get("type"))?.[0] ?? "ON_CPU";
  const parsed = Number.parseInt(route.query.get("subtask") ?? "", 10);
  const subtask = Number.isNaN(parsed) ? undefined : parsed;
  const parallelism = job.vertices.find((vertex) => vertex.id === vertexId)?.parallelism ?? 1;
  const go = (change: { vertex?: string; type?: FlameGraphType; subtask?: string }): void => {
    const next = { vertex: vertexId, type, subtask: subtask === undefined ? undefined : String(subtask), ...change };
    location.hash = link(["job", job.jid, "flame-graph"], next);
  };
  return (
    <Panel title="Flame graphs">
      <div class="toolbar">
        <Select
          label="Vertex"
          value={vertexId}
          options={job.vertices.map((vertex) => [vertex.id, shortName(vertex.name)] as const)}
          onChange={(vertex) => go({ vertex, subtask: "" })}
        />
        <Select label="Time" value={type} options={TYPES} onChange={(value) => go({ type: value })} />
        <Select
          label="Subtask"
          value={subtask === undefined ? "" : String(subtask)}
          options={[
            ["", "all"],
            ...Array.from({ length: Math.min(parallelism, PICKED_MAX) }, (_, index) => [String(index), String(index)] as const),
          ]}
          onChange={(value) => go({ subtask: value })}
        />
      </div>
      {ended ? (
        <Empty>The job has ended: nothing runs that could be sampled.</Empty>
      ) : (
        <Sampled key={`${vertexId} ${type} ${subtask ?? ""}`} jobid={job.jid} vertexId={vertexId} type={type} subtask={subtask} />
      )}
    </Panel>
  );
}

function Sampled(props: { jobid: string; vertexId: string; type: FlameGraphType; subtask: number | undefined }): JSX.Element {
  const { data, failed } = usePoll(
    "Flame graph",
    (signal) => api.vertexFlameGraph(props.jobid, props.vertexId, props.type, props.subtask, signal),
    [props.jobid, props.vertexId, props.type, props.subtask],
  );
  if (data === undefined) {
    return <Waiting what="Asking for samples" failed={failed} />;
  }
  if (data.data === undefined) {
    return <Empty>{reasonOf(data)}</Empty>;
  }
  if (data.data.value === 0) {
    return <Empty>No sample shows a thread like that: choose another kind of time.</Empty>;
  }
  return (
    <>
      <p class="quiet-text">Samples until {time(data.endTimestamp)}</p>
      <FlameGraph root={data.data} />
    </>
  );
}

function reasonOf(answer: FlameGraphAnswer): string {
  switch (answer.endTimestamp) {
    case -1:
      return "The vertex has ended: nothing runs that could be sampled.";
    case -2:
      return "Flame graphs are off: set rest.flamegraph.enabled to true.";
    default:
      return "Taking samples: the first graph comes in a few seconds.";
  }
}
