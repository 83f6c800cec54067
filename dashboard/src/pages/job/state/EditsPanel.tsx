/** Edits that wait to be written as a new savepoint, and how to go on from it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import * as api from "../../../api";
import { Empty, Facts, Panel } from "../../../components/Basics";
import { messageOf } from "../../../model/errors";
import { plural } from "../../../model/format";
import { unknownBecause, untilCompleted } from "../../../model/operations";
import type { StateEdit, StateEditOperation } from "../../../types";
import { shownValue } from "./stateText";

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
  const [unknown, setUnknown] = useState<string | null>(null);
  const [outcome, setOutcome] = useState<Outcome | "goes on" | null>(null);
  const write = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    setUnknown(null);
    setOutcome(null);
    try {
      const trigger = await api.editState(props.jobid, props.snapshot, reason, edits);
      const done = await untilCompleted(() => api.stateEditStatus(props.jobid, trigger["request-id"]), setUnknown);
      setOutcome(done ?? "goes on");
      if (done !== null) {
        props.onChange([]);
      }
    } catch (error) {
      const why = unknownBecause(error);
      setUnknown(why);
      setProblem(why === null ? messageOf(error) : "");
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
      {unknown === null ? null : <Unknown why={unknown} isAsked={busy} />}
      {outcome === "goes on" ? <GoesOn /> : null}
      {outcome === null || outcome === "goes on" || outcome.location === undefined ? null : (
        <Written location={outcome.location} changes={outcome.changes ?? []} />
      )}
    </Panel>
  );
}

function GoesOn(): JSX.Element {
  return (
    <>
      <h3>The new savepoint: it goes on</h3>
      <p>
        It takes longer than this page waits. <Where />
      </p>
    </>
  );
}

function Unknown({ why, isAsked }: { why: string; isAsked: boolean }): JSX.Element {
  return (
    <div role="alert">
      <h3>The new savepoint: its state is not known</h3>
      <p>
        It may be written all the same{isAsked ? ": the cluster is asked again by itself" : ""}. <Where /> Reason: {why}
      </p>
    </div>
  );
}

function Where(): JSX.Element {
  return (
    <>
      It will be in <code>execution.checkpointing.savepoint-dir</code>, or beside the savepoint that is edited where that is not set. To write
      the edits again would make a second one.
    </>
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
