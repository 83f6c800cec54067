import { afterEach, describe, expect, it, vi } from "vitest";

import type { Job } from "../types";
import { ASKED_MAX, checkpointFacts, loadLive, subtaskWatermarks, vertexFacts, wholeLife } from "./jobFacts";
import { VertexRates } from "./VertexRates";

describe("subtaskWatermarks", () => {
  it("tells sources that have read nothing from those that wait for the next record", () => {
    const nothing = { "input-watermark": null, "output-watermark": null, splits: [] };
    const found = subtaskWatermarks([
      { vertex: "v", subtask: 0, "start-time": 60, ...nothing, "idle-time": 61_000, "records-read": 0 },
      { vertex: "v", subtask: 1, "start-time": 70, ...nothing, "idle-time": 61_000, "records-read": 7 },
      { vertex: "w", subtask: 0, "start-time": -1, ...nothing, "input-watermark": 450, "idle-time": null, "records-read": null },
    ]);
    expect(found.map((each) => [each.vertexId, each.begun, each.inputWatermark, each.idleMs, each.hasRead])).toEqual([
      ["v", 60, null, 61_000, false],
      ["v", 70, null, 61_000, true],
      ["w", null, 450, null, true],
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

describe("loadLive", () => {
  afterEach(() => void vi.unstubAllGlobals());

  const times = { "accumulated-backpressured-time": 0, "read-records": 0, "write-records": 0 };

  /** A job of 1,000 vertices, of which number 777 works and all others wait for input. */
  function large(now: number): Job {
    const vertices = Array.from({ length: 1000 }, (_, index) => ({
      id: `v${index}`,
      tasks: { RUNNING: 10 },
      metrics: { ...times, "accumulated-busy-time": index === 777 ? now : 0, "accumulated-idle-time": index === 777 ? 0 : now },
    }));
    return { jid: "j", now, state: "RUNNING", vertices } as unknown as Job;
  }

  it("asks few vertices of a large job, and among them the one that works", async () => {
    const asked: string[] = [];
    vi.stubGlobal("document", { baseURI: "http://host/" });
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(url);
      return new Response(JSON.stringify([{ id: "busyTimeMsPerSecond", max: 999, avg: 500 }]));
    });
    const rates = new VertexRates();
    rates.observe(large(1000));
    rates.observe(large(2000));
    const found = await loadLive(large(2000), rates, new AbortController().signal);
    expect(asked).toHaveLength(ASKED_MAX);
    expect(asked.some((url) => url.includes("/vertices/v777/"))).toBe(true);
    expect(found.size).toBe(1000);
    expect([found.get("v777")?.busy.max, found.get("v999")?.busy.max]).toEqual([999, 0]);
  });
});
