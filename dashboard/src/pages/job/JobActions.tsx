/** What an operator does to a running job: checkpoint, savepoint, stop with a savepoint, cancel. */

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";

import * as api from "../../api";
import { notices } from "../../model/Notices";
import { untilCompleted } from "../../model/operations";
import { FORMATS } from "../../model/savepointFormats";
import type { Job, SavepointFormat } from "../../types";

type Action = "checkpoint" | "savepoint" | "stop" | "cancel";

const TITLES: Record<Action, string> = {
  checkpoint: "Checkpoint now",
  savepoint: "Savepoint",
  stop: "Stop with savepoint",
  cancel: "Cancel",
};

const EXPLANATIONS: Record<Exclude<Action, "checkpoint">, string> = {
  savepoint: "Takes a savepoint. The job goes on.",
  stop: "Takes a savepoint and ends the job. It can go on from the savepoint, also with a changed program.",
  cancel: "Ends the job at once. What it has processed since the last checkpoint is not committed.",
};

export function JobActions({ job, onDone }: { job: Job; onDone(): void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [action, setAction] = useState<Exclude<Action, "checkpoint">>("savepoint");
  const [directory, setDirectory] = useState("");
  const [format, setFormat] = useState<SavepointFormat>("CANONICAL");
  const [drain, setDrain] = useState(false);
  const [busy, setBusy] = useState(false);
  const ask = (wanted: Action): void => {
    if (wanted === "checkpoint") {
      void perform(wanted);
    } else {
      setAction(wanted);
      dialog.current?.showModal();
    }
  };
  const perform = async (wanted: Action): Promise<void> => {
    setBusy(true);
    const request = { directory: directory === "" ? undefined : directory, format };
    await notices.follow(TITLES[wanted], (onUnknown) => run(job.jid, wanted, request, drain, onUnknown));
    setBusy(false);
    onDone();
  };
  return (
    <div class="actions">
      {(Object.keys(TITLES) as Action[]).map((each) => (
        <button key={each} type="button" class={`button ${each === "cancel" ? "danger" : ""}`} disabled={busy} onClick={() => ask(each)}>
          {TITLES[each]}
        </button>
      ))}
      <dialog ref={dialog} aria-labelledby="action-title">
        <form
          method="dialog"
          onSubmit={(event) => {
            if ((event as SubmitEvent).submitter?.getAttribute("value") === "yes") {
              void perform(action);
            }
          }}
        >
          <h2 id="action-title">
            {TITLES[action]}: {job.name}
          </h2>
          <p>{EXPLANATIONS[action]}</p>
          {action === "cancel" ? null : (
            <>
              <label class="field">
                Folder (empty: execution.checkpointing.savepoint-dir)
                <input value={directory} onInput={(event) => setDirectory(event.currentTarget.value)} />
              </label>
              <fieldset class="field">
                <legend>Format</legend>
                {FORMATS.map(([each, explanation]) => (
                  <label key={each} class="check field-line">
                    <input type="radio" name="format" checked={format === each} onChange={() => setFormat(each)} />
                    {each.toLowerCase()}: {explanation}
                  </label>
                ))}
              </fieldset>
            </>
          )}
          {action === "stop" ? (
            <label class="check">
              <input type="checkbox" checked={drain} onChange={(event) => setDrain(event.currentTarget.checked)} />
              drain: fire all windows and timers first; it cannot go on from there
            </label>
          ) : null}
          <div class="actions">
            <button type="submit" value="no" class="button">
              Keep it as it is
            </button>
            <button type="submit" value="yes" class={`button ${action === "cancel" ? "danger" : "primary"}`}>
              {TITLES[action]}
            </button>
          </div>
        </form>
      </dialog>
    </div>
  );
}

/** Returns what came of it; null while it goes on. */
async function run(
  jobid: string,
  action: Action,
  request: api.SavepointRequest,
  drain: boolean,
  onUnknown: (why: string | null) => void,
): Promise<string | null> {
  if (action === "cancel") {
    await api.cancelJob(jobid);
    return "The job is being canceled.";
  }
  if (action === "checkpoint") {
    const trigger = await api.triggerCheckpoint(jobid);
    const done = await untilCompleted(() => api.checkpointStatus(jobid, trigger["request-id"]), onUnknown);
    return done === null ? null : `Checkpoint ${done.checkpointId ?? ""} is complete.`;
  }
  const trigger = action === "stop" ? await api.stopJob(jobid, request, drain) : await api.triggerSavepoint(jobid, request);
  const done = await untilCompleted(() => api.savepointStatus(jobid, trigger["request-id"]), onUnknown);
  return done === null ? null : `It is in ${done.location ?? "the folder named"}.`;
}
