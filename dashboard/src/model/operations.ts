/** Operations that a route begins and another one follows: savepoints, checkpoints, edits of state. */

import { ApiError } from "../api";
import type { FailureCause } from "../types";
import { messageOf } from "./errors";
import { BACKOFF_MAX_MS } from "./Poller";

const POLL_MS = 500;
/** A quarter of an hour. What takes longer goes on; only the page does not wait for it. */
const WAIT_MAX_MS = 15 * 60_000;

/** A proxy that answers so does not know whether the cluster has received the request; 503 says that it has not. */
const UNANSWERED = [0, 502, 504];

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

/** No answer says what became of an operation, which may go on. The message says why. */
export class UnknownOutcomeError extends Error {}

/** Why it is not known what became of a request; null where an answer says that it failed. */
export function unknownBecause(error: unknown): string | null {
  if (error instanceof UnknownOutcomeError) {
    return error.message;
  }
  return error instanceof ApiError && UNANSWERED.includes(error.status) ? messageOf(error) : null;
}

/**
 * Asks until an operation is completed. Null: it goes on, longer than a page waits. Throws the cause of a failure.
 *
 * A question without an answer says nothing of the operation: it is asked again, more and more seldom. `onUnknown` learns why
 * the state is not known, when that changes, and null when it is known again. Throws UnknownOutcomeError where it stays unknown.
 */
export async function untilCompleted<T extends Outcome>(
  ask: () => Promise<Followed<T>>,
  onUnknown: (why: string | null) => void,
): Promise<T | null> {
  let failures = 0;
  let unknown: string | null = null;
  for (let waitedMs = 0; waitedMs < WAIT_MAX_MS; ) {
    const answer = await ask().catch((error: unknown) => {
      if (error instanceof ApiError && error.status === 404) {
        // Another driver leads, or the result was asked for too late: no later answer says more.
        throw new UnknownOutcomeError(messageOf(error));
      }
      failures += 1;
      const why = messageOf(error);
      if (why !== unknown) {
        onUnknown(why);
      }
      unknown = why;
      return null;
    });
    if (answer !== null) {
      if (unknown !== null) {
        onUnknown(null);
      }
      failures = 0;
      unknown = null;
      if (answer.status.id === "COMPLETED" && answer.operation !== null) {
        return successOf(answer.operation);
      }
    }
    const waitMs = Math.min(BACKOFF_MAX_MS, POLL_MS * 2 ** failures);
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    waitedMs += waitMs;
  }
  if (unknown !== null) {
    throw new UnknownOutcomeError(unknown);
  }
  return null;
}

/** Throws the cause of a failure. */
function successOf<T extends Outcome>(operation: T): T {
  const failure = operation["failure-cause"] ?? operation.failureCause;
  if (failure !== undefined) {
    throw new Error(firstLine(failure["stack-trace"]));
  }
  return operation;
}

function firstLine(text: string): string {
  return text.split("\n").find((line) => line.trim() !== "") ?? "no cause was told";
}
