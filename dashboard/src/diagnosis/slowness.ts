/**
 * Finds out why a job is slow: names the vertex that holds the others up, with what shows it.
 *
 * Back pressure goes against the stream: everything in front of a bottleneck waits for room, the bottleneck itself does
 * not. So it is among the vertices that receive from one that waits and do not wait themselves; of those, the busiest.
 */

import { duration, percent, plural } from "../model/format";
import type { MetricsHistory } from "../types";
import { isSource, quoted, successors, type CheckpointPhases, type JobFacts, type VertexFacts } from "./facts";
import { sinceSentence, sinceWhen } from "./since";

export interface SlownessFacts extends JobFacts {
  /** Milliseconds of garbage collection per second, by TaskManager. */
  gcMsPerSecond: Readonly<Record<string, number>>;
  checkpointPhases: readonly CheckpointPhases[];
  /** Null where it could not be had. */
  history: MetricsHistory | null;
}

export type Verdict = "bottleneck" | "source" | "waits-outside" | "keeps-up" | "not-running" | "ended" | "unknown";

export interface Evidence {
  kind: "busy" | "upstream" | "since" | "subtask" | "skew" | "checkpoint" | "gc" | "state";
  text: string;
}

export interface Slowness {
  verdict: Verdict;
  headline: string;
  vertexId: string | null;
  /** The subtask that is slower than the others, where one is. */
  subtask: number | null;
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
  const verdict = isSource(busiest) ? "source" : "bottleneck";
  const headline = isSource(busiest)
    ? `${quoted(busiest)} reads as fast as it can`
    : `${quoted(busiest)} works at its limit, and keeps up so far`;
  return result(verdict, headline, {
    vertexId: busiest.id,
    subtask,
    evidence: [
      ...busyEvidence(busiest),
      ...sinceEvidence(facts, [busiest.id], "busy", BUSY_MS),
      { kind: "upstream", text: "No vertex waits for room in its output: nothing behind it is slower." },
      ...evidenceOfSubtasks(busiest, subtask),
      ...evidenceAround(facts, busiest),
    ],
    advice: adviceFor(busiest, subtask),
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
  return result(
    works ? "bottleneck" : "waits-outside",
    works
      ? `${quoted(found)} is the bottleneck`
      : `${quoted(found)} holds the others up, but does not work: it waits for something outside`,
    {
      vertexId: found.id,
      subtask,
      evidence: [
        ...busyEvidence(found),
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
        ? adviceFor(found, subtask)
        : [
            "Its off-CPU flame graph names the line that waits: a database, a service, a lock, a full disk.",
            "Calls to a service belong into an asynchronous function.",
          ],
    },
  );
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
      ? `It works ${perSecond(max)}.`
      : `Its subtasks work ${perSecond(avg)} on average, the busiest ${perSecond(max)}.`;
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
        `Subtask ${skew.subtask} has received ${percent(skew.share)} of the records of ${vertex.parallelism} subtasks, ` +
        `${skew.factor.toFixed(1)} times its share: some keys are hot, or there are few keys.`,
    });
  }
  return found;
}

export interface Skew {
  subtask: number;
  share: number;
  factor: number;
}

/** The subtask that received far more records than its share, where there is one. */
export function skewOf(vertex: VertexFacts): Skew | null {
  const total = vertex.subtasks.reduce((sum, each) => sum + each.readRecords, 0);
  if (vertex.subtasks.length < 2 || total === 0) {
    return null;
  }
  const most = vertex.subtasks.reduce((a, b) => (b.readRecords > a.readRecords ? b : a));
  const share = most.readRecords / total;
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

function adviceFor(vertex: VertexFacts, slow: number | null): string[] {
  const flames = "Its on-CPU flame graph names the lines that take the time.";
  if (slow !== null || skewOf(vertex) !== null) {
    return [
      "More subtasks do not help one hot key: aggregate before the exchange, or add a salt to the key and combine twice.",
      flames,
    ];
  }
  const room = vertex.maxParallelism <= 0 || vertex.parallelism < vertex.maxParallelism;
  return room
    ? [`All its subtasks are busy: more than ${vertex.parallelism} share the work.`, flames]
    : [`It has ${plural(vertex.parallelism, "subtask")}, all that its maximum parallelism allows.`, flames];
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
  return { verdict, headline, vertexId: null, subtask: null, evidence: [], advice: [], ...more };
}
