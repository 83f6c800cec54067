/** Checkpoints of a job: the last ones as bars, one with the phases of each subtask, percentiles, configuration. */

import type { JSX } from "preact";

import * as api from "../../api";
import { Empty, Facts, Figure, Panel, State, StatsTable, Waiting } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { bytes, count, duration, time } from "../../model/format";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import { kindOf } from "../../model/savepointFormats";
import type { Checkpoint, CheckpointConfiguration, CheckpointingStatistics, Job } from "../../types";
import { CheckpointDetails } from "./CheckpointDetails";
import type { JobProps } from "./JobPage";

export function CheckpointsPage({ job, route }: JobProps): JSX.Element {
  const statistics = usePoll("Checkpoints", (signal) => api.checkpoints(job.jid, signal), [job.jid]);
  const known = statistics.data !== undefined && statistics.data !== null;
  const configuration = usePoll(
    "Configuration of checkpoints",
    async (signal) => (known ? api.checkpointConfig(job.jid, signal) : null),
    [job.jid, known],
    "once",
  );
  if (statistics.data === undefined) {
    return <Waiting what="Asking for the checkpoints" failed={statistics.failed} />;
  }
  if (statistics.data === null) {
    return (
      <Panel title="Checkpoints">
        <Empty>This job makes no checkpoints: execution.checkpointing.interval is not set. After a failure it begins anew.</Empty>
      </Panel>
    );
  }
  const data = statistics.data;
  const wanted = route.query.get("checkpoint");
  const selected = data.history.find((each) => String(each.id) === wanted) ?? data.latest.completed ?? data.history[0] ?? null;
  return (
    <>
      <div class="figures">
        <Figure title="Completed" value={data.counts.completed} />
        <Figure title="Failed" value={data.counts.failed} />
        <Figure title="In progress" value={data.counts.in_progress} />
        <Figure title="Restored" value={data.counts.restored} />
        <Figure
          title="Last completed"
          value={data.latest.completed === null ? "–" : duration(data.latest.completed.end_to_end_duration)}
          {...(data.latest.completed === null ? {} : { detail: `${bytes(data.latest.completed.state_size)} of state` })}
        />
      </div>
      <Panel title="Last checkpoints">
        {data.history.length === 0 ? <Empty>No checkpoint yet.</Empty> : <CheckpointBars job={job} history={data.history} selected={selected?.id ?? null} />}
        {data.history.length === 0 ? null : <BarColours />}
        <CheckpointTable job={job} history={data.history} selected={selected?.id ?? null} />
      </Panel>
      {selected === null ? null : <CheckpointDetails key={selected.id} job={job} checkpoint={selected} />}
      <Panel title="Summary">
        {data.counts.completed === 0 ? (
          <Empty>No checkpoint has completed yet.</Empty>
        ) : (
          <StatsTable
            caption="Completed checkpoints"
            rows={[
              ["duration", data.summary.end_to_end_duration, duration],
              ["checkpointed size", data.summary.checkpointed_size, bytes],
              ["full state size", data.summary.state_size, bytes],
              ["processed in flight", data.summary.processed_data, bytes],
              ["stored in flight", data.summary.persisted_data, bytes],
            ]}
          />
        )}
        <Latest statistics={data} />
      </Panel>
      <Panel title="Configuration">
        {configuration.data === undefined || configuration.data === null ? (
          <Waiting what="Asking for the configuration" failed={configuration.failed} />
        ) : (
          <Configuration configuration={configuration.data} />
        )}
      </Panel>
    </>
  );
}

function CheckpointBars(props: { job: Job; history: readonly Checkpoint[]; selected: number | null }): JSX.Element {
  const shown = [...props.history].reverse();
  const durationOf = (each: Checkpoint): number =>
    each.end_to_end_duration >= 0 ? each.end_to_end_duration : Math.max(0, props.job.now - each.trigger_timestamp);
  const most = Math.max(1, ...shown.map(durationOf));
  return (
    <div class="bars" role="group" aria-label="Duration of each checkpoint, the oldest first">
      {shown.map((each) => (
        <a
          key={each.id}
          href={link(["job", props.job.jid, "checkpoints"], { checkpoint: each.id })}
          class={`bar ${each.status.toLowerCase()} ${each.is_savepoint ? "savepoint" : ""}`}
          aria-current={each.id === props.selected ? "true" : undefined}
          aria-label={`${kindOf(each)} ${each.id}, ${each.status.toLowerCase()}, ${duration(durationOf(each))}`}
          title={`${kindOf(each)} ${each.id}: ${duration(durationOf(each))}`}
        >
          <span style={{ height: `${Math.max(4, (durationOf(each) / most) * 100)}%` }} />
          <small>{each.id}</small>
        </a>
      ))}
    </div>
  );
}

/** What the colours of the bars mean; each bar says it in words too. */
function BarColours(): JSX.Element {
  return (
    <ul class="legend">
      {["completed", "savepoint", "failed", "in progress"].map((word) => (
        <li key={word} class={`bar-colour ${word.replace(" ", "_")}`}>
          <span class="swatch" aria-hidden="true" />
          {word}
        </li>
      ))}
    </ul>
  );
}

function CheckpointTable(props: { job: Job; history: readonly Checkpoint[]; selected: number | null }): JSX.Element {
  return (
    <DataTable
      caption="Checkpoints and savepoints, the newest first"
      rows={props.history}
      rowKey={(each) => String(each.id)}
      current={props.selected === null ? null : String(props.selected)}
      columns={[
        {
          title: "id",
          cell: (each) => <a href={link(["job", props.job.jid, "checkpoints"], { checkpoint: each.id })}>{each.id}</a>,
          order: (each) => each.id,
          numeric: true,
        },
        { title: "kind", cell: (each) => kindOf(each), order: (each) => kindOf(each) },
        { title: "state", cell: (each) => <State state={each.status} />, order: (each) => each.status },
        { title: "acknowledged", cell: (each) => `${each.num_acknowledged_subtasks} of ${each.num_subtasks}`, numeric: true },
        { title: "triggered", cell: (each) => time(each.trigger_timestamp), order: (each) => each.trigger_timestamp },
        { title: "duration", cell: (each) => duration(each.end_to_end_duration), order: (each) => each.end_to_end_duration, numeric: true },
        { title: "written", cell: (each) => bytes(each.checkpointed_size), order: (each) => each.checkpointed_size, numeric: true },
        { title: "state size", cell: (each) => bytes(each.state_size), order: (each) => each.state_size, numeric: true },
        { title: "path or failure", wraps: true, cell: (each) => <span class="value">{each.failure_message?.split("\n", 1)[0] ?? each.external_path ?? ""}</span> },
      ]}
    />
  );
}

function Latest({ statistics }: { statistics: CheckpointingStatistics }): JSX.Element {
  const { completed, savepoint, failed, restored } = statistics.latest;
  return (
    <Facts
      rows={[
        ["last completed", completed === null ? "–" : `${completed.id}, ${time(completed.latest_ack_timestamp)}: ${completed.external_path ?? ""}`],
        ["last savepoint", savepoint === null ? "–" : `${savepoint.id}, ${time(savepoint.latest_ack_timestamp)}: ${savepoint.external_path ?? ""}`],
        ["last failed", failed === null ? "–" : `${failed.id}, ${time(failed.failure_timestamp)}: ${failed.failure_message?.split("\n", 1)[0] ?? ""}`],
        ["restored from", restored === null ? "–" : `${restored.id}, ${time(restored.restore_timestamp)}: ${restored.external_path}`],
      ]}
    />
  );
}

function Configuration({ configuration }: { configuration: CheckpointConfiguration }): JSX.Element {
  const yes = (value: boolean): string => (value ? "yes" : "no");
  return (
    <Facts
      rows={[
        ["mode", configuration.mode.replace("_", " ")],
        ["interval", duration(configuration.interval)],
        ["timeout", duration(configuration.timeout)],
        ["least pause", duration(configuration.min_pause)],
        ["at the same time", count(configuration.max_concurrent)],
        ["unaligned", yes(configuration.unaligned_checkpoints)],
        ["unaligned after", duration(configuration.aligned_checkpoint_timeout)],
        ["failures tolerated", count(configuration.tolerable_failed_checkpoints)],
        ["after tasks have finished", yes(configuration.checkpoints_after_tasks_finish)],
        ["state backend", configuration.state_backend],
        ["storage", configuration.checkpoint_storage],
        [
          "kept after the job",
          configuration.externalization.enabled
            ? configuration.externalization.delete_on_cancellation
              ? "unless it is canceled"
              : "yes"
            : "no",
        ],
      ]}
    />
  );
}
