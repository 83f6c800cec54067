/** Asks the routes for what the graph draws and what diagnoses need. */

import * as api from "../api";
import { UNKNOWN, type CheckpointPhases, type CpuSamples, type Spread, type SubtaskFacts, type VertexFacts } from "../diagnosis/facts";
import type { CheckpointFacts, SubtaskWatermarks } from "../diagnosis/silence";
import {
  TERMINAL,
  type AggregatedMetric,
  type CheckpointingStatistics,
  type IOMetrics,
  type Job,
  type JobVertex,
  type SubtaskEventTime,
} from "../types";
import { number } from "./format";
import { inTurns } from "./Poller";
import type { VertexRates } from "./VertexRates";

/** Requests under way at the same time for one page. */
const PARALLEL = 4;
/** So many vertices are asked for their figures in one round. */
export const ASKED_MAX = 60;
/** So many vertices are asked for their subtasks in one round; of larger jobs, those that matter most. */
const DETAILED_MAX = 24;
const TASK_MANAGERS_MAX = 24;

const LIVE = [
  "busyTimeMsPerSecond",
  "backPressuredTimeMsPerSecond",
  "idleTimeMsPerSecond",
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "currentInputWatermark",
] as const;

export const GC_METRIC = "Status.JVM.GarbageCollector.All.TimeMsPerSecond";

export type LiveFigures = Pick<
  VertexFacts,
  "busy" | "backPressured" | "idle" | "recordsIn" | "recordsOut" | "watermark"
>;

/**
 * Figures of every vertex of a job, by id. Vertices that do not run have none and are not asked. Of a large job, those
 * that work or wait most are asked; of the others, rates from the totals in the job's own answers are enough.
 */
export async function loadLive(job: Job, rates: VertexRates, signal: AbortSignal): Promise<Map<string, LiveFigures>> {
  const running = job.vertices.filter((vertex) => (vertex.tasks.RUNNING ?? 0) + (vertex.tasks.INITIALIZING ?? 0) > 0);
  const figures = new Map<string, LiveFigures>();
  for (const vertex of running) {
    const known = rates.of(vertex.id);
    if (known !== undefined) {
      figures.set(vertex.id, { ...known, watermark: UNKNOWN });
    }
  }
  const found = await inTurns(mostActive(running, rates), PARALLEL, async (vertex) => {
    const metrics = await api.vertexSubtaskMetrics(job.jid, vertex.id, LIVE, signal);
    return [vertex.id, liveFigures(metrics)] as const;
  });
  for (const [id, live] of found) {
    figures.set(id, live);
  }
  return figures;
}

function mostActive(vertices: readonly JobVertex[], rates: VertexRates): readonly JobVertex[] {
  if (vertices.length <= ASKED_MAX) {
    return vertices;
  }
  const activity = (vertex: JobVertex): number => {
    const known = rates.of(vertex.id);
    return Math.max(known?.busy.max ?? 0, known?.backPressured.max ?? 0);
  };
  return [...vertices].sort((a, b) => activity(b) - activity(a)).slice(0, ASKED_MAX);
}

function liveFigures(metrics: readonly AggregatedMetric[]): LiveFigures {
  const byId = new Map(metrics.map((metric) => [metric.id, spreadOf(metric)]));
  const of = (name: (typeof LIVE)[number]): Spread => byId.get(name) ?? UNKNOWN;
  return {
    busy: of("busyTimeMsPerSecond"),
    backPressured: of("backPressuredTimeMsPerSecond"),
    idle: of("idleTimeMsPerSecond"),
    recordsIn: of("numRecordsInPerSecond"),
    recordsOut: of("numRecordsOutPerSecond"),
    watermark: of("currentInputWatermark"),
  };
}

function spreadOf(metric: AggregatedMetric): Spread {
  return { min: number(metric.min), max: number(metric.max), avg: number(metric.avg), sum: number(metric.sum) };
}

export function vertexFacts(job: Job, live: ReadonlyMap<string, LiveFigures>): VertexFacts[] {
  const nodes = new Map(job.plan.nodes.map((node) => [node.id, node]));
  const nothing: LiveFigures = {
    busy: UNKNOWN,
    backPressured: UNKNOWN,
    idle: UNKNOWN,
    recordsIn: UNKNOWN,
    recordsOut: UNKNOWN,
    watermark: UNKNOWN,
  };
  const ended = TERMINAL.includes(job.state);
  const named = new Map<string, number>();
  for (const vertex of job.vertices) {
    named.set(vertex.name, (named.get(vertex.name) ?? 0) + 1);
  }
  return job.vertices.map((vertex: JobVertex) => ({
    id: vertex.id,
    // Two vertices of one name are told apart by their ids.
    name: named.get(vertex.name) === 1 ? vertex.name : `${vertex.name} [${vertex.id.slice(0, 6)}]`,
    parallelism: vertex.parallelism,
    maxParallelism: vertex.maxParallelism,
    status: vertex.status,
    tasks: vertex.tasks,
    inputs: [...new Set((nodes.get(vertex.id)?.inputs ?? []).map((input) => input.id))],
    shipStrategies: [...new Set((nodes.get(vertex.id)?.inputs ?? []).map((input) => input.ship_strategy))],
    readRecords: vertex.metrics["read-records"],
    writeRecords: vertex.metrics["write-records"],
    subtasks: [],
    ...(live.get(vertex.id) ?? (ended ? { ...nothing, ...wholeLife(vertex.metrics) } : nothing)),
  }));
}

/** How the tasks of a vertex that has ended spent their time, from beginning to end. */
export function wholeLife(metrics: IOMetrics): Pick<VertexFacts, "busy" | "backPressured" | "idle"> {
  const [busy, backPressured, idle] = [
    number(metrics["accumulated-busy-time"]) ?? 0,
    metrics["accumulated-backpressured-time"],
    metrics["accumulated-idle-time"],
  ];
  const total = busy + backPressured + idle;
  const of = (part: number): Spread => {
    const ms = total > 0 ? (part / total) * 1000 : null;
    return { min: ms, max: ms, avg: ms, sum: null };
  };
  return { busy: of(busy), backPressured: of(backPressured), idle: of(idle) };
}

/** Adds the subtasks of those vertices that may be the slow ones: busy, waiting, or next to one that waits. */
export async function withSubtasks(job: Job, vertices: readonly VertexFacts[], signal: AbortSignal): Promise<VertexFacts[]> {
  const score = (vertex: VertexFacts): number => Math.max(vertex.busy.max ?? 0, vertex.backPressured.max ?? 0);
  const wanted = [...vertices].sort((a, b) => score(b) - score(a)).slice(0, DETAILED_MAX);
  const found = await inTurns(wanted, PARALLEL, async (vertex) => {
    const details = await api.vertex(job.jid, vertex.id, signal);
    const pressure = await api.vertexBackPressure(job.jid, vertex.id, signal);
    const ratios = new Map((pressure.subtasks ?? []).map((each) => [each.subtask, each]));
    const subtasks = details.subtasks.map((attempt): SubtaskFacts => {
      const ratio = ratios.get(attempt.subtask);
      return {
        index: attempt.subtask,
        status: attempt.status,
        taskManagerId: attempt["taskmanager-id"],
        endpoint: attempt.endpoint,
        busy: number(ratio?.busyRatio),
        backPressured: ratio?.ratio ?? null,
        idle: ratio?.idleRatio ?? null,
        readRecords: attempt.metrics["read-records"],
        writeRecords: attempt.metrics["write-records"],
      };
    });
    return [vertex.id, subtasks] as const;
  });
  const byId = new Map(found);
  return vertices.map((vertex) => ({ ...vertex, subtasks: byId.get(vertex.id) ?? [] }));
}

export async function loadGc(vertices: readonly VertexFacts[], signal: AbortSignal): Promise<Record<string, number>> {
  const busy = vertices.filter((vertex) => (vertex.busy.max ?? 0) > 0);
  const ids = [...new Set(busy.flatMap((vertex) => vertex.subtasks.map((subtask) => subtask.taskManagerId)))]
    .filter((id) => id !== "" && !id.startsWith("("))
    .slice(0, TASK_MANAGERS_MAX);
  const found = await inTurns(ids, PARALLEL, async (id) => {
    try {
      const metrics = await api.taskManagerMetrics(id, [GC_METRIC], signal);
      return [id, number(metrics[0]?.value)] as const;
    } catch (error) {
      if (error instanceof api.ApiError && error.status >= 404) {
        return [id, null] as const; // It has just gone: the next round has its successor.
      }
      throw error;
    }
  });
  return Object.fromEntries(found.filter((each): each is readonly [string, number] => each[1] !== null));
}

/** Phases of the last completed checkpoint, for the vertices named. */
export async function loadPhases(
  jobid: string,
  statistics: CheckpointingStatistics | null,
  vertexIds: readonly string[],
  signal: AbortSignal,
): Promise<CheckpointPhases[]> {
  const last = statistics?.latest.completed;
  if (last === null || last === undefined) {
    return [];
  }
  const { tasks } = await api.checkpointDetails(jobid, last.id, signal);
  const part = vertexIds.filter((id) => tasks[id] !== undefined).slice(0, DETAILED_MAX);
  return inTurns(part, PARALLEL, async (vertexId) => {
    const details = await api.checkpointSubtasks(jobid, last.id, vertexId, signal);
    return {
      checkpointId: last.id,
      vertexId,
      startDelayMs: details.summary?.start_delay.max ?? 0,
      alignmentMs: details.summary?.alignment.duration.max ?? 0,
      syncMs: details.summary?.checkpoint_duration.sync.max ?? 0,
      asyncMs: details.summary?.checkpoint_duration.async.max ?? 0,
    };
  });
}

/**
 * How many samples of a vertex, or of one subtask, found it on the processor and off it; null while there are none.
 * The first request begins to sample.
 */
export async function loadSamples(
  jobid: string,
  vertexId: string,
  subtask: number | undefined,
  signal: AbortSignal,
): Promise<CpuSamples | null> {
  const onCpu = await api.orNull(api.vertexFlameGraph(jobid, vertexId, "ON_CPU", subtask, signal));
  const offCpu = await api.orNull(api.vertexFlameGraph(jobid, vertexId, "OFF_CPU", subtask, signal));
  return onCpu?.data === undefined || offCpu?.data === undefined
    ? null
    : { vertexId, subtask: subtask ?? null, onCpu: onCpu.data.value, offCpu: offCpu.data.value };
}

/** What running subtasks tell of their watermarks, and sources of their splits: any vertex may assign watermarks. */
export function subtaskWatermarks(subtasks: readonly SubtaskEventTime[]): SubtaskWatermarks[] {
  return subtasks.map((each) => ({
    vertexId: each.vertex,
    subtask: each.subtask,
    inputWatermark: each["input-watermark"],
    outputWatermark: each["output-watermark"],
    begun: each["start-time"] > 0 ? each["start-time"] : null,
    idleMs: each["idle-time"],
    hasRead: each["records-read"] !== 0,
    splits: each.splits,
  }));
}

export function checkpointFacts(statistics: CheckpointingStatistics | null, intervalMs: number | null): CheckpointFacts | null {
  if (statistics === null || intervalMs === null) {
    return null;
  }
  const completed = statistics.latest.completed;
  return {
    intervalMs,
    completed: statistics.counts.completed,
    failed: statistics.counts.failed,
    lastCompletedAt: completed === null ? null : completed.latest_ack_timestamp,
    lastFailure: statistics.latest.failed?.failure_message ?? null,
  };
}
