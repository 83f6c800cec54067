/**
 * Finds out why a job is slow: names the vertex that holds the others up, with what shows it.
 *
 * Back pressure goes against the stream: everything in front of a bottleneck waits for room, the bottleneck itself does
 * not. So it is among the vertices that receive from one that waits and do not wait themselves; of those, the busiest.
 * A task is busy while a function of it runs, also one that sleeps or calls a service: samples tell whether it computes.
 */

import { duration, percent, plural } from "../model/format";
import type { MetricsHistory } from "../types";
import { isSource, quoted, successors, type CheckpointPhases, type CpuSamples, type JobFacts, type SubtaskFacts, type VertexFacts } from "./facts";
import { sinceSentence, sinceWhen } from "./since";

export interface SlownessFacts extends JobFacts {
  /** Milliseconds of garbage collection per second, by TaskManager. */
  gcMsPerSecond: Readonly<Record<string, number>>;
  checkpointPhases: readonly CheckpointPhases[];
  /** Null where it could not be had. */
  history: MetricsHistory | null;
  /** Of the vertex that was found last; null where none have come. */
  samples: CpuSamples | null;
}

export type Verdict = "bottleneck" | "source" | "waits-outside" | "keeps-up" | "not-running" | "ended" | "unknown";

export interface Evidence {
  kind: "busy" | "cpu" | "upstream" | "since" | "subtask" | "skew" | "checkpoint" | "gc" | "state";
  text: string;
}

export interface Slowness {
  verdict: Verdict;
  headline: string;
  vertexId: string | null;
  /** The subtask that is slower than the others, where one is. */
  subtask: number | null;
  /** Null where nobody knows whether it computes or waits while it is busy. */
  computes: boolean | null;
  evidence: readonly Evidence[];
  advice: readonly string[];
}

/** From here on a wait for room counts, as in Flink's back pressure level "low": 100 ms of each second. */
export const BACK_PRESSURED_MS = 100;
/** From here on a task is taken to be at its limit. */
export const BUSY_MS = 800;
/** Below this, a task that holds others up does not do so by working. */
export const WORKING_MS = 500;
export const SKEW_FACTOR = 1.5;
export const LONG_PHASE_MS = 1_000;
export const GC_MS = 100;
/** A function that is on the processor for less than this share of its busy time waits. */
export const COMPUTING_SHARE = 0.5;
/** Fewer samples than this tell nothing. */
export const SAMPLES_MIN = 20;

export function findSlowness(facts: SlownessFacts): Slowness {
  if (facts.state === "FINISHED" || facts.state === "CANCELED") {
    return result("ended", `The job has ended (${facts.state}): it processes nothing any more`, {
      evidence: [{ kind: "state", text: `It ended ${since(facts)}.` }],
      advice: ["How it did from its start to its end is drawn below its graph, and on Metrics."],
    });
  }
  if (facts.state !== "RUNNING") {
    return result("not-running", `The job is ${facts.state}: it processes nothing now`, {
      evidence: [{ kind: "state", text: `It entered this state ${since(facts)}.` }],
      advice: ["Exceptions tell why it is not running."],
    });
  }
  const known = facts.vertices.filter((vertex) => vertex.busy.max !== null);
  if (known.length === 0) {
    return result("unknown", "No vertex has reported how it spends its time yet", {
      advice: ["Metrics come some ten seconds after the start."],
    });
  }
  const waiting = facts.vertices.filter(isBackPressured);
  return waiting.length === 0 ? withoutBackPressure(facts, known) : behindTheWaiting(facts, waiting);
}

function withoutBackPressure(facts: SlownessFacts, known: readonly VertexFacts[]): Slowness {
  const busiest = mostBusy(known);
  if (busiest === null || (busiest.busy.max ?? 0) < BUSY_MS) {
    return result("keeps-up", "Nothing holds this job up", {
      vertexId: null,
      evidence:
        busiest === null
          ? []
          : [{ kind: "busy", text: `The busiest vertex, ${quoted(busiest)}, works ${perSecond(busiest.busy.max)}.` }],
      advice: ["If its results are late, more records do not arrive: look at the source and at what feeds it."],
    });
  }
  const subtask = slowSubtask(busiest);
  const computes = doesCompute(facts, busiest, subtask);
  const verdict = computes === false ? "waits-outside" : isSource(busiest) ? "source" : "bottleneck";
  const headline = computes === false
    ? `${quoted(busiest)} waits inside a function, and keeps up so far`
    : isSource(busiest)
    ? `${quoted(busiest)} reads as fast as it can`
    : `${quoted(busiest)} works at its limit, and keeps up so far`;
  return result(verdict, headline, {
    vertexId: busiest.id,
    subtask,
    computes,
    evidence: [
      ...busyEvidence(busiest),
      ...cpuEvidence(facts, busiest, subtask),
      ...sinceEvidence(facts, [busiest.id], "busy", BUSY_MS),
      { kind: "upstream", text: "No vertex waits for room in its output: nothing behind it is slower." },
      ...evidenceOfSubtasks(busiest, subtask),
      ...evidenceAround(facts, busiest),
    ],
    advice: adviceFor(busiest, subtask, computes),
  });
}

function behindTheWaiting(facts: SlownessFacts, waiting: readonly VertexFacts[]): Slowness {
  const next = successors(facts);
  const waits = new Set(waiting.map((vertex) => vertex.id));
  const frontier = new Map<string, VertexFacts>();
  for (const vertex of waiting) {
    for (const successor of next.get(vertex.id) ?? []) {
      if (!waits.has(successor.id)) {
        frontier.set(successor.id, successor);
      }
    }
  }
  const found = mostBusy([...frontier.values()]) ?? [...frontier.values()][0];
  if (found === undefined) {
    return result("unknown", "Vertices wait for room, and what they wait for has not reported yet", {
      evidence: waiting.map((vertex) => ({ kind: "upstream" as const, text: waitsText(vertex) })),
      advice: ["Metrics come some ten seconds after the start."],
    });
  }
  const upstream = waiting.filter((vertex) => found.inputs.includes(vertex.id));
  const subtask = slowSubtask(found);
  const works = (found.busy.max ?? 0) >= WORKING_MS;
  const computes = works ? doesCompute(facts, found, subtask) : false;
  return result(
    computes === false ? "waits-outside" : "bottleneck",
    works
      ? `${quoted(found)} is the bottleneck${computes === false ? ": its function waits" : ""}`
      : `${quoted(found)} holds the others up, but does not work: it waits for something outside`,
    {
      vertexId: found.id,
      subtask,
      computes,
      evidence: [
        ...busyEvidence(found),
        ...(works ? cpuEvidence(facts, found, subtask) : []),
        ...upstream.map((vertex) => ({ kind: "upstream" as const, text: waitsText(vertex) })),
        ...sinceEvidence(
          facts,
          upstream.map((vertex) => vertex.id),
          "back-pressured",
          BACK_PRESSURED_MS,
        ),
        ...evidenceOfSubtasks(found, subtask),
        ...evidenceAround(facts, found),
      ],
      advice: works
        ? adviceFor(found, subtask, computes)
        : [WAITING_LINES, "Calls to a service belong into an asynchronous function."],
    },
  );
}

const WAITING_LINES = "Its off-CPU flame graph names the line that waits: a database, a service, a lock, a full disk.";

/** The share of its time that a vertex, or its slow subtask, was on the processor; null while nobody knows. */
function cpuShare(facts: SlownessFacts, vertex: VertexFacts, subtask: number | null): number | null {
  const samples = facts.samples;
  if (samples === null || samples.vertexId !== vertex.id || samples.subtask !== subtask) {
    return null;
  }
  const total = samples.onCpu + samples.offCpu;
  return total < SAMPLES_MIN ? null : samples.onCpu / total;
}

/** Whether a busy vertex computes while it is busy; samples have its idle time too, which is off the processor. */
function doesCompute(facts: SlownessFacts, vertex: VertexFacts, subtask: number | null): boolean | null {
  const share = cpuShare(facts, vertex, subtask);
  const slow = vertex.subtasks.find((each) => each.index === subtask);
  const busy = slow?.busy ?? (vertex.busy.avg ?? vertex.busy.max ?? 0) / 1000;
  return share === null || busy <= 0 ? null : share >= COMPUTING_SHARE * busy;
}

function cpuEvidence(facts: SlownessFacts, vertex: VertexFacts, subtask: number | null): Evidence[] {
  const share = cpuShare(facts, vertex, subtask);
  const computes = doesCompute(facts, vertex, subtask);
  if (share === null || computes === null) {
    return [];
  }
  const whole = `It is on the processor in ${percent(share)} of its samples`;
  return [{ kind: "cpu", text: computes ? `${whole}: it computes.` : `${whole}: while it is busy, its function waits for a call, a lock or a free core.` }];
}

function sinceEvidence(facts: SlownessFacts, vertexIds: readonly string[], column: "busy" | "back-pressured", limit: number): Evidence[] {
  const found = sinceWhen(facts.history, vertexIds, column, limit);
  return found === null ? [] : [{ kind: "since", text: sinceSentence(found, facts.now) }];
}

function isBackPressured(vertex: VertexFacts): boolean {
  return (vertex.backPressured.max ?? 0) >= BACK_PRESSURED_MS;
}

function mostBusy(vertices: readonly VertexFacts[]): VertexFacts | null {
  let found: VertexFacts | null = null;
  for (const vertex of vertices) {
    if (found === null || (vertex.busy.max ?? -1) > (found.busy.max ?? -1)) {
      found = vertex;
    }
  }
  return found;
}

/** The subtask that works while the others wait for input, where there is one. */
function slowSubtask(vertex: VertexFacts): number | null {
  const known = vertex.subtasks.filter((subtask) => subtask.busy !== null);
  if (known.length < 2) {
    return null;
  }
  const busiest = known.reduce((most, each) => ((each.busy ?? 0) > (most.busy ?? 0) ? each : most));
  const others = known.filter((each) => each !== busiest);
  const average = others.reduce((sum, each) => sum + (each.busy ?? 0), 0) / others.length;
  return (busiest.busy ?? 0) >= SKEW_FACTOR * average && (busiest.busy ?? 0) >= WORKING_MS / 1000
    ? busiest.index
    : null;
}

function busyEvidence(vertex: VertexFacts): Evidence[] {
  if (vertex.busy.max === null) {
    return [];
  }
  const { avg, max } = vertex.busy;
  const text =
    vertex.parallelism === 1 || avg === null
      ? `It is busy ${perSecond(max)}.`
      : `Its subtasks are busy ${perSecond(avg)} on average, the busiest ${perSecond(max)}.`;
  return [{ kind: "busy", text }];
}

function evidenceOfSubtasks(vertex: VertexFacts, slow: number | null): Evidence[] {
  const found: Evidence[] = [];
  const subtask = vertex.subtasks.find((each) => each.index === slow);
  if (subtask !== undefined) {
    found.push({
      kind: "subtask",
      text: `Subtask ${subtask.index} on ${subtask.taskManagerId} is busy ${percent(subtask.busy)} of its time; the others are not.`,
    });
  }
  const skew = skewOf(vertex);
  if (skew !== null) {
    found.push({
      kind: "skew",
      text:
        `Subtask ${skew.subtask} has ${isSource(vertex) ? "read" : "received"} ${percent(skew.share)} of the records of ${vertex.parallelism} subtasks, ` +
        `${skew.factor.toFixed(1)} times its share${isKeyed(vertex) ? ": some keys are hot, or there are few keys" : ""}.`,
    });
  }
  return found;
}

export interface Skew {
  subtask: number;
  share: number;
  factor: number;
}

/** The subtask that received, or read, far more records than its share, where there is one. */
export function skewOf(vertex: VertexFacts): Skew | null {
  // A source receives nothing: what it sends is what it has read.
  const records = (each: SubtaskFacts): number => (isSource(vertex) ? each.writeRecords : each.readRecords);
  const total = vertex.subtasks.reduce((sum, each) => sum + records(each), 0);
  if (vertex.subtasks.length < 2 || total === 0) {
    return null;
  }
  const most = vertex.subtasks.reduce((a, b) => (records(b) > records(a) ? b : a));
  const share = records(most) / total;
  const factor = share * vertex.subtasks.length;
  return factor >= SKEW_FACTOR ? { subtask: most.index, share, factor } : null;
}

function evidenceAround(facts: SlownessFacts, vertex: VertexFacts): Evidence[] {
  const found: Evidence[] = [];
  for (const phases of facts.checkpointPhases.filter((each) => each.vertexId === vertex.id)) {
    const parts = [
      phases.startDelayMs >= LONG_PHASE_MS ? `its barriers came ${duration(phases.startDelayMs)} late` : null,
      phases.alignmentMs >= LONG_PHASE_MS ? `it aligned for ${duration(phases.alignmentMs)}` : null,
      phases.syncMs >= LONG_PHASE_MS ? `it stood still ${duration(phases.syncMs)} for its snapshot` : null,
    ].filter((part) => part !== null);
    if (parts.length > 0) {
      found.push({ kind: "checkpoint", text: `In checkpoint ${phases.checkpointId}, ${parts.join(", ")}.` });
    }
  }
  const hosts = new Set(vertex.subtasks.map((subtask) => subtask.taskManagerId));
  for (const [taskManagerId, ms] of Object.entries(facts.gcMsPerSecond)) {
    if (hosts.has(taskManagerId) && ms >= GC_MS) {
      found.push({ kind: "gc", text: `TaskManager ${taskManagerId} collects garbage ${perSecond(ms)}.` });
    }
  }
  return found;
}

/** Whether keys decide which subtask receives a record. */
export function isKeyed(vertex: VertexFacts): boolean {
  return vertex.shipStrategies.includes("HASH");
}

function adviceFor(vertex: VertexFacts, slow: number | null, computes: boolean | null): string[] {
  const waits = "A call to a service belongs into an asynchronous function; one that is there already needs more capacity.";
  const lines =
    computes === null
      ? ["Its mixed flame graph names the lines that take the time, or wait."]
      : computes
        ? ["Its on-CPU flame graph names the lines that take the time."]
        : [WAITING_LINES, waits];
  const skew = skewOf(vertex);
  if (skew !== null && (slow === null || slow === skew.subtask)) {
    const where = isKeyed(vertex)
      ? "More subtasks do not help one hot key: aggregate before the exchange, or add a salt to the key and combine twice."
      : isSource(vertex)
        ? "One subtask reads most of the records: more and smaller splits, or partitions, share them."
        : "One subtask receives most of the records, and no key decides that: a rebalance in front of it shares them.";
    return [where, ...lines];
  }
  if (slow !== null) {
    const look = isSource(vertex) ? "its splits" : "what its records ask for";
    return [
      `Subtask ${slow} has no more records than the others and is slow with them: look at its TaskManager (load of the host, memory, garbage collection), and at ${look}.`,
      ...lines,
    ];
  }
  const room = vertex.maxParallelism <= 0 || vertex.parallelism < vertex.maxParallelism;
  return room
    ? [`All its subtasks are busy: more than ${vertex.parallelism} share the work.`, ...lines]
    : [`It has ${plural(vertex.parallelism, "subtask")}, all that its maximum parallelism allows.`, ...lines];
}

function waitsText(vertex: VertexFacts): string {
  return `${quoted(vertex)}, in front of it, waits for room ${perSecond(vertex.backPressured.max)}.`;
}

function perSecond(ms: number | null): string {
  return ms === null ? "an unknown time" : `${Math.round(ms)} ms of each second`;
}

function since(facts: JobFacts): string {
  const at = facts.timestamps[facts.state];
  return at === undefined || at <= 0 ? "at an unknown time" : `${duration(facts.now - at)} ago`;
}

function result(verdict: Verdict, headline: string, more: Partial<Slowness>): Slowness {
  return { verdict, headline, vertexId: null, subtask: null, computes: null, evidence: [], advice: [], ...more };
}
