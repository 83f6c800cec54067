/** Turns a tree of frames into boxes, and into the list of frames in which samples were taken. */

import type { FlameNode } from "../types";

export interface FlameBox {
  node: FlameNode;
  depth: number;
  /** Begin and width as shares of what is shown. */
  begin: number;
  width: number;
  path: readonly string[];
}

/** Boxes narrower than this share of the picture cannot be seen. */
const WIDTH_MIN = 0.0005;
export const BOXES_MAX = 20_000;

/** Lays out what lies below `focus`, the path of names from the root to the frame that fills the width. */
export function flameBoxes(root: FlameNode, focus: readonly string[]): FlameBox[] {
  const boxes: FlameBox[] = [];
  let node = root;
  const path: string[] = [];
  for (const name of focus) {
    boxes.push({ node, depth: path.length, begin: 0, width: 1, path: [...path] });
    const child = node.children.find((each) => each.name === name);
    if (child === undefined) {
      boxes.pop();
      break;
    }
    path.push(name);
    node = child;
  }
  place(node, path.length, 0, 1, path, boxes);
  return boxes;
}

function place(root: FlameNode, depth: number, begin: number, width: number, path: readonly string[], boxes: FlameBox[]): void {
  const stack = [{ node: root, depth, begin, width, path }];
  while (stack.length > 0 && boxes.length < BOXES_MAX) {
    const box = stack.pop() as FlameBox;
    boxes.push(box);
    let at = box.begin;
    const children = [...box.node.children].sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const child of children) {
      const share = box.node.value > 0 ? (box.width * child.value) / box.node.value : 0;
      if (share >= WIDTH_MIN) {
        stack.push({ node: child, depth: box.depth + 1, begin: at, width: share, path: [...box.path, child.name] });
      }
      at += share;
    }
  }
}

export interface HotFrame {
  name: string;
  /** Samples in which it was the innermost frame. */
  self: number;
  /** Samples in which it was on the stack. */
  total: number;
}

export function hotFrames(root: FlameNode, limit: number): HotFrame[] {
  const found = new Map<string, HotFrame>();
  const visit = (node: FlameNode, above: ReadonlySet<string>): void => {
    const inner = node.children.reduce((sum, child) => sum + child.value, 0);
    const entry = found.get(node.name) ?? { name: node.name, self: 0, total: 0 };
    entry.self += Math.max(0, node.value - inner);
    if (!above.has(node.name)) {
      entry.total += node.value; // A recursion counts once.
    }
    found.set(node.name, entry);
    const names = new Set(above).add(node.name);
    for (const child of node.children) {
      visit(child, names);
    }
  };
  for (const child of root.children) {
    visit(child, new Set());
  }
  return [...found.values()]
    .filter((frame) => frame.self > 0)
    .sort((a, b) => b.self - a.self)
    .slice(0, limit);
}

/** Whether a frame is of the runtime or of a library, as against the user's program. */
export function isForeign(name: string): boolean {
  return /^(headrace|pyspark|pyarrow|numpy|threading|asyncio|selectors|queue|concurrent|<frozen|_bootstrap)\b/.test(name);
}
