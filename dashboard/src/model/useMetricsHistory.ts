/** The metrics of a job over time, asked for once a minute: points are seconds to minutes apart, and the answer may be large. */

import { useRef } from "preact/hooks";

import * as api from "../api";
import { TERMINAL, type Job, type MetricsHistory } from "../types";
import { usePoll } from "./poll";

const MINUTE_MS = 60_000;

export function useMetricsHistory(job: Job): { data: MetricsHistory | undefined; failed: boolean } {
  const minute = TERMINAL.includes(job.state) ? job.state : Math.floor(job.now / MINUTE_MS);
  const { data, failed } = usePoll("Metrics over time", (signal) => api.metricsHistory(job.jid, signal), [job.jid, minute], "once");
  const kept = useRef<MetricsHistory | undefined>(undefined);
  if (data !== undefined) {
    kept.current = data;
  }
  // The answer of the minute before stands until the next one is here.
  return { data: data ?? (kept.current?.jid === job.jid ? kept.current : undefined), failed };
}
