/** Since when a vertex has been as it is, by the points of a job's metrics over time. */

import { duration, time } from "../model/format";
import type { MetricsHistory, VertexMetricsHistory } from "../types";

export interface Since {
  at: number;
  /** Whether it was so at the first point that there is: perhaps since before. */
  isFirst: boolean;
}

/** The first of the last points in a row of which the mean of the subtasks was at the limit or above; null: it is not so. */
export function sinceWhen(
  history: MetricsHistory | null,
  vertexIds: readonly string[],
  column: "busy" | "back-pressured",
  limit: number,
): Since | null {
  const starts = (history?.vertices ?? [])
    .filter((vertex) => vertexIds.includes(vertex.id))
    .map((vertex) => startOf(vertex, column, limit))
    .filter((start) => start !== null);
  if (history === null || starts.length === 0) {
    return null;
  }
  const first = Math.min(...starts);
  const at = history.timestamps[first];
  return at === undefined ? null : { at, isFirst: first === 0 };
}

/** Points at which nothing was known neither begin nor end it. */
function startOf(vertex: VertexMetricsHistory, column: "busy" | "back-pressured", limit: number): number | null {
  let start: number | null = null;
  for (let point = vertex[column].length - 1; point >= 0; point--) {
    const value = vertex[column][point] ?? null;
    if (value !== null && value < limit) {
      break;
    }
    start = value === null ? start : point;
  }
  return start;
}

export function sinceSentence(since: Since, now: number): string {
  const ago = `${duration(Math.max(0, now - since.at))} ago`;
  return since.isFirst
    ? `It has been so since the first point of its metrics over time, ${time(since.at)}, ${ago}.`
    : `It has been so since ${time(since.at)}, ${ago}.`;
}
