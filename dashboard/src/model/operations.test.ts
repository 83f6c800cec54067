import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { ApiError } from "../api";
import type { CheckpointOperation, SavepointOperation } from "../types";
import { unknownBecause, UnknownOutcomeError, untilCompleted } from "./operations";

const inProgress: SavepointOperation = { status: { id: "IN_PROGRESS" }, operation: null };
const completed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { location: "file:/data/savepoint-1" } };
const down = new ApiError(0, "savepoints", ["the cluster does not answer"]);
const internal = new ApiError(500, "savepoints", ["Internal server error.", "Boom\nat x"]);
const cause = { class: "CheckpointError", "stack-trace": "\nThe disk is full.\n  at write" };

describe("untilCompleted", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("asks again until the operation is completed, and returns what came of it", async () => {
    const answers = [inProgress, inProgress, completed];
    const ask = vi.fn(async () => answers.shift() as SavepointOperation);
    const outcome = untilCompleted(ask, ignore);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await outcome).toEqual({ location: "file:/data/savepoint-1" });
    expect(ask).toHaveBeenCalledTimes(3);
  });

  it("waits half a second between two questions", async () => {
    const ask = vi.fn(async () => inProgress);
    void untilCompleted(ask, ignore);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(ask).toHaveBeenCalledTimes(11);
  });

  it("throws the first line of the cause of a failed savepoint", async () => {
    const failed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { "failure-cause": cause } };
    await expect(untilCompleted(async () => failed, ignore)).rejects.toThrow(/^The disk is full\.$/);
  });

  it("throws that of a failed checkpoint, which has another name", async () => {
    const failed: CheckpointOperation = { status: { id: "COMPLETED" }, operation: { failureCause: cause } };
    await expect(untilCompleted(async () => failed, ignore)).rejects.toThrow(/^The disk is full\.$/);
  });

  it("says that no cause was told where the cluster tells none", async () => {
    const silent = { class: "", "stack-trace": "\n" };
    const failed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { "failure-cause": silent } };
    await expect(untilCompleted(async () => failed, ignore)).rejects.toThrow("no cause was told");
  });

  it("returns nothing after a quarter of an hour, and asks no more", async () => {
    const ask = vi.fn(async () => inProgress);
    const outcome = untilCompleted(ask, ignore);
    await vi.advanceTimersByTimeAsync(15 * 60_000);
    expect(await outcome).toBeNull();
    const asked = ask.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ask).toHaveBeenCalledTimes(asked);
  });

  it("asks on where a question is not answered, says why the state is not known, and when it is known again", async () => {
    const answers = [inProgress, down, down, internal, inProgress, completed];
    const asked: number[] = [];
    const told: (string | null)[] = [];
    const ask = async (): Promise<SavepointOperation> => {
      asked.push(Date.now());
      return orThrow(answers.shift() as SavepointOperation | Error);
    };
    const outcome = untilCompleted(ask, (why) => told.push(why));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await outcome).toEqual({ location: "file:/data/savepoint-1" });
    expect(told).toEqual(["the cluster does not answer", "Boom", null]);
    expect(asked.slice(1).map((each, place) => each - (asked[place] as number))).toEqual([500, 1_000, 2_000, 4_000, 500]);
  });

  it("asks at least every half minute, and says after a quarter of an hour without an answer that the state is not known", async () => {
    const ask = vi.fn(async () => Promise.reject(down));
    const outcome = untilCompleted(ask, ignore);
    const failed = expect(outcome).rejects.toThrow(new UnknownOutcomeError("the cluster does not answer"));
    await vi.advanceTimersByTimeAsync(16 * 60_000);
    await failed;
    expect(ask.mock.calls.length).toBeGreaterThan(30);
  });

  it("asks no more where the cluster knows of no such operation, and does not say that it failed", async () => {
    const ask = vi.fn(async () => Promise.reject(new ApiError(404, "savepoints", ["There is no savepoint operation"])));
    const error: unknown = await untilCompleted(ask, ignore).catch((each: unknown) => each);
    expect(unknownBecause(error)).toBe("There is no savepoint operation");
    expect(ask).toHaveBeenCalledTimes(1);
  });
});

describe("unknownBecause", () => {
  it("knows a request without an answer of the cluster from one that was refused", () => {
    const reasons = [0, 400, 404, 409, 500, 502, 503, 504].map((status) => unknownBecause(new ApiError(status, "stop", ["why"])));
    expect(reasons).toEqual(["why", null, null, null, null, "why", null, "why"]);
    expect(unknownBecause(new Error("The disk is full."))).toBeNull();
  });
});

function ignore(): void {
  // Nothing is expected to be unknown, or the test looks at the end alone.
}

function orThrow<T>(answer: T | Error): T {
  if (answer instanceof Error) {
    throw answer;
  }
  return answer;
}
