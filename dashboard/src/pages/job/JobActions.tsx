/** What an operator does to a running job: checkpoint, savepoint, stop with a savepoint, cancel. */

import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";

import * as api from "../../api";
import { notices } from "../../model/Notices";
import type { Job } from "../../types";

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

const POLL_MS = 1_000;
/** A savepoint that takes longer goes on; only this page does not wait for it. */
const POLLS_MAX = 900;

export function JobActions({ job, onDone }: { job: Job; onDone(): void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [action, setAction] = useState<Exclude<Action, "checkpoint">>("savepoint");
  const [directory, setDirectory] = useState("");
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
    try {
      const outcome = await run(job.jid, wanted, directory === "" ? undefined : directory, drain);
      notices.tell("done", `${TITLES[wanted]}: done`, outcome);
    } catch (error) {
      const detail = error instanceof api.ApiError ? error.headline : String(error);
      notices.tell("error", `${TITLES[wanted]} failed`, detail);
    } finally {
      setBusy(false);
      onDone();
    }
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
            <label class="field">
              Folder (empty: execution.checkpointing.savepoint-dir)
              <input value={directory} onInput={(event) => setDirectory(event.currentTarget.value)} />
            </label>
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

async function run(jobid: string, action: Action, directory: string | undefined, drain: boolean): Promise<string> {
  if (action === "cancel") {
    await api.cancelJob(jobid);
    return "The job is being canceled.";
  }
  if (action === "checkpoint") {
    const trigger = await api.triggerCheckpoint(jobid);
    for (let poll = 0; poll < POLLS_MAX; poll++) {
      const { status, operation } = await api.checkpointStatus(jobid, trigger["request-id"]);
      if (status.id === "COMPLETED") {
        if (operation?.failureCause !== undefined) {
          throw new Error(firstLine(operation.failureCause["stack-trace"]));
        }
        return `Checkpoint ${operation?.checkpointId ?? ""} is complete.`;
      }
      await pause();
    }
    return "It goes on; the page of checkpoints shows it.";
  }
  const trigger = action === "stop" ? await api.stopJob(jobid, directory, drain) : await api.triggerSavepoint(jobid, directory);
  for (let poll = 0; poll < POLLS_MAX; poll++) {
    const { status, operation } = await api.savepointStatus(jobid, trigger["request-id"]);
    if (status.id === "COMPLETED") {
      const failure = operation?.["failure-cause"];
      if (failure !== undefined) {
        throw new Error(firstLine(failure["stack-trace"]));
      }
      return `It is in ${operation?.location ?? "the folder named"}.`;
    }
    await pause();
  }
  return "It goes on; the page of checkpoints shows it.";
}

function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

function firstLine(text: string): string {
  return text.split("\n").find((line) => line.trim() !== "") ?? "no cause was told";
}
