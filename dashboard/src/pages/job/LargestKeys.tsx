/** The largest keys of a vertex's state, counted when the reader asks: a hot key is often among them. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import * as api from "../../api";
import { Empty, Panel } from "../../components/Basics";
import { DataTable } from "../../components/DataTable";
import { messageOf } from "../../model/errors";
import { bytes, count, percent } from "../../model/format";
import { link } from "../../model/router";
import type { Job } from "../../types";
import type { VertexFacts } from "../../diagnosis/facts";

/** Operators of the vertex whose states are counted: a chain of more is rare. */
const OPERATORS_MAX = 4;
const KEYS_SHOWN = 10;

interface LargeKey {
  operator: string;
  operatorId: string;
  state: string;
  table: string;
  key: string;
  rows: number;
  size: number;
  share: number;
}

export function LargestKeys({ job, vertex }: { job: Job; vertex: VertexFacts }): JSX.Element {
  const [keys, setKeys] = useState<readonly LargeKey[] | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const read = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      setKeys(await largestKeys(job.jid, vertex.name));
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Panel
      title="Its largest keys"
      actions={
        <button type="button" class="button" disabled={busy} onClick={() => void read()}>
          {busy ? "Counting …" : keys === null ? "Count them" : "Count again"}
        </button>
      }
    >
      {keys === null ? (
        <p class="quiet-text">Its tasks count their state between two batches when you ask; a hot key is often among the largest.</p>
      ) : keys.length === 0 ? (
        <Empty>Its operators keep no state by key.</Empty>
      ) : (
        <DataTable
          caption="Keys with the most bytes"
          rows={keys}
          rowKey={(each) => `${each.operatorId} ${each.table} ${each.state} ${each.key}`}
          columns={[
            { title: "key", wraps: true, cell: (each) => <span class="value">{each.key}</span> },
            {
              title: "state",
              wraps: true,
              cell: (each) => (
                <a href={link(["job", job.jid, "state"], { operator: each.operatorId, table: each.table, state: each.state })}>
                  {each.operator}, {each.state}
                </a>
              ),
            },
            { title: "rows", cell: (each) => count(each.rows), order: (each) => each.rows, numeric: true },
            { title: "size", cell: (each) => bytes(each.size), order: (each) => each.size, numeric: true },
            { title: "share of the state", cell: (each) => percent(each.share), order: (each) => each.share, numeric: true },
          ]}
        />
      )}
      <p class="problem" role="alert">
        {problem}
      </p>
    </Panel>
  );
}

async function largestKeys(jobid: string, vertex: string): Promise<LargeKey[]> {
  const { operators } = await api.jobState(jobid, undefined);
  const found: LargeKey[] = [];
  for (const operator of operators.filter((each) => each.vertex === vertex).slice(0, OPERATORS_MAX)) {
    for (const state of (await api.operatorState(jobid, operator.id, undefined)).states) {
      const of = { operator: operator.uid || operator.name, operatorId: operator.id, state: state.name, table: state.table };
      found.push(...state.keys.map((each) => ({ ...of, ...each, share: state.size === 0 ? 0 : each.size / state.size })));
    }
  }
  return found.sort((a, b) => b.size - a.size).slice(0, KEYS_SHOWN);
}
