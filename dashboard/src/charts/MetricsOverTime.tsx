/** Charts of a job from its start to now or to its end: rates, times, watermark lag, durations of checkpoints. */

import type { JSX } from "preact";

import * as api from "../api";
import { Empty, Waiting } from "../components/Basics";
import { shortName } from "../diagnosis/facts";
import { duration, msPerSecond, short } from "../model/format";
import { usePoll } from "../model/poll";
import { useMetricsHistory } from "../model/useMetricsHistory";
import { TERMINAL, type Job, type MetricsHistory, type VertexMetricsHistory } from "../types";
import { LineChart, type Line } from "./LineChart";
import { busiest, checkpointDurations, lagsOfClock, LINES_MAX } from "./overTime";

type Column = "records-in-per-second" | "records-out-per-second" | "busy" | "back-pressured" | "watermark-lag";

const perSecond = (value: number | null): string => (value === null ? "–" : `${short(value)}/s`);
const CHARTS: readonly (readonly [Column, string, (value: number | null) => string])[] = [
  ["records-in-per-second", "Records received per second", perSecond],
  ["records-out-per-second", "Records sent per second", perSecond],
  ["busy", "Busy, mean of the subtasks", msPerSecond],
  ["back-pressured", "Back-pressured, mean of the subtasks", msPerSecond],
  ["watermark-lag", "Watermark behind the clock", duration],
];

/** `vertexId`: the only vertex that is drawn; empty: the busiest ones. */
export function MetricsOverTime({ job, vertexId }: { job: Job; vertexId: string }): JSX.Element {
  const every = TERMINAL.includes(job.state) ? "once" : "interval";
  const metrics = useMetricsHistory(job);
  const checkpoints = usePoll("Checkpoints", (signal) => api.checkpoints(job.jid, signal), [job.jid], every);
  if (metrics.data === undefined) {
    return <Waiting what="Asking for the metrics over time" failed={metrics.failed} />;
  }
  const durations = checkpointDurations(checkpoints.data ?? null);
  const isAnyMeasured = metrics.data.vertices.some((vertex) => CHARTS.some(([column]) => valuesOf(column, vertex).some((value) => value !== null)));
  if (!isAnyMeasured && durations.times.length === 0) {
    return <Empty>Nothing was measured: the job ended before the second point, which is taken after some seconds.</Empty>;
  }
  const vertices = vertexId === "" ? busiest(metrics.data.vertices) : metrics.data.vertices.filter((each) => each.id === vertexId);
  const hidden = vertexId === "" ? metrics.data.vertices.length - vertices.length : 0;
  return (
    <>
      {hidden > 0 ? (
        <p class="quiet-text">
          The {LINES_MAX} busiest of {metrics.data.vertices.length} vertices.
        </p>
      ) : null}
      <div class="charts">
        {CHARTS.map(([column, title, format]) => (
          <OverTimeChart key={column} column={column} title={title} format={format} history={metrics.data as MetricsHistory} vertices={vertices} />
        ))}
        {durations.times.length === 0 ? null : (
          <LineChart title="Duration of the last checkpoints" times={durations.times} lines={durations.lines} tells="greatest" format={duration} />
        )}
      </div>
    </>
  );
}

function valuesOf(column: Column, vertex: VertexMetricsHistory): readonly (number | null)[] {
  return column === "watermark-lag" ? lagsOfClock(vertex[column]) : vertex[column];
}

/** No chart where no vertex has a value, as sources that receive nothing. */
function OverTimeChart(props: {
  column: Column;
  title: string;
  format(value: number | null): string;
  history: MetricsHistory;
  vertices: readonly VertexMetricsHistory[];
}): JSX.Element | null {
  const lines: Line[] = props.vertices
    .map((vertex) => ({ label: shortName(vertex.name, 40), values: valuesOf(props.column, vertex) }))
    .filter((line) => line.values.some((value) => value !== null));
  return lines.length === 0 ? null : (
    <LineChart title={props.title} times={props.history.timestamps} lines={lines} tells="greatest" format={props.format} />
  );
}
