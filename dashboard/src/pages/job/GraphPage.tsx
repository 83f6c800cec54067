/** The job graph with live edges, the vertices in a table, and a drawer with the subtasks of one. */

import type { JSX } from "preact";
import { useContext, useMemo } from "preact/hooks";

import * as api from "../../api";
import { MetricsOverTime } from "../../charts/MetricsOverTime";
import { Panel, State, TimeBar } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { JobGraph } from "../../graph/JobGraph";
import { VertexDrawer } from "../../graph/VertexDrawer";
import { Cluster } from "../../model/cluster";
import { bytes, count, duration, share, short } from "../../model/format";
import { vertexFacts } from "../../model/jobFacts";
import { usePoll } from "../../model/poll";
import { link } from "../../model/router";
import { TERMINAL } from "../../types";
import type { JobProps } from "./JobPage";
import { useLive } from "./useLive";

export function GraphPage({ job, route, rates }: JobProps): JSX.Element {
  const cluster = useContext(Cluster);
  const live = useLive(job, rates);
  const facts = useMemo(() => vertexFacts(job, live.data ?? new Map()), [job, live.data]);
  const accumulators = usePoll("Accumulators", (signal) => api.jobAccumulators(job.jid, signal), [job.jid]);
  const selected = route.query.get("vertex");
  const select = (id: string | null): void => {
    location.hash = link(["job", job.jid, "overview"], { vertex: id ?? undefined });
  };
  const byId = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const users = accumulators.data?.["user-task-accumulators"] ?? [];
  return (
    <>
      <Panel title="Graph">
        <JobGraph job={job} facts={facts} selected={selected} onSelect={(id) => select(id === selected ? null : id)} />
      </Panel>
      {selected !== null && byId.has(selected) ? (
        <VertexDrawer
          key={selected}
          job={job}
          vertexId={selected}
          subtask={route.query.get("subtask")}
          hasTaskManagers={cluster?.features["web-history"] !== true}
          onClose={() => select(null)}
        />
      ) : null}
      <Panel title="Vertices">
        <DataTable
          caption="Vertices, sources first"
          rows={facts}
          rowKey={(vertex) => vertex.id}
          current={selected}
          columns={[
            {
              title: "vertex", wraps: true,
              cell: (vertex) => <a href={link(["job", job.jid, "overview"], { vertex: vertex.id })}>{vertex.name}</a>,
              order: (vertex) => vertex.name,
            },
            { title: "state", cell: (vertex) => <State state={vertex.status} />, order: (vertex) => vertex.status },
            {
              title: "time",
              cell: (vertex) => (
                <TimeBar
                  busy={share(vertex.busy.avg)}
                  backPressured={share(vertex.backPressured.avg)}
                  idle={share(vertex.idle.avg)}
                />
              ),
              order: (vertex) => vertex.busy.max,
            },
            { title: "parallelism", cell: (vertex) => vertex.parallelism, order: (vertex) => vertex.parallelism, numeric: true },
            { title: "in/s", cell: (vertex) => short(vertex.recordsIn.sum), order: (vertex) => vertex.recordsIn.sum, numeric: true },
            { title: "out/s", cell: (vertex) => short(vertex.recordsOut.sum), order: (vertex) => vertex.recordsOut.sum, numeric: true },
            { title: "received", cell: (vertex) => count(vertex.readRecords), order: (vertex) => vertex.readRecords, numeric: true },
            { title: "sent", cell: (vertex) => count(vertex.writeRecords), order: (vertex) => vertex.writeRecords, numeric: true },
            {
              title: "bytes in",
              cell: (vertex) => bytes(byId.get(vertex.id)?.metrics["read-bytes"]),
              order: (vertex) => byId.get(vertex.id)?.metrics["read-bytes"] ?? 0,
              numeric: true,
            },
            {
              title: "ran for",
              cell: (vertex) => duration(byId.get(vertex.id)?.duration),
              order: (vertex) => byId.get(vertex.id)?.duration ?? 0,
              numeric: true,
            },
          ]}
        />
      </Panel>
      {TERMINAL.includes(job.state) ? (
        <Panel title="Metrics over time">
          <MetricsOverTime job={job} vertexId={selected ?? ""} />
        </Panel>
      ) : null}
      {users.length === 0 ? null : (
        <Panel title="Accumulators">
          <DataTable
            caption="Accumulators of the program"
            rows={users}
            rowKey={(row) => row.name}
            columns={[
              { title: "name", wraps: true, cell: (row) => row.name, order: (row) => row.name },
              { title: "type", cell: (row) => row.type },
              { title: "value", wraps: true, cell: (row) => row.value },
            ]}
          />
        </Panel>
      )}
    </>
  );
}
