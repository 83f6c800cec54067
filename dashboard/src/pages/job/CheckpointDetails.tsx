/** One checkpoint on a time line: of each subtask, when its barrier came, how long it aligned, and wrote. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import * as api from "../../api";
import { Empty, Facts, Panel, State, Waiting } from "../../components/Basics";
import { shortName } from "../../diagnosis/facts";
import { bytes, duration, time } from "../../model/format";
import { inTurns } from "../../model/Poller";
import { usePoll } from "../../model/poll";
import { kindOf } from "../../model/savepointFormats";
import type { Checkpoint, CompletedSubtaskCheckpoint, Job, SubtaskCheckpoint, VertexCheckpointDetails } from "../../types";

const PHASES = ["start delay", "alignment", "sync", "async"] as const;
/** Subtasks that are drawn of each vertex: the slowest ones. */
const SHOWN = 16;

export function CheckpointDetails({ job, checkpoint }: { job: Job; checkpoint: Checkpoint }): JSX.Element {
  // The list of checkpoints may know of the end of one before the answer on it alone does.
  const [isOver, setIsOver] = useState(false);
  const polled = usePoll(
    `Checkpoint ${checkpoint.id}`,
    async (signal) => {
      const details = await api.checkpointDetails(job.jid, checkpoint.id, signal);
      const vertices = job.vertices.filter((vertex) => details.tasks[vertex.id] !== undefined);
      const subtasks = await inTurns(vertices, 4, async (vertex) => ({
        name: vertex.name,
        details: await api.checkpointSubtasks(job.jid, checkpoint.id, vertex.id, signal),
      }));
      return { details, subtasks };
    },
    [job.jid, checkpoint.id],
    isOver ? "once" : "interval",
  );
  const status = polled.data?.details.status;
  useEffect(() => setIsOver(status !== undefined && status !== "IN_PROGRESS"), [status]);
  const title = `${checkpoint.is_savepoint ? "Savepoint" : "Checkpoint"} ${checkpoint.id}`;
  if (polled.data === undefined) {
    return (
      <Panel title={title}>
        <Waiting what="Asking for its subtasks" failed={polled.failed} />
      </Panel>
    );
  }
  const { details, subtasks } = polled.data;
  const span = Math.max(
    1,
    ...subtasks.flatMap((vertex) => vertex.details.subtasks.map((each) => (isDone(each) ? total(each) : 0))),
  );
  return (
    <Panel title={title}>
      <Facts
        rows={[
          ["kind", kindOf(details)],
          ["state", <State state={details.status} />],
          ["triggered", time(details.trigger_timestamp)],
          ["duration", duration(details.end_to_end_duration)],
          ["acknowledged", `${details.num_acknowledged_subtasks} of ${details.num_subtasks} subtasks`],
          ["size", `${bytes(details.checkpointed_size)} written, ${bytes(details.state_size)} of state`],
          ...(details.external_path === undefined ? [] : [["path", <code>{details.external_path}</code>] as const]),
          ...(details.failure_message === undefined ? [] : [["failure", details.failure_message.split("\n", 1)[0] ?? ""] as const]),
        ]}
      />
      {subtasks.length === 0 ? <Empty>It names no subtask.</Empty> : null}
      <ul class="legend">
        {PHASES.map((phase) => (
          <li key={phase}>
            <span class={`swatch phase-${phase.replace(" ", "-")}`} aria-hidden="true" />
            {phase}
          </li>
        ))}
        <li class="quiet-text">the whole width is {duration(span)}</li>
      </ul>
      {subtasks.map((vertex) => (
        <VertexPhases key={vertex.name} name={vertex.name} details={vertex.details} span={span} />
      ))}
    </Panel>
  );
}

function VertexPhases({ name, details, span }: { name: string; details: VertexCheckpointDetails; span: number }): JSX.Element {
  const [all, setAll] = useState(false);
  const sorted = [...details.subtasks].sort((a, b) => (isDone(b) ? total(b) : Infinity) - (isDone(a) ? total(a) : Infinity));
  const shown = sorted.slice(0, all ? undefined : SHOWN);
  return (
    <div class="phases">
      <h3 title={name}>{shortName(name, 90)}</h3>
      <ul>
        {shown.map((subtask) => (
          <li key={subtask.index}>
            <span class="phase-index">{subtask.index}</span>
            {isDone(subtask) ? <Phases subtask={subtask} span={span} /> : <span class="quiet-text">has not acknowledged</span>}
          </li>
        ))}
      </ul>
      {sorted.length > shown.length ? (
        <button type="button" class="button" onClick={() => setAll(true)}>
          All {sorted.length} subtasks
        </button>
      ) : null}
    </div>
  );
}

function Phases({ subtask, span }: { subtask: CompletedSubtaskCheckpoint; span: number }): JSX.Element {
  const values = phasesOf(subtask);
  const text = PHASES.map((phase, index) => `${phase} ${duration(values[index])}`).join(", ");
  return (
    <>
      <span class="phase-bar" role="img" aria-label={`Subtask ${subtask.index}: ${text}`} title={text}>
        {PHASES.map((phase, index) => (
          <span key={phase} class={`phase-${phase.replace(" ", "-")}`} style={{ width: `${((values[index] ?? 0) / span) * 100}%` }} />
        ))}
      </span>
      <span class="phase-text">
        {subtask.aborted === true
          ? `declined after ${duration(subtask.end_to_end_duration)}`
          : `${duration(subtask.end_to_end_duration)}, ${bytes(subtask.checkpointed_size)}`}
        {subtask.unaligned_checkpoint === true ? ", unaligned" : ""}
      </span>
    </>
  );
}

function isDone(subtask: SubtaskCheckpoint): subtask is CompletedSubtaskCheckpoint {
  return subtask.className === "completed";
}

function phasesOf(subtask: CompletedSubtaskCheckpoint): readonly number[] {
  return [subtask.start_delay, subtask.alignment.duration, subtask.checkpoint.sync, subtask.checkpoint.async].map((value) =>
    Math.max(0, value),
  );
}

function total(subtask: CompletedSubtaskCheckpoint): number {
  return phasesOf(subtask).reduce((sum, value) => sum + value, 0);
}
