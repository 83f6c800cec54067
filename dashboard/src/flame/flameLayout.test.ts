import { describe, expect, it } from "vitest";

import type { FlameNode } from "../types";
import { flameBoxes, hotFrames, isForeign } from "./flameLayout";

function frame(name: string, value: number, children: FlameNode[] = []): FlameNode {
  return { name, value, children };
}

const TREE = frame("root", 100, [frame("a.run:1", 80, [frame("user.slow:9", 60), frame("b.f:2", 10)]), frame("c.g:3", 20)]);

describe("flameBoxes", () => {
  it("gives each frame the width of its samples, beside its brothers", () => {
    const boxes = Object.fromEntries(flameBoxes(TREE, []).map((box) => [box.node.name, [box.depth, box.begin, box.width]]));
    expect(boxes).toEqual({
      root: [0, 0, 1],
      "a.run:1": [1, 0, 0.8],
      "b.f:2": [2, 0, 0.1],
      "user.slow:9": [2, 0.1, 0.6],
      "c.g:3": [1, 0.8, 0.2],
    });
  });

  it("widens the frame in focus and keeps those that it was called from", () => {
    const boxes = flameBoxes(TREE, ["a.run:1", "user.slow:9"]);
    expect(boxes.map((box) => [box.node.name, box.depth, box.width])).toEqual([
      ["root", 0, 1],
      ["a.run:1", 1, 1],
      ["user.slow:9", 2, 1],
    ]);
  });

  it("shows as much of a focus as there still is", () => {
    const names = flameBoxes(TREE, ["a.run:1", "gone"]).map((box) => box.node.name);
    expect(names).toEqual(["root", "a.run:1", "user.slow:9", "b.f:2"]);
  });

  it("leaves out frames too narrow to see", () => {
    const boxes = flameBoxes(frame("root", 10_000, [frame("wide", 9_999), frame("thin", 1)]), []);
    expect(boxes.map((box) => box.node.name)).toEqual(["root", "wide"]);
  });
});

describe("hotFrames", () => {
  it("counts samples in the frame itself, most first, and a recursion once", () => {
    const tree = frame("root", 10, [frame("f", 10, [frame("f", 6), frame("g", 3)])]);
    expect(hotFrames(tree, 9)).toEqual([
      { name: "f", self: 7, total: 10 },
      { name: "g", self: 3, total: 3 },
    ]);
  });
});

describe("isForeign", () => {
  it("tells the runtime from the user's program", () => {
    expect(["headrace.task.run:1", "orders.parse:42", "headraces.f:1"].map(isForeign)).toEqual([true, false, false]);
  });
});
