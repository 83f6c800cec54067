/** The figures of every vertex, polled; of an ended job, what its answer holds. */

import { usePoll, type Polled } from "../../model/poll";
import { loadLive, type LiveFigures } from "../../model/jobFacts";
import { TERMINAL, type Job } from "../../types";

export function useLive(job: Job): Polled<Map<string, LiveFigures>> {
  const ended = TERMINAL.includes(job.state);
  return usePoll(
    "Figures of the vertices",
    async (signal) => (ended ? new Map<string, LiveFigures>() : loadLive(job, signal)),
    [job.jid, ended, runningKey(job)],
    ended ? "once" : "interval",
  );
}

/** Changes when other vertices run than before. */
export function runningKey(job: Job): string {
  return job.vertices.map((vertex) => ((vertex.tasks.RUNNING ?? 0) > 0 ? "1" : "0")).join("");
}
