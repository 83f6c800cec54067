/** The states of one operator: rows and bytes, how unevenly they lie, the largest keys, timers. */

import type { JSX } from "preact";

import * as api from "../../../api";
import { Facts, Panel, Share, Waiting } from "../../../components/Basics";
import { DataTable } from "../../../components/DataTable";
import { bytes, count, plural, time, watermark } from "../../../model/format";
import { usePoll } from "../../../model/poll";
import type { StateEdit, StateFigures, StateOperator } from "../../../types";
import { RowsPanel } from "./RowsPanel";
import type { Place } from "./StatePage";

/** Subtasks, key groups and keys that are drawn: the largest ones. */
const SHOWN = 12;

export function OperatorPanel(props: {
  jobid: string;
  operator: StateOperator;
  place: Place;
  addressOf(change: Partial<Place>): string;
  /** Null where nothing can be edited: in the running job. */
  onEdit: ((edit: StateEdit) => void) | null;
}): JSX.Element {
  const { jobid, operator, place } = props;
  const { data, failed, reload } = usePoll(
    "Sizes of state",
    (signal) => api.operatorState(jobid, operator.id, place.snapshot, signal),
    [jobid, operator.id, place.snapshot],
    "once",
  );
  const title = `States of ${operator.uid || operator.name}`;
  if (data === undefined) {
    return (
      <Panel title={title}>
        <Waiting what="Counting" failed={failed} />
      </Panel>
    );
  }
  const chosen = data.states.find((each) => each.table === place.table && each.name === place.state);
  return (
    <>
      <Panel
        title={title}
        actions={
          <button type="button" class="button" onClick={reload}>
            Count again
          </button>
        }
      >
        <p class="quiet-text">
          As of {time(data["taken-at"])}
          {data.watermark === null ? "" : `, watermark ${watermark(data.watermark)}`}
        </p>
        <DataTable
          caption="States"
          empty="It keeps no state."
          rows={data.states}
          rowKey={keyOf}
          current={chosen === undefined ? null : keyOf(chosen)}
          columns={[
            {
              title: "state",
              wraps: true,
              cell: (each) => <a href={props.addressOf({ table: each.table, state: each.name })}>{each.name}</a>,
              order: (each) => each.name,
            },
            { title: "table", cell: (each) => each.table, order: (each) => each.table },
            { title: "kind", cell: (each) => each.kind || "–", order: (each) => each.kind },
            { title: "rows", cell: (each) => count(each.rows), order: (each) => each.rows, numeric: true },
            { title: "size", cell: (each) => bytes(each.size), order: (each) => each.size, numeric: true },
            { title: "subtask skew", cell: (each) => times(each["subtask-skew"]), order: (each) => each["subtask-skew"], numeric: true },
            { title: "key group skew", cell: (each) => times(each["key-group-skew"]), order: (each) => each["key-group-skew"], numeric: true },
            { title: "notes", wraps: true, cell: notesOf },
          ]}
        />
      </Panel>
      {chosen === undefined ? null : (
        <>
          <Sizes state={chosen} isStored={place.snapshot !== undefined} hasWatermark={data.watermark !== null} />
          <RowsPanel
            key={keyOf(chosen)}
            jobid={jobid}
            operator={operator}
            state={chosen}
            snapshot={place.snapshot}
            onEdit={props.onEdit}
          />
        </>
      )}
    </>
  );
}

function keyOf(state: StateFigures): string {
  return `${state.table} ${state.name}`;
}

function times(skew: number | null): string {
  return skew === null ? "–" : `${skew.toFixed(1)} ×`;
}

function notesOf(state: StateFigures): string {
  const notes = [
    state["is-waiting"] ? "lies in the restored checkpoint: no record has asked for it yet" : "",
    state["is-partial"] ? "only part of it was counted" : "",
    state["expired-rows"] ? `${count(state["expired-rows"])} rows past their time to live` : "",
    state.unreadable.length > 0 ? `${state.unreadable.join(", ")}: pickles, which are not loaded here` : "",
  ];
  return notes.filter((note) => note !== "").join("; ");
}

/** Parts of one state, the largest first, each with a bar against the largest. */
function Sizes({ state, isStored, hasWatermark }: { state: StateFigures; isStored: boolean; hasWatermark: boolean }): JSX.Element {
  const subtasks = state.subtasks.map((each) => ({ name: `subtask ${each.subtask}`, rows: each.rows, size: each.size }));
  const groups = state["key-groups"].map((each) => ({
    name: `key group ${each["key-group"]} (subtask ${each.subtask})`,
    rows: each.rows,
    size: each.size,
  }));
  const keys = state.keys.map((each) => ({ name: each.key, rows: each.rows, size: each.size }));
  return (
    <Panel title={`Sizes of ${state.name}`}>
      <div class="state-sizes">
        <Bars title={`Subtasks, the largest has ${times(state["subtask-skew"])} the mean`} parts={subtasks} />
        {groups.length === 0 ? null : (
          <Bars title={`Key groups, the largest has ${times(state["key-group-skew"])} the mean`} parts={groups} />
        )}
        {keys.length === 0 ? null : (
          <Bars title={state["are-keys-exact"] ? "Largest keys" : "Largest keys (lower bounds: there are too many to count each)"} parts={keys} />
        )}
      </div>
      {isStored ? (
        <p class="quiet-text">Sizes of subtasks are those of files; key groups, keys and timers are counted from the rows in them.</p>
      ) : null}
      {state["oldest-window"] === null ? null : <p class="quiet-text">Oldest window: {watermark(state["oldest-window"])}</p>}
      {state.timers.map((each) => (
        <Facts
          key={each.domain}
          rows={[
            [`${each.domain} timers`, `the next is due ${watermark(each.next)}`],
            ...(each.domain === "event" && !hasWatermark
              ? [["how soon", `not known without a watermark, of ${plural(Object.values(each.due).reduce((a, b) => a + b, 0), "timer")}`] as const]
              : Object.entries(each.due)
                  .filter(([, timers]) => timers > 0)
                  .map(([word, timers]) => [word === "due" || word === "later" ? word : `within ${word}`, plural(timers, "timer")] as const)),
          ]}
        />
      ))}
    </Panel>
  );
}

function amountOf(part: { rows: number | null; size: number }): string {
  return part.rows === null ? bytes(part.size) : `${plural(part.rows, "row")}, ${bytes(part.size)}`;
}

function Bars({ title, parts }: { title: string; parts: readonly { name: string; rows: number | null; size: number }[] }): JSX.Element {
  const sorted = [...parts].sort((a, b) => b.size - a.size);
  const most = Math.max(1, sorted[0]?.size ?? 0);
  return (
    <div class="phases">
      <h3>{title}</h3>
      <ul>
        {sorted.slice(0, SHOWN).map((each) => (
          <li key={each.name} class="size-bar">
            <span class="size-name" title={each.name}>
              {each.name}
            </span>
            <Share value={each.size / most} label={`${each.name}: ${amountOf(each)}`} />
            <span class="quiet-text">{amountOf(each)}</span>
          </li>
        ))}
      </ul>
      {sorted.length > SHOWN ? <p class="quiet-text">and {count(sorted.length - SHOWN)} smaller ones</p> : null}
    </div>
  );
}
