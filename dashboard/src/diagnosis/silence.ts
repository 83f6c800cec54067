/**
 * Finds out why a job puts nothing out: whether it runs, whether records come in, where they stop, which input holds
 * the watermark back and since when, and whether sinks wait for a checkpoint.
 */

import { count, duration, LAST_WATERMARK, plural, time, watermark } from "../model/format";
import { isSource, quoted, successors, type JobFacts, type VertexFacts } from "./facts";
import { BACK_PRESSURED_MS } from "./slowness";

/** Event time of a running subtask, and of the splits that it reads. */
export interface SubtaskWatermarks {
  vertexId: string;
  subtask: number;
  /** Null before the first one: the metric is not there until then. */
  inputWatermark: number | null;
  /** Null before the first one, and where nothing receives from this vertex. */
  outputWatermark: number | null;
  /** When it began to run; null where nobody asked. */
  begun: number | null;
  /** Milliseconds since a source's subtask emitted the last record, or began. */
  idleMs: number | null;
  /** Whether it has read a record; true of what is no source. */
  hasRead: boolean;
  splits: readonly { id: string; watermark: number | null }[];
}

/** Since when a watermark stands where it stands. `exact` says that it was seen to move there. */
export interface Standing {
  since: number;
  exact: boolean;
}

export interface CheckpointFacts {
  intervalMs: number;
  completed: number;
  failed: number;
  lastCompletedAt: number | null;
  lastFailure: string | null;
}

export interface SilenceFacts extends JobFacts {
  /** Subtasks whose watermarks are known, of any vertex. */
  watermarks: readonly SubtaskWatermarks[];
  /** Since when the output watermark of a subtask stands, by `watermarkKey`. */
  standing: ReadonlyMap<string, Standing>;
  /** Null where checkpointing is off. */
  checkpoints: CheckpointFacts | null;
}

export type FindingKind =
  | "not-running"
  | "tasks-missing"
  | "no-input"
  | "idle-source"
  | "watermark"
  | "no-watermark"
  | "stops-here"
  | "back-pressure"
  | "checkpoint"
  | "no-checkpoint"
  | "flows"
  | "ended";

export interface Finding {
  kind: FindingKind;
  /** "cause" stops the output, "hint" may, "fact" does not. */
  weight: "cause" | "hint" | "fact";
  title: string;
  text: string;
  vertexId: string | null;
  subtask: number | null;
  since: Standing | null;
}

/** A watermark that is this far behind those of other inputs holds them back. */
export const HELD_BACK_MS = 10_000;
/** A source that has been silent for so long is named. */
export const SILENT_MS = 10_000;
/** A watermark that changed within this time moves, however far behind it is. */
export const MOVES_MS = 5_000;
/** So many intervals without a completed checkpoint are too many. */
export const LATE_INTERVALS = 3;

export function watermarkKey(vertexId: string, subtask: number): string {
  return `${vertexId}:${subtask}`;
}

/** Finds what stops the output; causes first, in the order in which records travel. */
export function findSilence(facts: SilenceFacts): Finding[] {
  if (facts.state !== "RUNNING") {
    return [notRunning(facts)];
  }
  const found = [
    ...missingTasks(facts),
    ...silentSources(facts),
    ...heldBackWatermark(facts),
    ...whereRecordsStop(facts),
    ...backPressure(facts),
    ...waitingForCheckpoints(facts),
    ...flowing(facts),
  ];
  const order = { cause: 0, hint: 1, fact: 2 };
  return found.sort((a, b) => order[a.weight] - order[b.weight]);
}

function notRunning(facts: SilenceFacts): Finding {
  const at = facts.timestamps[facts.state];
  const since = at === undefined || at <= 0 ? null : { since: at, exact: true };
  switch (facts.state) {
    case "FINISHED":
      return finding("ended", "fact", "The job has finished", "It put out all it had.", { since });
    case "CANCELED":
      return finding("ended", "cause", "The job is CANCELED", "Somebody stopped it: nothing comes any more.", { since });
    case "SUSPENDED":
      return finding("ended", "cause", "The job is SUSPENDED", "This driver no longer leads: another one goes on with the job.", { since });
    case "FAILED":
      return finding("ended", "cause", "The job has failed", "Its exceptions name the file and the line.", { since });
    case "CREATED":
    case "INITIALIZING":
      return finding(
        "not-running",
        "cause",
        `The job is ${facts.state}: it has not begun`,
        "It waits for slots or for its state. The overview tells how many slots are free.",
        { since },
      );
    case "RECONCILING":
      return finding(
        "not-running",
        "cause",
        "The job is RECONCILING: another driver has led it until now",
        "It goes on once its last checkpoint is read, and the TaskManagers that are left have offered their slots.",
        { since },
      );
    default:
      return finding(
        "not-running",
        "cause",
        `The job is ${facts.state}`,
        "Nothing is put out until it runs again. Its exceptions tell why it stopped.",
        { since },
      );
  }
}

function missingTasks(facts: SilenceFacts): Finding[] {
  const found: Finding[] = [];
  for (const vertex of facts.vertices) {
    const waits = (vertex.tasks.SCHEDULED ?? 0) + (vertex.tasks.CREATED ?? 0);
    const starts = (vertex.tasks.DEPLOYING ?? 0) + (vertex.tasks.INITIALIZING ?? 0);
    if (waits > 0) {
      const text = `${plural(waits, "subtask")} of ${vertex.parallelism} wait for a slot. An input that nobody reads holds all others up.`;
      found.push(finding("tasks-missing", "cause", `${quoted(vertex)} is not running in full`, text, { vertexId: vertex.id }));
    } else if (starts > 0) {
      const text = `${plural(starts, "subtask")} of ${vertex.parallelism} start or restore their state.`;
      found.push(finding("tasks-missing", "cause", `${quoted(vertex)} is starting`, text, { vertexId: vertex.id }));
    }
  }
  return found;
}

function silentSources(facts: SilenceFacts): Finding[] {
  const found: Finding[] = [];
  const next = successors(facts);
  for (const vertex of facts.vertices.filter(isSource)) {
    if (vertex.status === "FINISHED") {
      continue;
    }
    // What is chained from source to sink sends nothing over an edge, however much it reads.
    const sends = (next.get(vertex.id) ?? []).length > 0;
    if (sends && vertex.writeRecords === 0 && (vertex.recordsOut.sum ?? 0) === 0) {
      const text = "It runs and has read no record. Is there something to read: the topic, the folder, the table, the offset it starts from?";
      const begun = facts.timestamps.RUNNING ?? 0;
      const since = begun > 0 ? { since: begun, exact: true } : null;
      found.push(finding("no-input", "cause", `${quoted(vertex)} has sent nothing yet`, text, { vertexId: vertex.id, since }));
      continue;
    }
    const own = facts.watermarks.filter((each) => each.vertexId === vertex.id);
    const silent = own.filter((each) => (each.idleMs ?? 0) >= SILENT_MS);
    if (silent.length === 0) {
      continue;
    }
    const all = silent.length === own.length;
    const longest = silent.reduce((a, b) => ((b.idleMs ?? 0) > (a.idleMs ?? 0) ? b : a));
    found.push(
      finding(
        "idle-source",
        all ? "cause" : "hint",
        all ? `${quoted(vertex)} reads nothing any more` : `${plural(silent.length, "subtask")} of ${quoted(vertex)} ${silent.length === 1 ? "reads" : "read"} nothing`,
        all
          ? `All its subtasks wait for records; subtask ${longest.subtask} has waited longest.`
          : `Subtask ${longest.subtask} has waited longest for a record.`,
        {
          vertexId: vertex.id,
          subtask: longest.subtask,
          since: { since: facts.now - (longest.idleMs ?? 0), exact: true },
        },
      ),
    );
  }
  return found;
}

/**
 * Names what holds back the watermark of each vertex that receives: the channel with the least watermark, where the
 * vertex has not passed it and another of its channels is far ahead. Inputs that never meet are not compared.
 */
function heldBackWatermark(facts: SilenceFacts): Finding[] {
  const found = new Map<string, Finding>();
  for (const receiver of facts.vertices) {
    const holder = holderOf(facts, receiver);
    if (holder !== null) {
      const origin = originOf(facts, holder);
      found.set(
        watermarkKey(origin.vertexId, origin.subtask),
        heldBackBy(facts, receiver, origin, mostAdvanced(channelsInto(facts, receiver))),
      );
    }
  }
  for (const subtask of facts.watermarks) {
    const key = watermarkKey(subtask.vertexId, subtask.subtask);
    const ahead = Math.max(...subtask.splits.map((each) => each.watermark ?? -Infinity));
    const split = leastSplit(subtask);
    // An idle split does not count, so the subtask's watermark passes that of the split.
    const isHeld = split !== null && (subtask.outputWatermark ?? -Infinity) <= (split.watermark ?? -Infinity);
    if (!found.has(key) && isHeld && ahead > -Infinity && ahead - (split.watermark ?? -Infinity) >= HELD_BACK_MS) {
      found.set(key, heldBackBy(facts, null, subtask, ahead));
    }
  }
  return found.size > 0 ? [...found.values()] : withoutEventTime(facts);
}

/** The subtask that holds back the watermark of a vertex, or null where none does. */
function holderOf(facts: SilenceFacts, receiver: VertexFacts): SubtaskWatermarks | null {
  const channels = channelsInto(facts, receiver);
  const holder = leastOf(channels);
  if (holder === null) {
    return null;
  }
  const most = mostAdvanced(channels);
  const isBehind = most - (holder.outputWatermark ?? -Infinity) >= HELD_BACK_MS;
  return isBehind && most > -Infinity && !isPassed(facts, receiver, holder.outputWatermark) ? holder : null;
}

function mostAdvanced(subtasks: readonly SubtaskWatermarks[]): number {
  return Math.max(...subtasks.map((each) => each.outputWatermark ?? -Infinity));
}

/** The subtasks whose watermarks a vertex combines: those of its inputs that have not come to their end. */
function channelsInto(facts: SilenceFacts, receiver: VertexFacts): SubtaskWatermarks[] {
  return facts.watermarks.filter(
    (each) => receiver.inputs.includes(each.vertexId) && (each.outputWatermark ?? -Infinity) < LAST_WATERMARK,
  );
}

function leastOf(subtasks: readonly SubtaskWatermarks[]): SubtaskWatermarks | null {
  return subtasks.reduce<SubtaskWatermarks | null>(
    (least, each) =>
      least === null || (each.outputWatermark ?? -Infinity) < (least.outputWatermark ?? -Infinity) ? each : least,
    null,
  );
}

/** Whether a vertex, or one behind it, is past a watermark in all its subtasks: whoever stands there is idle. */
function isPassed(facts: SilenceFacts, receiver: VertexFacts, value: number | null): boolean {
  const next = successors(facts);
  const reached = new Set([receiver]);
  for (const vertex of reached) {
    const received = facts.watermarks.filter((each) => each.vertexId === vertex.id).map((each) => each.inputWatermark);
    if (received.length > 0 && received.every((each) => each !== null && (value === null || each > value))) {
      return true;
    }
    for (const successor of next.get(vertex.id) ?? []) {
      reached.add(successor);
    }
  }
  return false;
}

/** Follows a watermark against the stream to the subtask that it comes from, or that has never sent one. */
function originOf(facts: SilenceFacts, holder: SubtaskWatermarks): SubtaskWatermarks {
  const vertex = facts.vertices.find((each) => each.id === holder.vertexId);
  if (vertex === undefined || isSource(vertex) || assignsWatermarks(facts, vertex)) {
    return holder;
  }
  // Figures of two subtasks are not of one moment: who is held back by another one is no origin, whatever it shows.
  const heldBy = holderOf(facts, vertex);
  if (heldBy !== null) {
    return originOf(facts, heldBy);
  }
  const before = leastOf(channelsInto(facts, vertex));
  const follows = before !== null && (before.outputWatermark ?? -Infinity) <= (holder.inputWatermark ?? -Infinity);
  return follows ? originOf(facts, before) : holder;
}

/** Whether a vertex sends watermarks that it has not received: its event time begins in it. */
function assignsWatermarks(facts: SilenceFacts, vertex: VertexFacts): boolean {
  return facts.watermarks.some(
    (each) =>
      each.vertexId === vertex.id &&
      (each.outputWatermark ?? -Infinity) > (each.inputWatermark ?? -Infinity) &&
      (each.outputWatermark ?? LAST_WATERMARK) < LAST_WATERMARK,
  );
}

function leastSplit(subtask: SubtaskWatermarks): { id: string; watermark: number | null } | null {
  const ordered = [...subtask.splits].sort((a, b) => (a.watermark ?? -Infinity) - (b.watermark ?? -Infinity));
  return ordered[0] ?? null;
}

/** Says who holds a watermark back; `receiver` is null where it is known of splits of one subtask alone. */
function heldBackBy(facts: SilenceFacts, receiver: VertexFacts | null, holder: SubtaskWatermarks, most: number): Finding {
  const vertex = facts.vertices.find((each) => each.id === holder.vertexId);
  const split = leastSplit(holder);
  const where = `subtask ${holder.subtask}${split === null ? "" : `, split ${split.id}`} of ${vertex === undefined ? holder.vertexId : quoted(vertex)}`;
  const title = `The watermark is held back by ${where}`;
  const name = { vertexId: holder.vertexId, subtask: holder.subtask };
  const advice =
    "Windows fire with the slowest input. If this one has no records, " +
    "tell the watermark strategy with with_idleness after how long it no longer counts.";
  const lowest = holder.outputWatermark;
  if (lowest === null) {
    const begun = holder.begun ?? facts.timestamps.RUNNING ?? 0;
    const since = begun > 0 ? { since: begun, exact: true } : null;
    const waits = receiver === null ? "" : ` ${quoted(receiver)} waits for it.`;
    // Records that leave the receiver need no event time.
    const weight = (receiver?.recordsOut.sum ?? 0) > 0 ? "hint" : "cause";
    return finding("watermark", weight, title, `It has sent no watermark.${waits} ${advice}`, { ...name, since });
  }
  const since =
    holder.idleMs !== null && holder.idleMs >= SILENT_MS
      ? { since: facts.now - holder.idleMs, exact: true }
      : (facts.standing.get(watermarkKey(holder.vertexId, holder.subtask)) ?? null);
  const moves = since !== null && since.exact && facts.now - since.since < MOVES_MS;
  const distance = `${duration(most - lowest)} behind the most advanced input`;
  const text = moves
    ? `It is at ${watermark(lowest)}, ${distance}, and moves: it reads older records than the others. Windows fire with the slowest input.`
    : `It stands at ${watermark(lowest)}, ${distance}. ${advice}`;
  return finding("watermark", "cause", title, text, { ...name, since: moves ? null : since });
}

/** Says that no subtask which sends to another one has a watermark yet. */
function withoutEventTime(facts: SilenceFacts): Finding[] {
  const channels = facts.vertices.flatMap((vertex) => channelsInto(facts, vertex));
  const hasSome = facts.watermarks.some((each) => each.outputWatermark !== null || each.inputWatermark !== null);
  if (channels.length === 0 || hasSome) {
    return [];
  }
  const text =
    "No source has sent a watermark: event-time windows and timers do not fire. A job without event time needs none; " +
    "one with it needs a watermark strategy, and records that carry times.";
  return [finding("no-watermark", "hint", "There is no event time yet", text, {})];
}

function whereRecordsStop(facts: SilenceFacts): Finding[] {
  const next = successors(facts);
  for (const vertex of facts.vertices) {
    const isSink = (next.get(vertex.id) ?? []).length === 0;
    if (!isSource(vertex) && !isSink && vertex.readRecords > 0 && vertex.writeRecords === 0) {
      const text =
        `It has received ${count(vertex.readRecords)} records and sent none: a filter that keeps nothing, a join without ` +
        "partners, or a window that has not fired.";
      return [finding("stops-here", "cause", `Records stop at ${quoted(vertex)}`, text, { vertexId: vertex.id })];
    }
  }
  return [];
}

function backPressure(facts: SilenceFacts): Finding[] {
  const waiting = facts.vertices.find((vertex) => (vertex.backPressured.max ?? 0) >= 5 * BACK_PRESSURED_MS);
  if (waiting === undefined) {
    return [];
  }
  const text = `It waits for room ${Math.round(waiting.backPressured.max ?? 0)} ms of each second. “Why is it slow” names what it waits for.`;
  return [finding("back-pressure", "hint", `${quoted(waiting)} is held up`, text, { vertexId: waiting.id })];
}

function waitingForCheckpoints(facts: SilenceFacts): Finding[] {
  const sinks = sinksWithRecords(facts);
  if (sinks.length === 0) {
    return [];
  }
  const committing = "Sinks that commit (files, transactions of Kafka, tables of Spark) show rows with each completed checkpoint";
  if (facts.checkpoints === null) {
    const text = `${committing}, and this job makes none. Set execution.checkpointing.interval.`;
    return [finding("no-checkpoint", "hint", "Checkpointing is off", text, {})];
  }
  const { intervalMs, lastCompletedAt, completed, failed, lastFailure } = facts.checkpoints;
  const begun = facts.timestamps.RUNNING ?? facts.now;
  const waited = facts.now - Math.max(lastCompletedAt ?? 0, begun);
  if (intervalMs > 0 && waited > LATE_INTERVALS * intervalMs) {
    const why = lastFailure === null ? "" : ` The last one failed: ${lastFailure.split("\n", 1)[0] ?? ""}`;
    const title =
      completed === 0 ? "No checkpoint has completed yet" : `No checkpoint has completed for ${duration(waited)}`;
    const text = `${committing}. One is due every ${duration(intervalMs)}; ${count(failed)} failed.${why}`;
    const since = { since: facts.now - waited, exact: true };
    return [finding("checkpoint", "cause", title, text, { since })];
  }
  const last = lastCompletedAt === null ? "none has completed yet" : `the last completed ${duration(Math.max(0, facts.now - lastCompletedAt))} ago`;
  const text = `${committing}: every ${duration(intervalMs)}, ${last}.`;
  return [finding("checkpoint", "fact", "Rows become visible with checkpoints", text, {})];
}

function flowing(facts: SilenceFacts): Finding[] {
  return sinksWithRecords(facts)
    .filter((sink) => (sink.recordsIn.sum ?? 0) > 0)
    .map((sink) => {
      const text = `It receives ${count(Math.round(sink.recordsIn.sum ?? 0))} records per second, ${count(sink.readRecords)} so far.`;
      return finding("flows", "fact", `Records reach ${quoted(sink)}`, text, { vertexId: sink.id });
    });
}

function sinksWithRecords(facts: SilenceFacts): VertexFacts[] {
  const next = successors(facts);
  return facts.vertices.filter((vertex) => (next.get(vertex.id) ?? []).length === 0 && vertex.readRecords > 0);
}

export function standingText(standing: Standing, now: number): string {
  return `Since ${standing.exact ? "" : "at least "}${time(standing.since)}, ${duration(Math.max(0, now - standing.since))} ago.`;
}

function finding(
  kind: FindingKind,
  weight: Finding["weight"],
  title: string,
  text: string,
  more: Partial<Finding>,
): Finding {
  return { kind, weight, title, text, vertexId: null, subtask: null, since: null, ...more };
}

/** Remembers since when each watermark stands where it stands, from what polls saw. */
export class WatermarkClock {
  private readonly seen = new Map<string, { value: number; standing: Standing }>();

  observe(key: string, value: number, now: number): void {
    const before = this.seen.get(key);
    if (before === undefined) {
      this.seen.set(key, { value, standing: { since: now, exact: false } });
    } else if (before.value !== value) {
      this.seen.set(key, { value, standing: { since: now, exact: true } });
    }
  }

  standing(): Map<string, Standing> {
    return new Map([...this.seen].map(([key, each]) => [key, each.standing]));
  }
}
