import { describe, expect, it } from "vitest";

import type { VertexMetricsHistory } from "../types";
import { busiest, checkpointDurations, lagsOfClock, LINES_MAX } from "./overTime";

function vertex(id: number, busy: number): VertexMetricsHistory {
  return {
    id: String(id),
    name: `vertex ${id}`,
    "records-in-per-second": [null],
    "records-out-per-second": [1],
    busy: [busy, null],
    "back-pressured": [0],
    "watermark-lag": [null],
  };
}

describe("charts over time", () => {
  it("show the busiest vertices, in the order of the job", () => {
    const all = Array.from({ length: LINES_MAX + 2 }, (_, id) => vertex(id, id));
    expect(busiest(all).map((each) => each.id)).toEqual(["2", "3", "4", "5", "6", "7", "8", "9"]);
    expect(busiest(all.slice(0, 2)).map((each) => each.id)).toEqual(["0", "1"]);
  });

  it("show no more vertices than colours where all are alike", () => {
    expect(busiest(Array.from({ length: 20 }, (_, id) => vertex(id, 0)))).toHaveLength(LINES_MAX);
  });

  it("leave out lags of replayed data, which has a clock of its own", () => {
    expect(lagsOfClock([null, 1_200, 400_000_000_000])).toEqual([null, 1_200, null]);
  });

  it("show durations of completed checkpoints, the oldest first", () => {
    const checkpoint = (id: number, status: string) => ({ id, status, trigger_timestamp: id * 1000, end_to_end_duration: id });
    const statistics = { history: [checkpoint(3, "COMPLETED"), checkpoint(2, "FAILED"), checkpoint(1, "COMPLETED")] };
    expect(checkpointDurations(statistics as never)).toEqual({ times: [1000, 3000], lines: [{ label: "end to end", values: [1, 3] }] });
    expect(checkpointDurations(null).times).toEqual([]);
  });
});
