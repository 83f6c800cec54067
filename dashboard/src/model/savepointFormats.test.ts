import { describe, expect, it } from "vitest";

import { FORMATS, kindOf, snapshotKind } from "./savepointFormats";

describe("kindOf", () => {
  it("tells the format of a savepoint beside its type", () => {
    expect(kindOf({ checkpoint_type: "SAVEPOINT", savepointFormat: "CANONICAL" })).toBe("savepoint, canonical");
    expect(kindOf({ checkpoint_type: "SYNC_SAVEPOINT", savepointFormat: "NATIVE" })).toBe("sync savepoint, native");
  });

  it("tells the type alone of a checkpoint, which has no format to choose", () => {
    expect(kindOf({ checkpoint_type: "UNALIGNED_CHECKPOINT", savepointFormat: null })).toBe("unaligned checkpoint");
  });
});

describe("FORMATS", () => {
  it("begins with the default of the server", () => {
    expect(FORMATS.map(([format]) => format)).toEqual(["CANONICAL", "NATIVE"]);
  });
});

describe("snapshotKind", () => {
  it("names the format of a savepoint, also of one that the job was restored from", () => {
    const kinds = (["checkpoint", "savepoint", "restored"] as const).flatMap((kind) =>
      ([null, "CANONICAL", "NATIVE"] as const)
        .filter((format) => kind === "restored" || (kind === "checkpoint") === (format === null))
        .map((format) => snapshotKind({ kind, "savepoint-format": format })),
    );
    expect(kinds).toEqual([
      "checkpoint",
      "savepoint, canonical",
      "savepoint, native",
      "restored from checkpoint",
      "restored from savepoint, canonical",
      "restored from savepoint, native",
    ]);
  });
});
