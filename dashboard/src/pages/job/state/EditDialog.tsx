/** The dialogue in which one key of a state is edited: its value, its entry, or all that the operator keeps of it. */

import type { JSX } from "preact";
import { forwardRef } from "preact/compat";
import { useImperativeHandle, useRef, useState } from "preact/hooks";

import type { JsonValue, StateEdit, StateFigures, StateOperator } from "../../../types";
import { valueInText } from "./stateText";

export interface EditDialogHandle {
  open(key: JsonValue, value: JsonValue): void;
}

/** Kinds of state that have one value per key. */
const SINGLE = ["value", "reducing", "aggregating"];
const ACTIONS: readonly (readonly [StateEdit["action"], string])[] = [
  ["set", "Set its value"],
  ["delete", "Delete what this state keeps of it"],
  ["delete-key", "Delete all that the operator keeps of it: every state, open windows, timers"],
];

export const EditDialog = forwardRef<
  EditDialogHandle,
  { operator: StateOperator; state: StateFigures; onEdit(edit: StateEdit): void }
>(function EditDialog(props, ref): JSX.Element {
  const { operator, state } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const isSingle = SINGLE.includes(state.kind) && !state.unreadable.includes("value");
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const [action, setAction] = useState<StateEdit["action"]>("delete");
  const [problem, setProblem] = useState("");
  useImperativeHandle(ref, () => ({
    open(ofKey: JsonValue, ofValue: JsonValue): void {
      setKey(ofKey === null ? "" : JSON.stringify(ofKey));
      setValue(ofKey === null ? "" : JSON.stringify(ofValue));
      setAction(isSingle ? "set" : "delete");
      setProblem("");
      dialog.current?.showModal();
    },
  }));
  const add = (): void => {
    try {
      const edit: StateEdit = { action, operator: operator.id, key: valueInText(key) };
      if (action !== "delete-key") {
        edit.state = state.name;
      }
      if (action === "set") {
        edit.value = valueInText(value);
      }
      props.onEdit(edit);
      dialog.current?.close();
    } catch {
      setProblem('Key and value are JSON: a text stands in quotation marks, as "a", a record is {"field": 1}.');
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby="edit-title">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          add();
        }}
      >
        <h2 id="edit-title">Edit a key of {state.name}</h2>
        <p class="quiet-text">The job and the snapshot stay as they are: all edits together become a new savepoint.</p>
        <label class="field">
          Key (JSON, as the column shows it)
          <input required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
        {ACTIONS.filter(([each]) => each !== "set" || isSingle).map(([each, title]) => (
          <label key={each} class="check field-line">
            <input type="radio" name="action" checked={action === each} onChange={() => setAction(each)} />
            {title}
          </label>
        ))}
        {action === "set" ? (
          <label class="field">
            Value (JSON; a whole number beyond 2^53 inside of a record as a text)
            <textarea rows={4} required value={value} onInput={(event) => setValue(event.currentTarget.value)} />
          </label>
        ) : null}
        <p class="problem" role="alert">
          {problem}
        </p>
        <div class="actions">
          <button type="button" class="button" onClick={() => dialog.current?.close()}>
            Leave it
          </button>
          <button type="submit" class="button primary">
            Add to the edits
          </button>
        </div>
      </form>
    </dialog>
  );
});
