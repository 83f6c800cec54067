import { describe, expect, it } from "vitest";

import { findSlowness, skewOf } from "./slowness";
import { aJob, aSubtask, aVertex, spread } from "./testing";

const source = aVertex("source", { inputs: [] });
const map = aVertex("map", { inputs: ["source"] });
const sink = aVertex("sink", { inputs: ["map"] });
const around = { gcMsPerSecond: {}, checkpointPhases: [], history: null, samples: null };

describe("findSlowness", () => {
  it("names the vertex behind the last one that waits for room", () => {
    const found = findSlowness({
      ...aJob([
        { ...source, backPressured: spread(900), busy: spread(50) },
        { ...map, backPressured: spread(800), busy: spread(150) },
        { ...sink, backPressured: spread(0), busy: spread(990) },
      ]),
      ...around,
    });
    expect([found.verdict, found.vertexId]).toEqual(["bottleneck", "sink"]);
    expect(found.evidence.map((each) => each.kind)).toEqual(["busy", "upstream"]);
    expect(found.evidence[1]?.text).toBe("“map”, in front of it, waits for room 800 ms of each second.");
  });

  it("takes the busier of two vertices behind the one that waits", () => {
    const found = findSlowness({
      ...aJob([
        { ...source, backPressured: spread(700), busy: spread(50) },
        { ...aVertex("a", { inputs: ["source"] }), busy: spread(300) },
        { ...aVertex("b", { inputs: ["source"] }), busy: spread(950) },
      ]),
      ...around,
    });
    expect(found.vertexId).toBe("b");
  });

  it("does not blame a busy vertex that nobody waits for", () => {
    const found = findSlowness({
      ...aJob([
        { ...source, backPressured: spread(700), busy: spread(300) },
        { ...map, busy: spread(900) },
        { ...aVertex("other source", { inputs: [] }), busy: spread(999) },
      ]),
      ...around,
    });
    expect(found.vertexId).toBe("map");
  });

  it("tells a vertex that waits for something outside from one that works", () => {
    const found = findSlowness({
      ...aJob([
        { ...source, backPressured: spread(900), busy: spread(50) },
        { ...map, busy: spread(20) },
      ]),
      ...around,
    });
    expect([found.verdict, found.vertexId]).toEqual(["waits-outside", "map"]);
    expect(found.advice[0]).toContain("off-CPU");
  });

  // A function that sleeps counts as busy (the mailbox loop times the call), and the sampler has it off the processor.
  it.each([
    ["computes", 96, 4, "bottleneck", true, "on-CPU"],
    ["waits", 0, 100, "waits-outside", false, "off-CPU"],
    ["has too few samples", 0, 3, "bottleneck", null, "mixed"],
  ] as const)("tells of a busy vertex that it %s", (_, onCpu, offCpu, verdict, computes, graph) => {
    const samples = { vertexId: "map", subtask: null, onCpu, offCpu };
    const job = aJob([{ ...source, backPressured: spread(900), busy: spread(50) }, { ...map, busy: spread(990) }]);
    const found = findSlowness({ ...job, ...around, samples });
    expect([found.verdict, found.vertexId, found.computes]).toEqual([verdict, "map", computes]);
    expect(found.advice.join(" ")).toContain(`Its ${graph} flame graph`);
  });

  it("does not take idle time in the samples for waiting", () => {
    const samples = { vertexId: "map", subtask: null, onCpu: 55, offCpu: 45 };
    const job = aJob([{ ...source, backPressured: spread(300), busy: spread(50) }, { ...map, busy: spread(600) }]);
    expect(findSlowness({ ...job, ...around, samples }).computes).toBe(true);
  });

  it("takes no samples of another vertex or subtask for those of the one that is slow", () => {
    const job = aJob([{ ...source, backPressured: spread(900), busy: spread(50) }, { ...map, busy: spread(990) }]);
    for (const samples of [{ vertexId: "sink", subtask: null, onCpu: 0, offCpu: 99 }, { vertexId: "map", subtask: 1, onCpu: 0, offCpu: 99 }]) {
      expect(findSlowness({ ...job, ...around, samples }).computes).toBeNull();
    }
  });

  it("names an asynchronous vertex at its capacity, and that its calls wait", () => {
    const job = aJob([
      { ...source, backPressured: spread(950), busy: spread(20) },
      { ...aVertex("async", { inputs: ["source"] }), busy: spread(970), backPressured: spread(0) },
      { ...aVertex("sink", { inputs: ["async"] }), busy: spread(10) },
    ]);
    const found = findSlowness({ ...job, ...around, samples: { vertexId: "async", subtask: null, onCpu: 3, offCpu: 97 } });
    expect([found.verdict, found.vertexId]).toEqual(["waits-outside", "async"]);
    expect(found.headline).toBe("“async” is the bottleneck: its function waits");
    expect(found.advice.join(" ")).toContain("more capacity");
  });

  it("says of a source that waits inside a function that it does, not that it reads", () => {
    const samples = { vertexId: "source", subtask: null, onCpu: 2, offCpu: 98 };
    const found = findSlowness({ ...aJob([{ ...source, busy: spread(995) }]), ...around, samples });
    expect([found.verdict, found.headline]).toEqual(["waits-outside", "“source” waits inside a function, and keeps up so far"]);
  });

  it.each([
    ["HASH", 1000, "has no more records than the others"],
    ["REBALANCE", 1000, "has no more records than the others"],
    ["REBALANCE", 7000, "no key decides that"],
    ["HASH", 7000, "hot key"],
  ])("advises on a slow subtask behind %s with %d records to 1000 of the others", (strategy, records, says) => {
    const uneven = {
      ...map,
      parallelism: 4,
      shipStrategies: [strategy],
      busy: spread(990, 300),
      subtasks: [0, 1, 2, 3].map((index) =>
        aSubtask(index, { busy: index === 2 ? 0.99 : 0.07, readRecords: index === 2 ? records : 1000 }),
      ),
    };
    const found = findSlowness({ ...aJob([{ ...source, backPressured: spread(600), busy: spread(90) }, uneven]), ...around });
    expect([found.subtask, found.advice[0]?.includes(says)]).toEqual([2, true]);
  });

  it("says that a source reads as fast as it can where nothing waits", () => {
    const found = findSlowness({ ...aJob([{ ...source, busy: spread(995) }, { ...map, busy: spread(400) }]), ...around });
    expect([found.verdict, found.vertexId]).toEqual(["source", "source"]);
  });

  it("finds nothing in a job that keeps up", () => {
    const found = findSlowness({ ...aJob([{ ...source, busy: spread(100) }, { ...map, busy: spread(400) }]), ...around });
    expect([found.verdict, found.vertexId]).toEqual(["keeps-up", null]);
    expect(found.evidence[0]?.text).toContain("“map”, works 400 ms");
  });

  it("names the slow subtask and its share of the records", () => {
    const hot = {
      ...map,
      shipStrategies: ["HASH"],
      parallelism: 4,
      busy: spread(990, 300),
      subtasks: [0, 1, 2, 3].map((index) =>
        aSubtask(index, { busy: index === 2 ? 0.99 : 0.07, readRecords: index === 2 ? 7000 : 1000 }),
      ),
    };
    const found = findSlowness({ ...aJob([{ ...source, backPressured: spread(600), busy: spread(90) }, hot]), ...around });
    expect(found.subtask).toBe(2);
    expect(found.evidence.map((each) => each.kind)).toEqual(["busy", "upstream", "subtask", "skew"]);
    expect(found.evidence[3]?.text).toContain("70 % of the records");
    expect(found.advice[0]).toContain("hot key");
  });

  it("advises more subtasks where all are evenly busy, and not beyond the maximum", () => {
    const even = {
      ...map,
      parallelism: 2,
      busy: spread(950),
      subtasks: [0, 1].map((index) => aSubtask(index, { busy: 0.95, readRecords: 500 })),
    };
    const job = (vertex: typeof even) =>
      findSlowness({ ...aJob([{ ...source, backPressured: spread(600), busy: spread(90) }, vertex]), ...around });
    expect(job(even).advice[0]).toContain("more than 2 share the work");
    expect(job({ ...even, maxParallelism: 2 }).advice[0]).toContain("all that its maximum parallelism allows");
  });

  it("adds checkpoints and garbage collection of the bottleneck, and of nobody else", () => {
    const facts = {
      ...aJob([
        { ...source, backPressured: spread(600), busy: spread(90) },
        { ...map, busy: spread(950), subtasks: [aSubtask(0, { taskManagerId: "tm-1", busy: 0.95 })] },
      ]),
      gcMsPerSecond: { "tm-1": 240, "tm-2": 500 },
      checkpointPhases: [
        { checkpointId: 7, vertexId: "map", startDelayMs: 12_000, alignmentMs: 10, syncMs: 5, asyncMs: 9 },
        { checkpointId: 7, vertexId: "source", startDelayMs: 90_000, alignmentMs: 0, syncMs: 0, asyncMs: 0 },
      ],
      history: null,
      samples: null,
    };
    const texts = findSlowness(facts).evidence.filter((each) => each.kind === "checkpoint" || each.kind === "gc");
    expect(texts.map((each) => each.text)).toEqual([
      "In checkpoint 7, its barriers came 12 s late.",
      "TaskManager tm-1 collects garbage 240 ms of each second.",
    ]);
  });

  it("blames no vertex of a job that does not run", () => {
    const found = findSlowness({
      ...aJob([{ ...map, busy: spread(999) }]),
      ...around,
      state: "RESTARTING",
      now: 10_000,
      timestamps: { RESTARTING: 4_000 },
    });
    expect([found.verdict, found.vertexId]).toEqual(["not-running", null]);
    expect(found.evidence[0]?.text).toBe("It entered this state 6 s ago.");
  });

  it("tells since when those in front wait, by the metrics over time", () => {
    const none = [null, null, null];
    const waits = [0, 700, 800];
    const history = {
      jid: "a",
      interval: 5_000,
      timestamps: [400_000, 700_000, 1_000_000],
      vertices: [
        { id: "source", name: "source", "records-in-per-second": none, "records-out-per-second": none, busy: none, "back-pressured": waits, "watermark-lag": none },
      ],
    };
    const job = aJob([{ ...source, backPressured: spread(800), busy: spread(50) }, { ...map, busy: spread(990) }]);
    const found = findSlowness({ ...job, ...around, history });
    expect(found.evidence.map((each) => each.kind)).toEqual(["busy", "upstream", "since"]);
    expect(found.evidence[2]?.text).toMatch(/5 min ago\.$/);
  });

  it("finds no fault with a job that has finished", () => {
    const found = findSlowness({ ...aJob([map]), ...around, state: "FINISHED", now: 10_000, timestamps: { FINISHED: 4_000 } });
    expect(found.verdict).toBe("ended");
    expect(found.evidence[0]?.text).toBe("It ended 6 s ago.");
  });

  it("says that it does not know yet while no metric has come", () => {
    expect(findSlowness({ ...aJob([source, map]), ...around }).verdict).toBe("unknown");
  });
});

describe("skewOf", () => {
  it("finds none in a vertex of one subtask, and none without records", () => {
    expect(skewOf({ ...map, subtasks: [aSubtask(0, { readRecords: 10 })] })).toBeNull();
    expect(skewOf({ ...map, subtasks: [aSubtask(0, {}), aSubtask(1, {})] })).toBeNull();
  });
});
