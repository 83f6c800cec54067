import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { CheckpointOperation, SavepointOperation } from "../types";
import { untilCompleted } from "./operations";

const inProgress: SavepointOperation = { status: { id: "IN_PROGRESS" }, operation: null };
const completed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { location: "file:/data/savepoint-1" } };
const cause = { class: "CheckpointError", "stack-trace": "\nThe disk is full.\n  at write" };

describe("untilCompleted", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("asks again until the operation is completed, and returns what came of it", async () => {
    const answers = [inProgress, inProgress, completed];
    const ask = vi.fn(async () => answers.shift() as SavepointOperation);
    const outcome = untilCompleted(ask);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await outcome).toEqual({ location: "file:/data/savepoint-1" });
    expect(ask).toHaveBeenCalledTimes(3);
  });

  it("waits half a second between two questions", async () => {
    const ask = vi.fn(async () => inProgress);
    void untilCompleted(ask);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(ask).toHaveBeenCalledTimes(11);
  });

  it("throws the first line of the cause of a failed savepoint", async () => {
    const failed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { "failure-cause": cause } };
    await expect(untilCompleted(async () => failed)).rejects.toThrow(/^The disk is full\.$/);
  });

  it("throws that of a failed checkpoint, which has another name", async () => {
    const failed: CheckpointOperation = { status: { id: "COMPLETED" }, operation: { failureCause: cause } };
    await expect(untilCompleted(async () => failed)).rejects.toThrow(/^The disk is full\.$/);
  });

  it("says that no cause was told where the cluster tells none", async () => {
    const silent = { class: "", "stack-trace": "\n" };
    const failed: SavepointOperation = { status: { id: "COMPLETED" }, operation: { "failure-cause": silent } };
    await expect(untilCompleted(async () => failed)).rejects.toThrow("no cause was told");
  });

  it("returns nothing after a quarter of an hour, and asks no more", async () => {
    const ask = vi.fn(async () => inProgress);
    const outcome = untilCompleted(ask);
    await vi.advanceTimersByTimeAsync(15 * 60_000);
    expect(await outcome).toBeNull();
    const asked = ask.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ask).toHaveBeenCalledTimes(asked);
  });

  it("passes on that a question was not answered", async () => {
    await expect(untilCompleted(async () => Promise.reject(new Error("down")))).rejects.toThrow("down");
  });
});
