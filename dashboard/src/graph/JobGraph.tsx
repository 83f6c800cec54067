/** The plan of a job with what flows on it: vertices by how they spend their time, edges by rate, waits and event time. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { State, TimeBar } from "../components/Basics";
import type { VertexFacts } from "../diagnosis/facts";
import { BACK_PRESSURED_MS, BUSY_MS } from "../diagnosis/slowness";
import { duration, share, short, watermark, watermarkLag, NO_WATERMARK } from "../model/format";
import type { Job } from "../types";
import { edgePath, layoutGraph, VERTEX_HEIGHT, VERTEX_WIDTH, type PlacedEdge } from "./graphLayout";

const ZOOM_MIN = 0.2;
const ZOOM_MAX = 1.5;
/** Height of a line of an edge's label, and about the width of a letter. */
const LINE = 14;
const LETTER = 6.6;

export function JobGraph(props: {
  job: Job;
  facts: readonly VertexFacts[];
  selected: string | null;
  onSelect(id: string): void;
}): JSX.Element {
  const { job, facts } = props;
  const box = useRef<HTMLDivElement>(null);
  const [zoom, setZoom] = useState<number | null>(null);
  const [room, setRoom] = useState(0);
  // The plan of a job does not change: its layout is made once.
  const shape = JSON.stringify(job.plan.nodes.map((node) => [node.id, (node.inputs ?? []).map((input) => [input.id, input.num])]));
  const graph = useMemo(() => layoutGraph(job.plan), [shape]);
  const byId = useMemo(() => new Map(facts.map((vertex) => [vertex.id, vertex])), [facts]);
  useEffect(() => {
    const element = box.current;
    if (element === null) {
      return;
    }
    const observer = new ResizeObserver(() => setRoom(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const fit = room === 0 || graph.width === 0 ? 1 : Math.max(0.5, Math.min(1, room / graph.width));
  const scale = zoom ?? fit;
  const change = (factor: number): void => setZoom(Math.max(ZOOM_MIN, Math.min(ZOOM_MAX, scale * factor)));
  const move = (id: string, key: string): void => {
    const edge = graph.edges.find((each) => (key === "ArrowRight" ? each.from : each.to) === id);
    const target = edge === undefined ? null : key === "ArrowRight" ? edge.to : edge.from;
    if (target !== null) {
      box.current?.querySelector<HTMLElement>(`[data-vertex="${CSS.escape(target)}"]`)?.focus();
    }
  };
  // In the order in which records travel, which is the order of the Tab key.
  const order = new Map(job.vertices.map((vertex, index) => [vertex.id, index]));
  const vertices = [...graph.vertices].sort((a, b) => (order.get(a.id) ?? 0) - (order.get(b.id) ?? 0));
  return (
    <div class="graph">
      <div class="graph-tools" role="group" aria-label="Size of the graph">
        <button type="button" class="button" aria-label="Smaller" onClick={() => change(0.8)}>
          −
        </button>
        <button type="button" class="button" aria-label="Larger" onClick={() => change(1.25)}>
          +
        </button>
        <button type="button" class="button" onClick={() => setZoom(null)}>
          Fit
        </button>
      </div>
      <div ref={box} class="graph-scroll" role="group" aria-label="Job graph; arrow keys follow the edges">
        <div class="graph-size" style={{ width: `${graph.width * scale}px`, height: `${graph.height * scale}px` }}>
          <div class="graph-plane" style={{ width: `${graph.width}px`, height: `${graph.height}px`, transform: `scale(${scale})` }}>
            <svg width={graph.width} height={graph.height} aria-hidden="true">
              <defs>
                <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
                  <path d="M0,0 L8,4 L0,8 z" class="arrow" />
                </marker>
              </defs>
              {graph.edges.map((edge) => (
                <Edge key={edge.key} edge={edge} edges={graph.edges} byId={byId} now={job.now} />
              ))}
            </svg>
            {vertices.map((place) => {
              const vertex = byId.get(place.id);
              return vertex === undefined ? null : (
                <button
                  key={place.id}
                  type="button"
                  data-vertex={place.id}
                  class={`vertex ${vertexKind(vertex)}`}
                  aria-pressed={props.selected === place.id}
                  aria-label={vertexLabel(vertex, graph.edges, byId, job.now)}
                  style={{ left: `${place.x}px`, top: `${place.y}px`, width: `${VERTEX_WIDTH}px`, height: `${VERTEX_HEIGHT}px` }}
                  onClick={() => props.onSelect(place.id)}
                  onKeyDown={(event) => {
                    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
                      event.preventDefault();
                      move(place.id, event.key);
                    }
                  }}
                >
                  <span class="vertex-name" title={vertex.name}>
                    {vertex.name}
                  </span>
                  <span class="vertex-line">
                    <State state={vertex.status} />
                    <span>parallelism {vertex.parallelism}</span>
                  </span>
                  <TimeBar
                    busy={share(vertex.busy.avg)}
                    backPressured={share(vertex.backPressured.avg)}
                    idle={share(vertex.idle.avg)}
                  />
                  <span class="vertex-line quiet-text" title="of the busiest subtask, and of the one that waits most">
                    <span>busy {percentOf(vertex.busy.max)}</span>
                    <span>waits {percentOf(vertex.backPressured.max)}</span>
                  </span>
                </button>
              );
            })}
          </div>
        </div>
      </div>
      <ul class="legend">
        <li>
          <span class="swatch busy" aria-hidden="true" />
          busy
        </li>
        <li>
          <span class="swatch back-pressured" aria-hidden="true" />
          back-pressured: waits for room
        </li>
        <li>
          <span class="swatch idle" aria-hidden="true" />
          idle: waits for input
        </li>
      </ul>
    </div>
  );
}

function Edge(props: {
  edge: PlacedEdge;
  edges: readonly PlacedEdge[];
  byId: ReadonlyMap<string, VertexFacts>;
  now: number;
}): JSX.Element {
  const { edge } = props;
  const live = edgeFigures(edge, props.edges, props.byId, props.now);
  const kind = live.waitMs >= 5 * BACK_PRESSURED_MS ? "high" : live.waitMs >= BACK_PRESSURED_MS ? "low" : "ok";
  const width = 1.5 + (live.rate === null || live.rate <= 0 ? 0 : Math.min(5, Math.log10(1 + live.rate)));
  const lines = [
    edge.ship,
    live.rate === null ? null : `${short(live.rate)} rec/s`,
    kind === "ok" ? null : `waits ${Math.round(live.waitMs)} ms/s`,
    live.eventTime,
  ].filter((text) => text !== null);
  const labelWidth = 12 + LETTER * Math.max(...lines.map((line) => line.length));
  const top = edge.label.y - (LINE * lines.length + 6) / 2;
  return (
    <g class={`edge ${kind}`}>
      <path d={edgePath(edge.points)} style={{ strokeWidth: `${width}px` }} marker-end="url(#arrow)" />
      <rect x={edge.label.x - labelWidth / 2} y={top} width={labelWidth} height={LINE * lines.length + 6} rx="5" />
      {lines.map((text, index) => (
        <text key={index} x={edge.label.x} y={top + LINE * (index + 1)} text-anchor="middle" class={index === 0 ? "ship" : ""}>
          {text}
        </text>
      ))}
    </g>
  );
}

export interface EdgeFigures {
  /** Records per second; null where they cannot be told apart from those of other edges. */
  rate: number | null;
  /** How long its sender waits for room, in milliseconds per second. */
  waitMs: number;
  /** Watermark of its receiver: how far it is behind, or where it stands. */
  eventTime: string | null;
}

export function edgeFigures(
  edge: PlacedEdge,
  edges: readonly PlacedEdge[],
  byId: ReadonlyMap<string, VertexFacts>,
  now: number,
): EdgeFigures {
  const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
  const alone = edges.filter((each) => each.to === edge.to).length === 1;
  const only = edges.filter((each) => each.from === edge.from).length === 1;
  const rate = alone ? (to?.recordsIn.sum ?? null) : only ? (from?.recordsOut.sum ?? null) : null;
  const mark = to?.watermark.min ?? null;
  const lag = watermarkLag(mark, now);
  const eventTime =
    mark === null || mark <= NO_WATERMARK ? null : lag === null ? watermark(mark) : `lag ${duration(lag)}`;
  return { rate, waitMs: from?.backPressured.max ?? 0, eventTime };
}

function vertexKind(vertex: VertexFacts): string {
  if (vertex.status !== "RUNNING") {
    return vertex.status === "FAILED" ? "is-failed" : "is-still";
  }
  if ((vertex.backPressured.max ?? 0) >= 5 * BACK_PRESSURED_MS) {
    return "is-back-pressured";
  }
  if ((vertex.busy.max ?? 0) >= BUSY_MS) {
    return "is-busy";
  }
  return (vertex.backPressured.max ?? 0) >= BACK_PRESSURED_MS ? "is-waiting" : "is-easy";
}

function vertexLabel(
  vertex: VertexFacts,
  edges: readonly PlacedEdge[],
  byId: ReadonlyMap<string, VertexFacts>,
  now: number,
): string {
  const inputs = edges
    .filter((edge) => edge.to === vertex.id)
    .map((edge) => {
      const { rate, eventTime } = edgeFigures(edge, edges, byId, now);
      return `from ${byId.get(edge.from)?.name ?? edge.from}: ${short(rate)} records per second${eventTime === null ? "" : `, ${eventTime}`}`;
    });
  return [
    `${vertex.name}, ${vertex.status}, parallelism ${vertex.parallelism}`,
    `busy ${percentOf(vertex.busy.max)}, back-pressured ${percentOf(vertex.backPressured.max)}`,
    ...inputs,
  ].join("; ");
}

function percentOf(ms: number | null): string {
  return ms === null ? "–" : `${Math.round(ms / 10)} %`;
}
