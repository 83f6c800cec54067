/** What a diagnosis knows of a job: plain values, however they were asked for. */

import type { JobStatus, TaskState } from "../types";

/** A figure over the subtasks of a vertex; null where no subtask reported it. */
export interface Spread {
  min: number | null;
  max: number | null;
  avg: number | null;
  sum: number | null;
}

export const UNKNOWN: Spread = { min: null, max: null, avg: null, sum: null };

export interface SubtaskFacts {
  index: number;
  status: TaskState;
  taskManagerId: string;
  endpoint: string;
  /** Shares of time, 0 to 1. */
  busy: number | null;
  backPressured: number | null;
  idle: number | null;
  readRecords: number;
  writeRecords: number;
}

export interface VertexFacts {
  id: string;
  name: string;
  parallelism: number;
  maxParallelism: number;
  status: TaskState;
  tasks: Partial<Record<TaskState, number>>;
  /** Ids of the vertices that send to it; a source has none. */
  inputs: readonly string[];
  /** How records are distributed to it, by its inputs' ship strategies: HASH, REBALANCE, FORWARD … */
  shipStrategies: readonly string[];
  /** Milliseconds per second. */
  busy: Spread;
  backPressured: Spread;
  idle: Spread;
  /** Records per second. */
  recordsIn: Spread;
  recordsOut: Spread;
  /** Records since the start. */
  readRecords: number;
  writeRecords: number;
  /** The least and the greatest input watermark of its subtasks. */
  watermark: Spread;
  /** Empty until it has been asked for. */
  subtasks: readonly SubtaskFacts[];
}

export interface JobFacts {
  state: JobStatus;
  now: number;
  timestamps: Partial<Record<JobStatus, number>>;
  /** Sources first. */
  vertices: readonly VertexFacts[];
}

/** The longest phases that a subtask of a vertex had in the last completed checkpoint, in milliseconds. */
export interface CheckpointPhases {
  checkpointId: number;
  vertexId: string;
  startDelayMs: number;
  alignmentMs: number;
  syncMs: number;
  asyncMs: number;
}

/** Samples of the stacks of a vertex, or of one of its subtasks. */
export interface CpuSamples {
  vertexId: string;
  subtask: number | null;
  onCpu: number;
  offCpu: number;
}

export function isSource(vertex: VertexFacts): boolean {
  return vertex.inputs.length === 0;
}

export function successors(facts: JobFacts): Map<string, VertexFacts[]> {
  const found = new Map<string, VertexFacts[]>(facts.vertices.map((vertex) => [vertex.id, []]));
  for (const vertex of facts.vertices) {
    for (const input of vertex.inputs) {
      found.get(input)?.push(vertex);
    }
  }
  return found;
}

/** A vertex's name, cut where a chain of many operators would fill a line. */
export function shortName(name: string, limit = 60): string {
  return name.length > limit ? `${name.slice(0, limit - 1)}…` : name;
}

/** The name of a vertex in a sentence. */
export function quoted(vertex: VertexFacts): string {
  return `“${shortName(vertex.name)}”`;
}
