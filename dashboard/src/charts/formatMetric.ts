/** Writes the value of a metric by what its name says of the unit. */

import { bytes, duration, msPerSecond, short, time, watermark } from "../model/format";

type Format = (value: number) => string;

/** How values are written, by the end of a metric's name; the first that fits counts. */
const FORMATS: readonly (readonly [RegExp, Format])[] = [
  [/Watermark$/, watermark],
  [/Timestamp$/, time],
  [/TimeMsPerSecond$/, msPerSecond],
  [/Nanos$/, (value) => duration(value / 1e6)],
  [/(CPU\.Time|Segments|Length|QueueSize)$/, short],
  [/(Memory\.[A-Za-z]+\.(Used|Committed|Max|Total)|Memory|MemoryUsed|TotalCapacity|Bytes|Size|ProcessedData|PersistedData)$/, bytes],
  [/(Ms|Time|time|Duration|Lag)$/, duration],
];

export function formatMetric(name: string, value: number | null): string {
  if (value === null) {
    return "–";
  }
  const format = FORMATS.find(([pattern]) => pattern.test(name))?.[1] ?? short;
  return format(value);
}
