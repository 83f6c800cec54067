import { describe, expect, it } from "vitest";

import { bytes, duration, msPerSecond, number, short, watermark, watermarkLag } from "./format";

describe("format", () => {
  it("writes sizes with the unit that leaves few digits", () => {
    expect([0, 1023, 1536, 5 * 1024 ** 3].map(bytes)).toEqual(["0 B", "1,023 B", "1.5 KiB", "5 GiB"]);
    expect(bytes(-1)).toBe("–");
  });

  it("writes rates shortly", () => {
    expect([0, 12.34, 999, 12_345, 1_234_567].map(short)).toEqual(["0", "12", "999", "12.3 k", "1.23 M"]);
  });

  it("writes durations with two units at most", () => {
    expect([0, 999, 1500, 60_000, 61_000, 3_660_000, 90_000_000].map(duration)).toEqual([
      "0 ms",
      "999 ms",
      "1.5 s",
      "1 min",
      "1 min 1 s",
      "1 h 1 min",
      "1 d 1 h",
    ]);
  });

  it("writes parts of a millisecond where there are few", () => {
    expect([null, 0, 0.54, 12.3].map(msPerSecond)).toEqual(["–", "0 ms/s", "0.5 ms/s", "12 ms/s"]);
  });

  it("takes the text NaN for no number", () => {
    expect([number("NaN"), number(undefined), number("12.5"), number(3)]).toEqual([null, null, 12.5, 3]);
  });

  it("tells no watermark yet, the end of the input and a time apart", () => {
    expect(watermark(Number("-9223372036854775808"))).toBe("none yet");
    expect(watermark(Number("9223372036854775807"))).toBe("end of input");
    expect(watermark(Date.UTC(2026, 10, 25, 1, 0, 0))).toBe("2026-11-25 01:00:00");
    expect(watermark(Date.UTC(2026, 10, 25, 1, 0, 0, 250))).toBe("2026-11-25 01:00:00.250");
  });

  it("tells the lag only where event time is near the clock", () => {
    const now = Date.UTC(2026, 10, 25);
    expect(watermarkLag(now - 5000, now)).toBe(5000);
    expect(watermarkLag(Date.UTC(2013, 0, 1), now)).toBeNull();
    expect(watermarkLag(Number("-9223372036854775808"), now)).toBeNull();
  });
});
