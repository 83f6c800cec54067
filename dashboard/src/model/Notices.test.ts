import { describe, expect, it, vi } from "vitest";

import { ApiError } from "../api";
import { Notices } from "./Notices";
import { UnknownOutcomeError } from "./operations";

const down = new ApiError(0, "jobs/overview", ["the cluster does not answer"]);

describe("Notices", () => {
  it("shows the same failure once, however often it happens", () => {
    const notices = new Notices();
    const error = new ApiError(500, "overview", ["Internal server error.", "Boom\nat x"]);
    notices.report("a", "The overview", error, null);
    notices.report("a", "The overview", error, null);
    expect(notices.list().map((each) => [each.title, each.detail])).toEqual([
      ["The overview could not be loaded", "Boom (500, /overview)"],
    ]);
  });

  it("shows a cluster that does not answer once for all that asked, until one of each is answered", () => {
    const notices = new Notices();
    notices.report("a", "Jobs", down, null);
    notices.report("b", "Overview", down, null);
    expect(notices.list().map((each) => each.title)).toEqual(["The cluster does not answer"]);
    notices.clear("a");
    expect(notices.list()).toHaveLength(1);
    notices.clear("b");
    expect(notices.list()).toEqual([]);
  });

  it("tries all again that waited for the cluster", () => {
    const notices = new Notices();
    const [first, second] = [vi.fn(), vi.fn()];
    notices.report("a", "Jobs", down, first);
    notices.report("b", "Overview", down, second);
    notices.list()[0]?.retry?.();
    expect([first.mock.calls.length, second.mock.calls.length]).toEqual([1, 1]);
  });

  it("takes away by itself that something was done, and never that it failed", () => {
    vi.useFakeTimers();
    const notices = new Notices();
    notices.tell("done", "Savepoint: done", "It is there.");
    notices.tell("error", "Cancel failed", "No.");
    vi.advanceTimersByTime(60_000);
    vi.useRealTimers();
    expect(notices.list().map((each) => each.title)).toEqual(["Cancel failed"]);
  });

  it("tells how it ended what the reader asked for", async () => {
    vi.useFakeTimers();
    const notices = new Notices();
    await notices.follow("Savepoint", async () => "It is in file:/data.");
    await notices.follow("Cancel", async () => Promise.reject(new Error("The disk is full.")));
    vi.useRealTimers();
    expect(notices.list().map((each) => [each.kind, each.title, each.detail])).toEqual([
      ["done", "Savepoint: done", "It is in file:/data."],
      ["error", "Cancel failed", "The disk is full."],
    ]);
  });

  it("never says of something that goes on that it was done, and leaves that there", async () => {
    vi.useFakeTimers();
    const notices = new Notices();
    await notices.follow("Savepoint", async () => null);
    vi.advanceTimersByTime(60_000);
    vi.useRealTimers();
    expect(notices.list().map((each) => [each.kind, each.title])).toEqual([["pending", "Savepoint: it goes on"]]);
  });

  it("never says that something failed of which the state is not known, and says no more of that once it is known", async () => {
    const notices = new Notices();
    const shown = (): string[][] => notices.list().map((each) => [each.kind, each.title, each.detail]);
    await notices.follow("Savepoint", async (onUnknown) => {
      onUnknown("the cluster does not answer");
      expect(shown()).toEqual([
        [
          "pending",
          "Savepoint: its state is not known",
          "It may go on: the cluster is asked again by itself. Reason: the cluster does not answer",
        ],
      ]);
      onUnknown(null);
      expect(shown()).toEqual([]);
      return null;
    });
    expect(shown().map(([, title]) => title)).toEqual(["Savepoint: it goes on"]);
  });

  it("says what stays unknown, of an operation that is asked for no more and of a request without an answer", async () => {
    for (const error of [new UnknownOutcomeError("There is no such operation"), new ApiError(0, "stop", ["There is no such operation"])]) {
      const notices = new Notices();
      await notices.follow("Stop with savepoint", async () => Promise.reject(error));
      expect(notices.list().map((each) => [each.kind, each.title, each.detail])).toEqual([
        [
          "pending",
          "Stop with savepoint: its state is not known",
          "It may be done all the same: look at Checkpoints and the state of the job. Reason: There is no such operation",
        ],
      ]);
    }
  });

  it("says nothing of a missing token, for which there is the login page", () => {
    const notices = new Notices();
    notices.report("a", "Jobs", new ApiError(401, "jobs/overview", ["token"]), null);
    expect(notices.list()).toEqual([]);
  });
});
