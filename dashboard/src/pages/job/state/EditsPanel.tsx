/** Edits that wait to be written as a new savepoint, and how to go on from it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import * as api from "../../../api";
import { Empty, Facts, Panel } from "../../../components/Basics";
import { plural } from "../../../model/format";
import type { StateEdit, StateEditOperation } from "../../../types";
import { shownValue } from "./stateText";

const POLL_MS = 500;
/** An edit that takes longer goes on; only this page does not wait for it. */
const POLLS_MAX = 1_200;

type Outcome = NonNullable<StateEditOperation["operation"]>;

export function EditsPanel(props: {
  jobid: string;
  snapshot: number;
  edits: readonly StateEdit[];
  onChange(edits: readonly StateEdit[]): void;
}): JSX.Element {
  const { edits } = props;
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const write = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    setOutcome(null);
    try {
      setOutcome(await written(props.jobid, props.snapshot, reason, edits));
      props.onChange([]);
    } catch (error) {
      setProblem(error instanceof api.ApiError ? error.headline : error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Panel title={`Edits of snapshot ${props.snapshot}`}>
      {edits.length === 0 ? (
        <Empty>None yet: read rows of a keyed state, and edit one. Snapshot and job stay as they are.</Empty>
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void write();
          }}
        >
          <ol>
            {edits.map((edit, place) => (
              <li key={place}>
                {sentenceOf(edit)}{" "}
                <button type="button" class="button" onClick={() => props.onChange(edits.filter((_, other) => other !== place))}>
                  Take back
                </button>
              </li>
            ))}
          </ol>
          <label class="field">
            Reason, which the new savepoint keeps
            <input required maxLength={1_000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
          <button type="submit" class="button primary" disabled={busy}>
            {busy ? "Writing …" : `Write a new savepoint with ${plural(edits.length, "edit")}`}
          </button>
        </form>
      )}
      <p class="problem" role="alert">
        {problem}
      </p>
      {outcome?.location === undefined ? null : <Written location={outcome.location} changes={outcome.changes ?? []} />}
    </Panel>
  );
}

function Written({ location, changes }: { location: string; changes: NonNullable<Outcome["changes"]> }): JSX.Element {
  return (
    <>
      <h3>The new savepoint is written</h3>
      <Facts
        rows={[
          ["path", <code>{location}</code>],
          ...changes.map(
            (each) =>
              [
                each.state === "" ? each.operator : `${each.operator}, ${each.state}`,
                `${each.action}: ${each.added} added, ${each.changed} changed, ${each.removed} removed`,
              ] as const,
          ),
          ["look at it", <code>headrace checkpoint show {location}</code>],
          ["go on from it", <code>headrace run -s {location} program.py</code>],
        ]}
      />
      <p class="quiet-text">
        Stop the job first. What it has processed since the snapshot is processed again, and output that its sinks have committed since then
        would be written twice: to edit without that, stop the job with a savepoint, edit that one, and go on from the result.
      </p>
    </>
  );
}

function sentenceOf(edit: StateEdit): string {
  const key = JSON.stringify(edit.key);
  switch (edit.action) {
    case "set":
      return `${edit.state ?? ""}: key ${key} becomes ${shownValue(edit.value ?? null)}`;
    case "delete":
      return `${edit.state ?? ""}: key ${key} is deleted`;
    case "delete-key":
      return `key ${key} is deleted from all states of the operator`;
  }
}

async function written(jobid: string, snapshot: number, reason: string, edits: readonly StateEdit[]): Promise<Outcome> {
  const trigger = await api.editState(jobid, snapshot, reason, edits);
  for (let poll = 0; poll < POLLS_MAX; poll++) {
    const { status, operation } = await api.stateEditStatus(jobid, trigger["request-id"]);
    if (status.id === "COMPLETED" && operation !== null) {
      const failure = operation["failure-cause"];
      if (failure !== undefined) {
        throw new Error(failure["stack-trace"].split("\n", 1)[0]);
      }
      return operation;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  throw new Error("It goes on, longer than this page waits.");
}
