import { describe, expect, it } from "vitest";

import { findSilence, standingText, WatermarkClock, watermarkKey, type SilenceFacts, type SubtaskWatermarks } from "./silence";
import { aJob, aVertex, spread } from "./testing";

const source = aVertex("source", { inputs: [], writeRecords: 100, parallelism: 2 });
const window = aVertex("window", { inputs: ["source"], readRecords: 100, writeRecords: 5 });
const sink = aVertex("sink", { inputs: ["window"], readRecords: 5 });
const NOW = 1_000_000;
const checkpoints = { intervalMs: 10_000, completed: 9, failed: 0, lastCompletedAt: NOW - 4_000, lastFailure: null };

function facts(more: Partial<SilenceFacts> = {}): SilenceFacts {
  return { ...aJob([source, window, sink]), watermarks: [], standing: new Map(), checkpoints, now: NOW, ...more };
}

/** A subtask as real answers tell of it: a watermark that there is none of yet is not among its metrics. */
function aSource(subtask: number, more: Partial<SubtaskWatermarks>): SubtaskWatermarks {
  const none = { inputWatermark: null, outputWatermark: null, begun: 400_000, idleMs: null, hasRead: true, splits: [] };
  return { vertexId: "source", subtask, ...none, ...more };
}

function of(vertexId: string, subtask: number, input: number | null, output: number | null): SubtaskWatermarks {
  return aSource(subtask, { vertexId, inputWatermark: input, outputWatermark: output });
}

function held(found: ReturnType<typeof findSilence>) {
  return found.filter((each) => each.kind === "watermark");
}

describe("findSilence", () => {
  it("names the subtask and the split that hold the watermark back, and since when", () => {
    const [first] = findSilence(
      facts({
        watermarks: [
          aSource(0, { outputWatermark: 900_000 }),
          aSource(1, {
            outputWatermark: 600_000,
            splits: [
              { id: "orders-3", watermark: 850_000 },
              { id: "orders-7", watermark: 600_000 },
            ],
          }),
        ],
        standing: new Map([[watermarkKey("source", 1), { since: NOW - 90_000, exact: true }]]),
      }),
    );
    expect(first?.kind).toBe("watermark");
    expect(first?.title).toBe("The watermark is held back by subtask 1, split orders-7 of “source”");
    expect([first?.vertexId, first?.subtask]).toEqual(["source", 1]);
    expect(first?.text).toContain("5 min behind the most advanced input. Windows");
    expect(first?.since).toEqual({ since: NOW - 90_000, exact: true });
  });

  it.each([
    ["CANCELED", "Somebody stopped it"],
    ["SUSPENDED", "another one goes on with the job"],
    ["FINISHED", "It put out all it had."],
  ] as const)("says why a job that is %s gives nothing", (state, says) => {
    const [first] = findSilence(facts({ state, timestamps: { [state]: NOW - 60_000 } }));
    expect([first?.kind, first?.text.includes(says)]).toEqual(["ended", true]);
    expect(first?.since).toEqual({ since: NOW - 60_000, exact: true });
  });

  it("says at least, where the watermark stood already when the page was opened", () => {
    const [first] = findSilence(
      facts({
        watermarks: [aSource(0, { outputWatermark: 900_000 }), aSource(1, { outputWatermark: 1_000 })],
        standing: new Map([[watermarkKey("source", 1), { since: NOW - 90_000, exact: false }]]),
      }),
    );
    expect(first?.since && standingText(first.since, NOW)).toMatch(/^Since at least 1970-01-01 .*, 1 min 30 s ago\.$/);
  });

  it("tells an input that is behind and moves from one that stands", () => {
    const [first] = findSilence(
      facts({
        watermarks: [aSource(0, { outputWatermark: 900_000 }), aSource(1, { outputWatermark: 600_000 })],
        standing: new Map([[watermarkKey("source", 1), { since: NOW - 1_000, exact: true }]]),
      }),
    );
    expect(first?.text).toContain("5 min behind the most advanced input, and moves");
    expect(first?.text).not.toContain("with_idleness");
    expect(first?.since).toBeNull();
  });

  it("takes the time of the last record where the source tells it", () => {
    const found = findSilence(
      facts({
        watermarks: [aSource(0, { outputWatermark: 900_000 }), aSource(1, { outputWatermark: 100_000, idleMs: 240_000 })],
      }),
    );
    const cause = held(found)[0];
    expect(cause?.since).toEqual({ since: NOW - 240_000, exact: true });
    expect(cause?.since && standingText(cause.since, NOW)).toMatch(/^Since 1970-01-01 .*, 4 min ago\.$/);
    expect(found.find((each) => each.kind === "idle-source")?.weight).toBe("hint");
  });

  it("blames no input where all are about equally far", () => {
    const found = findSilence(
      facts({ watermarks: [aSource(0, { outputWatermark: 900_000 }), aSource(1, { outputWatermark: 899_000 })] }),
    );
    expect(found.map((each) => each.kind)).toEqual(["checkpoint"]);
    expect(found[0]?.weight).toBe("fact");
  });

  it("does not count a source that has ended", () => {
    const found = findSilence(
      facts({ watermarks: [aSource(0, { outputWatermark: Number("9223372036854775807") }), aSource(1, { outputWatermark: 5_000 })] }),
    );
    expect(found.filter((each) => each.kind === "watermark")).toEqual([]);
  });

  it("hints that there is no event time where no subtask has a watermark", () => {
    const found = findSilence(facts({ watermarks: [aSource(0, {}), of("window", 0, null, null), of("sink", 0, null, null)] }));
    expect([found[0]?.kind, found[0]?.weight]).toEqual(["no-watermark", "hint"]);
  });

  it("names a subtask that has never sent a watermark, since its start", () => {
    const watermarks = [aSource(0, { outputWatermark: 900_000 }), aSource(1, {}), of("window", 0, null, null)];
    const [first] = findSilence(facts({ watermarks }));
    expect(first?.title).toBe("The watermark is held back by subtask 1 of “source”");
    expect(first?.text).toContain("It has sent no watermark. “window” waits for it.");
    expect([first?.weight, first?.since]).toEqual(["cause", { since: 400_000, exact: true }]);
  });

  it("takes an input without a watermark for a hint where the receiver sends records all the same", () => {
    const watermarks = [aSource(0, { outputWatermark: 900_000 }), aSource(1, {}), of("window", 0, null, null)];
    const sends = { ...window, recordsOut: { ...spread(9), sum: 9 } };
    expect(held(findSilence(facts({ vertices: [source, sends, sink], watermarks })))[0]?.weight).toBe("hint");
  });

  it.each([
    ["stands at an old watermark", 1_000],
    ["has never sent one", null],
  ])("blames no idle subtask which %s and that the receiver has passed", (_, outputWatermark) => {
    const watermarks = [
      aSource(0, { outputWatermark: 900_000 }),
      aSource(1, { outputWatermark, idleMs: 300_000 }),
      of("window", 0, 900_000, 900_000),
    ];
    expect(held(findSilence(facts({ watermarks })))).toEqual([]);
  });

  it("blames no idle subtask of a forward edge where a vertex further behind has passed it", () => {
    const watermarks = [
      aSource(0, { outputWatermark: 900_000 }),
      aSource(1, { outputWatermark: 1_000 }),
      of("window", 0, 900_000, 900_000),
      of("window", 1, 1_000, 1_000),
      of("sink", 0, 900_000, null),
    ];
    expect(held(findSilence(facts({ watermarks })))).toEqual([]);
  });

  it("does not compare pipelines that never meet", () => {
    const other = aVertex("other", { writeRecords: 9 });
    const vertices = [source, other, window, aVertex("end", { inputs: ["other"] }), sink];
    const watermarks = [
      aSource(0, { outputWatermark: 900_000 }),
      of("other", 0, null, 5_000),
      of("window", 0, 900_000, 900_000),
      of("end", 0, 5_000, null),
      of("sink", 0, 900_000, null),
    ];
    expect(held(findSilence(facts({ vertices, watermarks })))).toEqual([]);
  });

  it("names the subtask behind an exchange that assigns no watermark while another one does", () => {
    const assigner = aVertex("assigner", { inputs: ["source"], readRecords: 9, writeRecords: 9, parallelism: 2 });
    const vertices = [source, assigner, { ...window, inputs: ["assigner"] }, sink];
    const watermarks = [
      aSource(0, {}),
      of("assigner", 0, null, 900_000),
      of("assigner", 1, null, null),
      of("window", 0, null, null),
      of("sink", 0, null, null),
    ];
    const found = held(findSilence(facts({ vertices, watermarks })));
    expect(found.map((each) => [each.vertexId, each.subtask])).toEqual([["assigner", 1]]);
  });

  it("follows the channel that is behind to the source's subtask that it comes from", () => {
    const right = aVertex("right", { writeRecords: 9 });
    const map = aVertex("map", { inputs: ["source"], readRecords: 9, writeRecords: 9 });
    const vertices = [source, right, map, { ...window, inputs: ["map", "right"] }, sink];
    const watermarks = [
      aSource(0, { outputWatermark: 700_000 }),
      aSource(1, { outputWatermark: 700_500 }),
      of("right", 0, null, 900_000),
      of("map", 0, 700_000, 700_000),
      of("window", 0, 700_000, 700_000),
      of("sink", 0, 700_000, null),
    ];
    const found = held(findSilence(facts({ vertices, watermarks })));
    expect(found.map((each) => [each.vertexId, each.subtask])).toEqual([["source", 0]]);
  });

  it.each([
    ["are older than those of the source", 80_000, 80_000],
    ["have not come yet", null, null],
  ])("takes no vertex that waits itself for the cause where its figures %s", (_, input, output) => {
    const right = aVertex("right", { writeRecords: 9 });
    const map = aVertex("map", { inputs: ["source"], readRecords: 9, writeRecords: 9 });
    const watermarks = [
      aSource(0, { outputWatermark: 900_000 }),
      aSource(1, { outputWatermark: 100_000 }),
      of("right", 0, null, 900_000),
      of("map", 0, input, output),
      of("window", 0, input, input),
      of("sink", 0, input, null),
    ];
    const vertices = [source, right, map, { ...window, inputs: ["map", "right"] }, sink];
    const found = held(findSilence(facts({ vertices, watermarks })));
    expect(found.map((each) => [each.vertexId, each.subtask])).toEqual([["source", 1]]);
  });

  it("names the split of one subtask, and no idle one that the subtask has passed", () => {
    const splits = [{ id: "orders-3", watermark: 900_000 }, { id: "orders-7", watermark: 600_000 }];
    const only = (outputWatermark: number) =>
      held(findSilence(facts({ watermarks: [aSource(0, { outputWatermark, splits })] })));
    expect(only(600_000).map((each) => each.title)).toEqual([
      "The watermark is held back by subtask 0, split orders-7 of “source”",
    ]);
    expect(only(900_000)).toEqual([]);
    const silent = [{ id: "orders-3", watermark: 900_000 }, { id: "orders-7", watermark: null }];
    const [first] = held(findSilence(facts({ watermarks: [aSource(0, { splits: silent })] })));
    expect(first?.title).toContain("split orders-7 of “source”");
    expect(first?.since).toEqual({ since: 400_000, exact: true });
  });

  it("says that a source has read nothing, and since when the job runs", () => {
    const found = findSilence(facts({ timestamps: { RUNNING: NOW - 30_000 }, vertices: [{ ...source, writeRecords: 0 }, { ...window, readRecords: 0 }, { ...sink, readRecords: 0 }] }));
    expect(found.map((each) => [each.kind, each.weight])).toEqual([["no-input", "cause"]]);
    expect(found[0]?.since).toEqual({ since: NOW - 30_000, exact: true });
  });

  it("does not miss records behind a source that is chained with its sink", () => {
    expect(findSilence(facts({ vertices: [aVertex("source and sink", { inputs: [] })] }))).toEqual([]);
  });

  it("says since when a source reads nothing any more", () => {
    const found = findSilence(facts({ watermarks: [aSource(0, { idleMs: 60_000 }), aSource(1, { idleMs: 30_000 })] }));
    expect(found[0]?.title).toBe("“source” reads nothing any more");
    expect(found[0]?.text).toBe("All its subtasks wait for records; subtask 0 has waited longest.");
    expect([found[0]?.subtask, found[0]?.since]).toEqual([0, { since: NOW - 60_000, exact: true }]);
  });

  it("names the vertex at which records stop", () => {
    const found = findSilence(facts({ vertices: [source, { ...window, writeRecords: 0 }, { ...sink, readRecords: 0 }] }));
    expect(found[0]?.title).toBe("Records stop at “window”");
  });

  it("says that sinks wait for checkpoints that do not complete, and why", () => {
    const found = findSilence(
      facts({ checkpoints: { ...checkpoints, lastCompletedAt: NOW - 120_000, failed: 4, lastFailure: "disk full\nat x" } }),
    );
    expect(found[0]?.title).toBe("No checkpoint has completed for 2 min");
    expect(found[0]?.text).toContain("4 failed. The last one failed: disk full");
    expect(found[0]?.text).not.toContain("at x");
  });

  it("takes a checkpoint that is newer than what is known of the job for one of just now", () => {
    const found = findSilence(facts({ checkpoints: { ...checkpoints, lastCompletedAt: NOW + 300 } }));
    expect(found[0]?.text).toContain("every 10 s, the last completed 0 ms ago.");
  });

  it("hints that checkpointing is off only where a sink has records", () => {
    expect(findSilence(facts({ checkpoints: null })).map((each) => each.kind)).toEqual(["no-checkpoint"]);
    expect(findSilence(facts({ checkpoints: null, vertices: [source, window, { ...sink, readRecords: 0 }] }))).toEqual([]);
  });

  it("names the tasks that wait for slots before anything else", () => {
    const waits = { ...window, parallelism: 2, tasks: { RUNNING: 1, SCHEDULED: 1 } };
    const found = findSilence(facts({ vertices: [source, waits, sink] }));
    expect(found[0]?.title).toBe("“window” is not running in full");
  });

  it("says only that a job is restarting, and for how long", () => {
    const found = findSilence(facts({ state: "RESTARTING", timestamps: { RESTARTING: NOW - 30_000 } }));
    expect(found.map((each) => each.title)).toEqual(["The job is RESTARTING"]);
    expect(found[0]?.since).toEqual({ since: NOW - 30_000, exact: true });
  });

  it("calls the end of a finished job no cause", () => {
    expect(findSilence(facts({ state: "FINISHED" }))[0]?.weight).toBe("fact");
  });

  it("puts what flows last", () => {
    const found = findSilence(facts({ vertices: [source, window, { ...sink, recordsIn: { ...spread(4), sum: 4 } }] }));
    expect(found.map((each) => each.kind)).toEqual(["checkpoint", "flows"]);
  });
});

describe("WatermarkClock", () => {
  it("starts anew when a watermark moves", () => {
    const clock = new WatermarkClock();
    clock.observe("a", 5, 100);
    clock.observe("a", 5, 200);
    expect(clock.standing().get("a")).toEqual({ since: 100, exact: false });
    clock.observe("a", 6, 300);
    clock.observe("a", 6, 400);
    expect(clock.standing().get("a")).toEqual({ since: 300, exact: true });
  });
});
