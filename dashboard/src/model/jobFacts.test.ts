import { describe, expect, it } from "vitest";

import type { Job } from "../types";
import { checkpointFacts, sourceSubtasks, vertexFacts, wholeLife } from "./jobFacts";

describe("sourceSubtasks", () => {
  it("puts watermarks, idle time and splits together by subtask, in order", () => {
    const found = sourceSubtasks("v", [
      { id: "1.Source__orders.currentOutputWatermark", value: "500" },
      { id: "1.Map.currentOutputWatermark", value: "400" },
      { id: "0.currentOutputWatermark", value: "-9223372036854775808" },
      { id: "0.Source__orders.sourceIdleTime", value: "61000" },
      { id: "1.Source__orders.split.orders-3.watermark.currentWatermark", value: "500" },
      { id: "1.numRecordsOut", value: "12" },
    ]);
    expect(found).toEqual([
      { vertexId: "v", subtask: 0, outputWatermark: Number("-9223372036854775808"), idleMs: 61000, splits: [] },
      { vertexId: "v", subtask: 1, outputWatermark: 400, idleMs: null, splits: [{ id: "orders-3", watermark: 500 }] },
    ]);
  });
});

describe("wholeLife", () => {
  const metrics = { "read-bytes": 0, "write-bytes": 0, "read-records": 0, "write-records": 0 };

  it("shares the time of an ended vertex between work and waits", () => {
    const times = { "accumulated-busy-time": 600, "accumulated-backpressured-time": 100, "accumulated-idle-time": 300 };
    const found = wholeLife({ ...metrics, ...times });
    expect([found.busy.max, found.backPressured.max, found.idle.avg]).toEqual([600, 100, 300]);
  });

  it("knows nothing where nothing was measured", () => {
    const times = { "accumulated-busy-time": "NaN" as const, "accumulated-backpressured-time": 0, "accumulated-idle-time": 0 };
    expect(wholeLife({ ...metrics, ...times }).busy.max).toBeNull();
  });
});

describe("checkpointFacts", () => {
  it("is null where checkpointing is off", () => {
    expect(checkpointFacts(null, 1000)).toBeNull();
  });
});

describe("vertexFacts", () => {
  it("tells vertices of one name apart", () => {
    const vertex = (id: string, name: string) => ({
      id,
      name,
      parallelism: 1,
      maxParallelism: 128,
      status: "RUNNING",
      tasks: {},
      metrics: { "read-records": 0, "write-records": 0 },
    });
    const vertices = [vertex("aaaaaaaa", "enrich"), vertex("bbbbbbbb", "enrich"), vertex("cccccccc", "sink")];
    const job = { state: "RUNNING", vertices, plan: { nodes: [] } } as unknown as Job;
    expect(vertexFacts(job, new Map()).map((each) => each.name)).toEqual(["enrich [aaaaaa]", "enrich [bbbbbb]", "sink"]);
  });
});
