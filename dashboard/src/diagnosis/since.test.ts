import { describe, expect, it } from "vitest";

import type { MetricsHistory } from "../types";
import { sinceSentence, sinceWhen } from "./since";

function history(...waits: (number | null)[]): MetricsHistory {
  const none = waits.map(() => null);
  return {
    jid: "a",
    interval: 5000,
    timestamps: waits.map((_, point) => 1000 * (point + 1)),
    vertices: [
      {
        id: "source",
        name: "source",
        "records-in-per-second": none,
        "records-out-per-second": none,
        busy: none,
        "back-pressured": waits,
        "watermark-lag": none,
      },
    ],
  };
}

describe("sinceWhen", () => {
  const since = (...waits: (number | null)[]) => sinceWhen(history(...waits), ["source"], "back-pressured", 100);

  it("finds the first of the last points in a row", () => {
    expect(since(0, 900, 10, 500, null, 800)).toEqual({ at: 4000, isFirst: false });
  });

  it("says that it may have begun before the first point", () => {
    expect(since(null, 300, 800)).toEqual({ at: 2000, isFirst: false });
    expect(since(300, 800)).toEqual({ at: 1000, isFirst: true });
  });

  it("knows nothing where the last known point is below the limit, or there is none", () => {
    expect(since(900, 20, null)).toBeNull();
    expect(since(null)).toBeNull();
    expect(sinceWhen(null, ["source"], "back-pressured", 100)).toBeNull();
    expect(sinceWhen(history(900), ["other"], "back-pressured", 100)).toBeNull();
  });

  it("is told with the time that has passed", () => {
    expect(sinceSentence({ at: 1000, isFirst: false }, 7000)).toMatch(/^It has been so since 1970-01-01 .*, 6 s ago\.$/);
    expect(sinceSentence({ at: 1000, isFirst: true }, 7000)).toContain("the first point");
  });
});
