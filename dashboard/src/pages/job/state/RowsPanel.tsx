/** Rows of one state, by keys or subtask; in a snapshot each row can be edited into a new savepoint. */

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";

import * as api from "../../../api";
import { Empty, Panel } from "../../../components/Basics";
import { DataTable, type Column } from "../../../components/DataTable";
import { messageOf } from "../../../model/errors";
import { count, plural, time } from "../../../model/format";
import type { JsonValue, StateEdit, StateFigures, StateOperator, StateRows } from "../../../types";
import { EditDialog, type EditDialogHandle } from "./EditDialog";
import { keysInText, shownValue } from "./stateText";

const LIMIT = 100;
const LIMIT_MAX = 1_000;

interface Row {
  place: number;
  subtask: number;
  values: readonly JsonValue[];
  cut: readonly string[];
}

interface Reading {
  rows: StateRows;
  at: number;
}

export function RowsPanel(props: {
  jobid: string;
  operator: StateOperator;
  state: StateFigures;
  snapshot: number | undefined;
  onEdit: ((edit: StateEdit) => void) | null;
}): JSX.Element {
  const { jobid, operator, state, snapshot } = props;
  const [keys, setKeys] = useState("");
  const [subtask, setSubtask] = useState("");
  const [limit, setLimit] = useState(LIMIT);
  const [reading, setReading] = useState<Reading | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const dialog = useRef<EditDialogHandle>(null);
  const isEditable = props.onEdit !== null && state.table === "keyed" && !state.unreadable.includes("key");
  const read = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      const query = {
        table: state.table,
        state: state.name,
        keys: keysInText(keys),
        subtask: subtask === "" ? undefined : Number(subtask),
        limit,
      };
      setReading({ rows: await api.stateRows(jobid, operator.id, snapshot, query), at: Date.now() });
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Panel title={`Rows of ${state.name}`}>
      <form
        class="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          void read();
        }}
      >
        <label class="select">
          <span>Keys</span>
          <input
            type="search"
            class="keys-field"
            placeholder='7, or "a", or [3, 7]; empty: all'
            value={keys}
            onInput={(event) => setKeys(event.currentTarget.value)}
          />
        </label>
        <label class="select">
          <span>Subtask</span>
          <input
            type="number"
            min="0"
            max={operator.parallelism - 1}
            placeholder="all"
            value={subtask}
            onInput={(event) => setSubtask(event.currentTarget.value)}
          />
        </label>
        <label class="select">
          <span>At most</span>
          <input
            type="number"
            min="1"
            max={LIMIT_MAX}
            required
            value={limit}
            onInput={(event) => setLimit(Number(event.currentTarget.value))}
          />
        </label>
        <button type="submit" class="button primary" disabled={busy}>
          Read rows
        </button>
        {isEditable ? (
          <button type="button" class="button" onClick={() => dialog.current?.open(null, null)}>
            Edit a key
          </button>
        ) : null}
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      {reading === null ? (
        <Empty>Nothing was read yet.</Empty>
      ) : (
        <Rows reading={reading} onEdit={isEditable ? (key, value) => dialog.current?.open(key, value) : null} />
      )}
      {props.onEdit === null && state.table === "keyed" ? (
        <p class="quiet-text">A running job is not edited. Choose a checkpoint or savepoint above: its edits become a new savepoint.</p>
      ) : null}
      {props.onEdit === null ? null : <EditDialog ref={dialog} operator={operator} state={state} onEdit={props.onEdit} />}
    </Panel>
  );
}

function Rows(props: { reading: Reading; onEdit: ((key: JsonValue, value: JsonValue) => void) | null }): JSX.Element {
  const { columns, rows, notes } = props.reading.rows;
  const keyAt = columns.findIndex((column) => column.name === "key");
  const valueAt = columns.findIndex((column) => column.name === "value");
  const shown: Row[] = rows.map((row, place) => ({ ...row, place }));
  const edit = props.onEdit;
  const all: Column<Row>[] = columns.map((column, index) => ({
    title: column.name,
    wraps: true,
    numeric: column.type.startsWith("int") || column.type === "double" || column.type === "float",
    cell: (row) => (
      <span class="value" title={column.type}>
        {column["is-readable"] || row.values[index] === null ? shownValue(row.values[index] ?? null) : "(pickle)"}
      </span>
    ),
    order: (row) => orderOf(row.values[index] ?? null),
  }));
  all.unshift({ title: "subtask", cell: (row) => row.subtask, order: (row) => row.subtask, numeric: true });
  if (edit !== null && keyAt >= 0) {
    all.push({
      title: "edit",
      cell: (row) =>
        row.cut.length > 0 ? (
          <span class="quiet-text">too long</span>
        ) : (
          <button type="button" class="button" onClick={() => edit(row.values[keyAt] ?? null, valueAt < 0 ? null : (row.values[valueAt] ?? null))}>
            Edit
          </button>
        ),
    });
  }
  const pickled = columns.filter((column) => !column["is-readable"]).map((column) => column.name);
  return (
    <>
      <p class="quiet-text">
        {plural(rows.length, "row")}, read {time(props.reading.at)}.
        {notes.length === 0 ? " These are all." : ""}
      </p>
      {notes.map((note) => (
        <p key={note} class="notice-line">
          {note}
        </p>
      ))}
      {pickled.length === 0 ? null : (
        <p class="notice-line">
          {pickled.join(", ")}: stored as pickles of no declared type, which would run code of the job if they were loaded here. Declare a
          type in the program, or read them there with JobClient.state().live(…, unpickle=True).
        </p>
      )}
      <DataTable caption={`Rows, ${count(rows.length)}`} empty="No row." rows={shown} rowKey={(row) => String(row.place)} columns={all} />
    </>
  );
}

function orderOf(value: JsonValue): string | number | null {
  return typeof value === "number" || typeof value === "string" || value === null ? value : JSON.stringify(value);
}
