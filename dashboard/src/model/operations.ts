/** Operations that a route begins and another one follows: savepoints, checkpoints, edits of state. */

import type { FailureCause } from "../types";

const POLL_MS = 500;
/** A quarter of an hour. What takes longer goes on; only the page does not wait for it. */
const POLLS_MAX = 1_800;

/** What a route answers of an operation; `operation` is null until it is completed. */
interface Followed<T> {
  status: { id: "IN_PROGRESS" | "COMPLETED" };
  operation: T | null;
}

/** Flink's routes for checkpoints name the cause otherwise than all others. */
interface Outcome {
  "failure-cause"?: FailureCause;
  failureCause?: FailureCause;
}

/** Asks until an operation is completed. Null: it goes on, longer than a page waits. Throws the cause of a failure. */
export async function untilCompleted<T extends Outcome>(ask: () => Promise<Followed<T>>): Promise<T | null> {
  for (let poll = 0; poll < POLLS_MAX; poll++) {
    const { status, operation } = await ask();
    if (status.id === "COMPLETED" && operation !== null) {
      const failure = operation["failure-cause"] ?? operation.failureCause;
      if (failure !== undefined) {
        throw new Error(firstLine(failure["stack-trace"]));
      }
      return operation;
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return null;
}

function firstLine(text: string): string {
  return text.split("\n").find((line) => line.trim() !== "") ?? "no cause was told";
}
