import { describe, expect, it } from "vitest";

import { ApiError } from "../api";
import { messageOf } from "./errors";

describe("messageOf", () => {
  it("takes the line of an answer that says something", () => {
    expect(messageOf(new ApiError(500, "jobs", ["Internal server error.", "KeyError: 'x'\n at y"]))).toBe("KeyError: 'x'");
  });

  it("leaves the class of an error out, unless there is nothing else", () => {
    expect(messageOf(new Error("The disk is full."))).toBe("The disk is full.");
    expect(messageOf(new TypeError())).toBe("TypeError");
  });

  it("writes out what is no error", () => {
    expect(messageOf("no answer")).toBe("no answer");
  });
});
