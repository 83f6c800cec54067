import { describe, expect, it } from "vitest";

import type { Plan } from "../types";
import { edgePath, layoutGraph, VERTEX_WIDTH } from "./graphLayout";

const PLAN: Plan = {
  jid: "j",
  name: "p",
  type: "STREAMING",
  nodes: [
    { id: "sink", parallelism: 1, description: "", inputs: [{ id: "map", num: 0, exchange: "pipelined_bounded", ship_strategy: "HASH" }] },
    {
      id: "map",
      parallelism: 1,
      description: "",
      inputs: [
        { id: "source", num: 0, exchange: "pipelined_bounded", ship_strategy: "FORWARD" },
        { id: "source", num: 1, exchange: "pipelined_bounded", ship_strategy: "BROADCAST" },
      ],
    },
    { id: "source", parallelism: 1, description: "" },
  ],
};

describe("layoutGraph", () => {
  it("places every vertex to the right of its inputs", () => {
    const placed = layoutGraph(PLAN);
    const x = Object.fromEntries(placed.vertices.map((vertex) => [vertex.id, vertex.x]));
    expect((x["source"] ?? 0) + VERTEX_WIDTH).toBeLessThan(x["map"] ?? 0);
    expect((x["map"] ?? 0) + VERTEX_WIDTH).toBeLessThan(x["sink"] ?? 0);
  });

  it("keeps two edges between the same vertices apart", () => {
    expect(layoutGraph(PLAN).edges.map((edge) => edge.ship).sort()).toEqual(["BROADCAST", "FORWARD", "HASH"]);
  });

  it("leaves out an input that is not in the plan", () => {
    const [sink] = PLAN.nodes;
    expect(layoutGraph({ ...PLAN, nodes: [sink as Plan["nodes"][0]] }).edges).toEqual([]);
  });

  it("places a thousand vertices", () => {
    const nodes = Array.from({ length: 1000 }, (_, index) => ({
      id: `v${index}`,
      parallelism: 10,
      description: "",
      inputs: index < 10 ? [] : [{ id: `v${index - 10}`, num: 0, exchange: "", ship_strategy: "HASH" }],
    }));
    expect(layoutGraph({ ...PLAN, nodes }).vertices).toHaveLength(1000);
  });
});

describe("edgePath", () => {
  it("begins and ends at the ends", () => {
    expect(edgePath([{ x: 0, y: 0 }, { x: 5, y: 5 }, { x: 10, y: 0 }])).toBe("M0,0 Q5,5 10,0");
    expect(edgePath([{ x: 0, y: 0 }, { x: 5, y: 5 }])).toBe("M0,0 L5,5");
    expect(edgePath([])).toBe("");
  });
});
