/** What charts over time show of the answers: which vertices, which lags, which checkpoints. */

import { number, watermarkLag } from "../model/format";
import type { CheckpointingStatistics, VertexMetricsHistory } from "../types";
import type { Line } from "./LineChart";

/** Lines of one chart: as many as there are colours. */
export const LINES_MAX = 8;

/** The vertices that were busy or back-pressured most, in the order in which they came. */
export function busiest(vertices: readonly VertexMetricsHistory[]): readonly VertexMetricsHistory[] {
  const work = new Map(vertices.map((each) => [each.id, sum(each.busy) + sum(each["back-pressured"])]));
  const least = [...work.values()].sort((a, b) => b - a)[LINES_MAX - 1] ?? 0;
  return vertices.filter((each) => (work.get(each.id) ?? 0) >= least).slice(0, LINES_MAX);
}

/** Lags behind the clock; null where event time is not that of the clock, as in data that is replayed. */
export function lagsOfClock(lags: readonly (number | null)[]): (number | null)[] {
  return lags.map((lag) => (lag === null ? null : watermarkLag(-lag, 0)));
}

/** Durations of the completed checkpoints and savepoints that are remembered, the oldest first. */
export function checkpointDurations(statistics: CheckpointingStatistics | null): { times: number[]; lines: Line[] } {
  const done = (statistics?.history ?? []).filter((each) => each.status === "COMPLETED").reverse();
  return {
    times: done.map((each) => each.trigger_timestamp),
    lines: [{ label: "end to end", values: done.map((each) => number(each.end_to_end_duration)) }],
  };
}

function sum(values: readonly (number | null)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}
