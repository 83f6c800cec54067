import { describe, expect, it } from "vitest";

import { formatMetric } from "./formatMetric";

describe("formatMetric", () => {
  it("writes values as their names say", () => {
    const names = [
      "busyTimeMsPerSecond",
      "Status.JVM.Memory.Heap.Used",
      "Status.Shuffle.Netty.UsedMemory",
      "Status.Shuffle.Netty.UsedMemorySegments",
      "lastCheckpointSize",
      "mailboxQueueSize",
      "lastCheckpointDuration",
      "uptime",
      "checkpointStartDelayNanos",
      "numRecordsInPerSecond",
      "Status.JVM.CPU.Time",
    ];
    expect(names.map((name) => formatMetric(name, 2_000_000))).toEqual([
      "2000000 ms/s",
      "1.91 MiB",
      "1.91 MiB",
      "2 M",
      "1.91 MiB",
      "2 M",
      "33 min 20 s",
      "33 min 20 s",
      "2 ms",
      "2 M",
      "2 M",
    ]);
  });

  it("writes an unknown value as a dash", () => {
    expect(formatMetric("uptime", null)).toBe("–");
  });
});
