/** Charts of metrics of a job or of one of its vertices: live ones that the reader picks, and those since the start. */

import type { JSX } from "preact";

import * as api from "../../api";
import { MetricCharts, type Sample } from "../../charts/MetricCharts";
import { MetricsOverTime } from "../../charts/MetricsOverTime";
import { Panel, Select } from "../../components/Basics";
import { shortName } from "../../diagnosis/facts";
import { number } from "../../model/format";
import { link } from "../../model/router";
import { TERMINAL, type AggregatedMetric, type MetricValue } from "../../types";
import type { JobProps } from "./JobPage";

const VERTEX_DEFAULTS = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "busyTimeMsPerSecond",
  "backPressuredTimeMsPerSecond",
];
const JOB_DEFAULTS = ["lastCheckpointDuration", "lastCheckpointSize", "numRestarts", "numberOfCompletedCheckpoints"];

export function JobMetricsPage({ job, route }: JobProps): JSX.Element {
  const asked = route.query.get("vertex") ?? "";
  const vertexId = job.vertices.some((vertex) => vertex.id === asked) ? asked : "";
  const { jid } = job;
  const ended = TERMINAL.includes(job.state);
  return (
    <>
      <Panel title="Metrics">
        <div class="toolbar">
          <Select
            label="Of"
            value={vertexId}
            options={[["", "the whole job"], ...job.vertices.map((vertex) => [vertex.id, shortName(vertex.name)] as const)]}
            onChange={(value) => {
              location.hash = link(["job", jid, "metrics"], { vertex: value === "" ? undefined : value });
            }}
          />
        </div>
        {ended ? (
          <MetricsOverTime job={job} vertexId={vertexId} />
        ) : vertexId === "" ? (
          <MetricCharts
            key="job"
            kind="job"
            keys={[jid]}
            defaults={JOB_DEFAULTS}
            names={async (signal) => (await api.jobMetrics(jid, undefined, signal)).map((metric) => metric.id)}
            values={async (names, signal) => singleValues(await api.jobMetrics(jid, names, signal))}
          />
        ) : (
          <MetricCharts
            key={vertexId}
            kind="vertex"
            keys={[jid, vertexId]}
            defaults={VERTEX_DEFAULTS}
            names={async (signal) => (await api.vertexSubtaskMetrics(jid, vertexId, undefined, signal)).map((metric) => metric.id)}
            values={async (names, signal) => spreadValues(await api.vertexSubtaskMetrics(jid, vertexId, names, signal))}
          />
        )}
      </Panel>
      {ended ? null : (
        <Panel title="Since the start">
          <MetricsOverTime job={job} vertexId={vertexId} />
        </Panel>
      )}
    </>
  );
}

export function singleValues(metrics: readonly MetricValue[]): Map<string, Sample> {
  return new Map(metrics.map((metric) => [metric.id, { value: number(metric.value) }]));
}

function spreadValues(metrics: readonly AggregatedMetric[]): Map<string, Sample> {
  return new Map(
    metrics.map((metric) => {
      const total: Record<string, number | null> = /^num/.test(metric.id) ? { "all subtasks": number(metric.sum) } : {};
      return [metric.id, { ...total, most: number(metric.max), average: number(metric.avg), least: number(metric.min) }];
    }),
  );
}
