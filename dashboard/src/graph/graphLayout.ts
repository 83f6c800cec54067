/** Places the vertices of a plan in layers from left to right, and the edges between them. */

import dagre from "@dagrejs/dagre";

import type { Plan } from "../types";

export interface PlacedVertex {
  id: string;
  x: number;
  y: number;
}

export interface PlacedEdge {
  key: string;
  from: string;
  to: string;
  ship: string;
  points: readonly { x: number; y: number }[];
  /** Where its label stands. */
  label: { x: number; y: number };
}

export interface PlacedGraph {
  width: number;
  height: number;
  vertices: readonly PlacedVertex[];
  edges: readonly PlacedEdge[];
}

export const VERTEX_WIDTH = 250;
export const VERTEX_HEIGHT = 118;
const LABEL_WIDTH = 136;
const LABEL_HEIGHT = 48;
/** Above this, the exact ranking takes seconds. */
const EXACT_MAX = 300;

export function layoutGraph(plan: Plan): PlacedGraph {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({
    rankdir: "LR",
    nodesep: 36,
    ranksep: 40,
    marginx: 12,
    marginy: 12,
    ranker: plan.nodes.length > EXACT_MAX ? "longest-path" : "network-simplex",
  });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of plan.nodes) {
    graph.setNode(node.id, { width: VERTEX_WIDTH, height: VERTEX_HEIGHT });
  }
  const ids = new Set(plan.nodes.map((node) => node.id));
  const ships = new Map<string, string>();
  for (const node of plan.nodes) {
    for (const input of node.inputs ?? []) {
      if (ids.has(input.id)) {
        const key = `${input.id}>${node.id}#${input.num}`;
        ships.set(key, input.ship_strategy);
        graph.setEdge(input.id, node.id, { width: LABEL_WIDTH, height: LABEL_HEIGHT, labelpos: "c" }, key);
      }
    }
  }
  dagre.layout(graph);
  const size = graph.graph();
  return {
    width: size.width ?? 0,
    height: size.height ?? 0,
    vertices: plan.nodes.map((node) => {
      const { x, y } = graph.node(node.id) as { x: number; y: number };
      return { id: node.id, x: x - VERTEX_WIDTH / 2, y: y - VERTEX_HEIGHT / 2 };
    }),
    edges: graph.edges().map((edge) => {
      const placed = graph.edge(edge) as { points: { x: number; y: number }[]; x: number; y: number };
      const key = edge.name ?? `${edge.v}>${edge.w}`;
      return {
        key,
        from: edge.v,
        to: edge.w,
        ship: ships.get(key) ?? "",
        points: placed.points,
        label: { x: placed.x, y: placed.y },
      };
    }),
  };
}

/** Draws a smooth line through points: straight at its ends, rounded between. */
export function edgePath(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (first === undefined || rest.length === 0) {
    return "";
  }
  let path = `M${round(first.x)},${round(first.y)}`;
  for (let index = 0; index < rest.length - 1; index++) {
    const [corner, next] = [rest[index], rest[index + 1]];
    if (corner !== undefined && next !== undefined) {
      const last = index === rest.length - 2;
      const end = last ? next : { x: (corner.x + next.x) / 2, y: (corner.y + next.y) / 2 };
      path += ` Q${round(corner.x)},${round(corner.y)} ${round(end.x)},${round(end.y)}`;
    }
  }
  if (rest.length === 1) {
    path += ` L${round(rest[0]?.x ?? 0)},${round(rest[0]?.y ?? 0)}`;
  }
  return path;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
