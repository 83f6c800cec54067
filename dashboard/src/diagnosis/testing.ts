/** Jobs, vertices and subtasks for the tests of diagnoses. */

import { UNKNOWN, type JobFacts, type Spread, type SubtaskFacts, type VertexFacts } from "./facts";

export function aVertex(id: string, more: Partial<VertexFacts>): VertexFacts {
  return {
    id,
    name: id,
    parallelism: 1,
    maxParallelism: 128,
    status: "RUNNING",
    tasks: { RUNNING: 1 },
    inputs: [],
    shipStrategies: [],
    busy: UNKNOWN,
    backPressured: UNKNOWN,
    idle: UNKNOWN,
    recordsIn: UNKNOWN,
    recordsOut: UNKNOWN,
    readRecords: 0,
    writeRecords: 0,
    watermark: UNKNOWN,
    subtasks: [],
    ...more,
  };
}

export function aSubtask(index: number, more: Partial<SubtaskFacts>): SubtaskFacts {
  return {
    index,
    status: "RUNNING",
    taskManagerId: `tm-${index}`,
    endpoint: `host-${index}:4711`,
    busy: null,
    backPressured: null,
    idle: null,
    readRecords: 0,
    writeRecords: 0,
    ...more,
  };
}

export function aJob(vertices: readonly VertexFacts[]): JobFacts {
  return { state: "RUNNING", now: 1_000_000, timestamps: { RUNNING: 1 }, vertices };
}

export function spread(max: number, avg = max): Spread {
  return { min: null, max, avg, sum: null };
}
