/** Rates of every vertex from totals of two answers of the job's route: one request, however many vertices there are. */

import { UNKNOWN, type Spread } from "../diagnosis/facts";
import type { IOMetrics, Job } from "../types";
import { number } from "./format";

interface Sample {
  time: number;
  totals: readonly number[];
}

export interface Rates {
  busy: Spread;
  backPressured: Spread;
  idle: Spread;
  recordsIn: Spread;
  recordsOut: Spread;
}

export class VertexRates {
  private readonly samples = new Map<string, Sample>();
  private readonly rates = new Map<string, Rates>();

  /** Takes an answer. Totals are measured less often than pages ask: one that says the same again changes nothing. */
  observe(job: Job): void {
    for (const vertex of job.vertices) {
      const totals = totalsOf(vertex.metrics);
      const before = this.samples.get(vertex.id);
      if (before !== undefined && before.totals.every((total, index) => total === totals[index])) {
        continue;
      }
      this.samples.set(vertex.id, { time: job.now, totals });
      const begins = before === undefined || totals.some((total, index) => total < (before.totals[index] ?? 0));
      if (begins || job.now <= before.time) {
        this.rates.delete(vertex.id); // A first answer, or one after a restart.
        continue;
      }
      const grown = totals.map((total, index) => total - (before.totals[index] ?? 0));
      this.rates.set(vertex.id, ratesOf(grown, job.now - before.time));
    }
  }

  of(vertexId: string): Rates | undefined {
    return this.rates.get(vertexId);
  }
}

function totalsOf(metrics: IOMetrics): readonly number[] {
  return [
    number(metrics["accumulated-busy-time"]) ?? 0,
    metrics["accumulated-backpressured-time"],
    metrics["accumulated-idle-time"],
    metrics["read-records"],
    metrics["write-records"],
  ];
}

function ratesOf(grown: readonly number[], elapsedMs: number): Rates {
  const [busy = 0, backPressured = 0, idle = 0, read = 0, written = 0] = grown;
  const spent = busy + backPressured + idle;
  const share = (part: number): Spread => {
    const ms = spent > 0 ? (part / spent) * 1000 : null;
    return ms === null ? UNKNOWN : { min: null, max: ms, avg: ms, sum: null };
  };
  const rate = (records: number): Spread => ({ min: null, max: null, avg: null, sum: (records / elapsedMs) * 1000 });
  return {
    busy: share(busy),
    backPressured: share(backPressured),
    idle: share(idle),
    recordsIn: rate(read),
    recordsOut: rate(written),
  };
}
