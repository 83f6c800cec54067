/** The state of a job: its operators, how large their states are and where they are crowded, and the rows themselves. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";

import * as api from "../../../api";
import { Empty, Panel, Select, Waiting } from "../../../components/Basics";
import { DataTable } from "../../../components/DataTable";
import { bytes, count, plural, time } from "../../../model/format";
import { usePoll } from "../../../model/poll";
import { link } from "../../../model/router";
import { snapshotKind } from "../../../model/savepointFormats";
import type { StateEdit, StateInfo, StateOperator, StateSnapshot } from "../../../types";
import type { JobProps } from "../JobPage";
import { EditsPanel } from "./EditsPanel";
import { OperatorPanel } from "./OperatorPanel";

/** What is looked at: the parts of the address behind the `?`. */
export interface Place {
  snapshot: number | undefined;
  operator: string | undefined;
  table: string | undefined;
  state: string | undefined;
}

export function StatePage({ job, route }: JobProps): JSX.Element {
  const parsed = Number.parseInt(route.query.get("snapshot") ?? "", 10);
  const place: Place = {
    snapshot: Number.isNaN(parsed) ? undefined : parsed,
    operator: route.query.get("operator") ?? undefined,
    table: route.query.get("table") ?? undefined,
    state: route.query.get("state") ?? undefined,
  };
  const addressOf = (change: Partial<Place>): string => link(["job", job.jid, "state"], { ...place, ...change });
  const [edits, setEdits] = useState<{ snapshot: number; list: readonly StateEdit[] }>({ snapshot: -1, list: [] });
  const ownEdits = edits.snapshot === place.snapshot ? edits.list : [];
  const { data, failed, reload } = usePoll(
    "State",
    (signal) => api.jobState(job.jid, place.snapshot, signal),
    [job.jid, place.snapshot],
    "once",
  );
  const operator = data?.operators.find((each) => each.id === place.operator);
  return (
    <>
      <Panel
        title="State"
        actions={
          <button type="button" class="button" onClick={reload}>
            List again
          </button>
        }
      >
        <p class="quiet-text">
          Nothing here reads by itself: operators are listed, counted and read when you ask. A live read is made by the tasks, between two of
          their batches; a snapshot is read from its files. Neither changes anything.
        </p>
        {data === undefined ? (
          <Waiting what="Asking for operators and snapshots" failed={failed} />
        ) : (
          <Operators info={data} place={place} addressOf={addressOf} />
        )}
      </Panel>
      {operator === undefined ? null : (
        <OperatorPanel
          key={`${operator.id} ${place.snapshot ?? "now"}`}
          jobid={job.jid}
          operator={operator}
          place={place}
          addressOf={addressOf}
          onEdit={
            place.snapshot === undefined
              ? null
              : (edit) => setEdits({ snapshot: place.snapshot as number, list: [...ownEdits, edit] })
          }
        />
      )}
      {place.snapshot === undefined || data === undefined ? null : (
        <EditsPanel
          key={place.snapshot}
          jobid={job.jid}
          snapshot={place.snapshot}
          edits={ownEdits}
          onChange={(list) => setEdits({ snapshot: place.snapshot as number, list })}
        />
      )}
    </>
  );
}

function Operators(props: { info: StateInfo; place: Place; addressOf(change: Partial<Place>): string }): JSX.Element {
  const { info, place } = props;
  const readable = useMemo(() => info.snapshots.filter((each) => each.problem === null), [info]);
  const hidden = info.snapshots.filter((each) => each.problem !== null);
  return (
    <>
      <div class="toolbar">
        <Select
          label="As of"
          value={place.snapshot === undefined ? "" : String(place.snapshot)}
          options={[["", info.problem === null ? "now, from the running tasks" : "now: nothing to read"] as const, ...readable.map((each) => [String(each.id), titleOf(each)] as const)]}
          onChange={(value) => {
            location.hash = props.addressOf({ snapshot: value === "" ? undefined : Number(value) }).slice(1);
          }}
        />
        <span class="quiet-text">state backend: {info.backend}</span>
      </div>
      {hidden.length === 0 ? null : (
        <details class="fold">
          <summary>{plural(hidden.length, "snapshot")} cannot be read from here</summary>
          <ul>
            {hidden.map((each) => (
              <li key={each.id}>
                {titleOf(each)}: {each.problem}
              </li>
            ))}
          </ul>
        </details>
      )}
      {info.problem !== null ? (
        <Empty>
          {info.problem}. {readable.length > 0 ? "Choose a snapshot." : ""}
        </Empty>
      ) : (
        <OperatorTable operators={info.operators} place={place} addressOf={props.addressOf} />
      )}
    </>
  );
}

function OperatorTable(props: {
  operators: readonly StateOperator[];
  place: Place;
  addressOf(change: Partial<Place>): string;
}): JSX.Element {
  const isStored = props.place.snapshot !== undefined;
  return (
    <DataTable
      caption="Operators"
      rows={props.operators}
      rowKey={(each) => each.id}
      current={props.place.operator ?? null}
      columns={[
        {
          title: "operator",
          wraps: true,
          cell: (each) => <a href={props.addressOf({ operator: each.id, table: undefined, state: undefined })}>{each.uid || each.name}</a>,
          order: (each) => each.uid || each.name,
        },
        { title: "name", wraps: true, cell: (each) => each.name, order: (each) => each.name },
        { title: "parallelism", cell: (each) => each.parallelism, order: (each) => each.parallelism, numeric: true },
        { title: "key groups", cell: (each) => each["max-parallelism"], order: (each) => each["max-parallelism"], numeric: true },
        ...(isStored
          ? [
              { title: "rows", cell: (each: StateOperator) => count(each.rows), order: (each: StateOperator) => each.rows, numeric: true },
              { title: "size", cell: (each: StateOperator) => bytes(each.size), order: (each: StateOperator) => each.size, numeric: true },
            ]
          : []),
      ]}
    />
  );
}

function titleOf(snapshot: StateSnapshot): string {
  return `${snapshotKind(snapshot)} ${snapshot.id}, ${time(snapshot.timestamp)}${snapshot.size === null ? "" : `, ${bytes(snapshot.size)}`}`;
}
