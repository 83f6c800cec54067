/** A flame graph on a canvas: click a frame to widen it, click one below to go back. The table beside it says the same. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { DataTable } from "../components/DataTable";
import { Search } from "../components/Basics";
import { count, percent } from "../model/format";
import { color, onThemeChange } from "../model/theme";
import type { FlameNode } from "../types";
import { flameBoxes, hotFrames, isForeign, type FlameBox } from "./flameLayout";

const ROW = 20;
const HOT_MAX = 50;

export function FlameGraph({ root }: { root: FlameNode }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [focus, setFocus] = useState<readonly string[]>([]);
  const [search, setSearch] = useState("");
  const [over, setOver] = useState<FlameBox | null>(null);
  const [width, setWidth] = useState(800);
  const boxes = useMemo(() => flameBoxes(root, focus), [root, focus]);
  const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
  const needle = search.toLowerCase();
  useEffect(() => {
    const parent = canvas.current?.parentElement;
    if (parent === null || parent === undefined) {
      return;
    }
    const observer = new ResizeObserver(() => setWidth(Math.max(200, parent.clientWidth)));
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const paint = (): void => draw(canvas.current, boxes, width, depth, needle, over);
    paint();
    return onThemeChange(paint);
  }, [boxes, width, depth, needle, over]);
  const find = (event: MouseEvent): FlameBox | null => {
    const bounds = canvas.current?.getBoundingClientRect();
    if (bounds === undefined) {
      return null;
    }
    const x = (event.clientX - bounds.left) / bounds.width;
    const row = Math.floor((event.clientY - bounds.top) / ROW);
    return boxes.find((box) => box.depth === row && x >= box.begin && x < box.begin + box.width) ?? null;
  };
  const hot = useMemo(() => hotFrames(root, HOT_MAX), [root]);
  const shown = over ?? boxes.find((box) => box.path.length === focus.length) ?? null;
  return (
    <div>
      <div class="toolbar">
        <Search label="Mark frames" value={search} onChange={setSearch} />
        <button type="button" class="button" disabled={focus.length === 0} onClick={() => setFocus([])}>
          Whole graph
        </button>
        <span class="quiet-text">
          <span class="swatch own" aria-hidden="true" /> your program <span class="swatch foreign" aria-hidden="true" /> runtime and
          libraries
        </span>
      </div>
      <p class="flame-name" role="status">
        {shown === null ? "" : `${shown.node.name}: ${count(shown.node.value)} samples, ${percent(shown.node.value / (root.value || 1))}`}
      </p>
      <div class="flame-box">
        <canvas
          ref={canvas}
          class="flame"
          role="img"
          aria-label={`Flame graph of ${count(root.value)} samples; the table of frames says the same`}
          onMouseMove={(event) => setOver(find(event))}
          onMouseLeave={() => setOver(null)}
          onClick={(event) => {
            const box = find(event);
            if (box !== null) {
              setFocus(box.path);
            }
          }}
        />
      </div>
      <DataTable
        caption="Frames in which samples were taken"
        rows={hot}
        rowKey={(frame) => frame.name}
        sort={{ column: 1, descending: true }}
        columns={[
          { title: "frame", wraps: true, cell: (frame) => <code>{frame.name}</code>, order: (frame) => frame.name },
          {
            title: "in itself",
            cell: (frame) => `${count(frame.self)} (${percent(frame.self / (root.value || 1))})`,
            order: (frame) => frame.self,
            numeric: true,
          },
          {
            title: "with what it calls",
            cell: (frame) => `${count(frame.total)} (${percent(frame.total / (root.value || 1))})`,
            order: (frame) => frame.total,
            numeric: true,
          },
        ]}
      />
    </div>
  );
}

function draw(
  canvas: HTMLCanvasElement | null,
  boxes: readonly FlameBox[],
  width: number,
  depth: number,
  needle: string,
  over: FlameBox | null,
): void {
  const context = canvas?.getContext("2d");
  if (canvas === null || context === null || context === undefined) {
    return;
  }
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = depth * ROW * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${depth * ROW}px`;
  context.scale(ratio, ratio);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  const [own, foreign, marked, ink, frame] = ["--flame-own", "--flame-foreign", "--flame-marked", "--flame-text", "--text"].map(color);
  for (const box of boxes) {
    const [x, y, wide] = [box.begin * width, box.depth * ROW, box.width * width];
    const isMarked = needle !== "" && box.node.name.toLowerCase().includes(needle);
    context.fillStyle = (isMarked ? marked : isForeign(box.node.name) || box.depth === 0 ? foreign : own) ?? "";
    context.fillRect(x, y, Math.max(0.5, wide - 1), ROW - 1);
    if (over !== null && over.node === box.node && over.depth === box.depth) {
      context.strokeStyle = frame ?? "";
      context.strokeRect(x + 0.5, y + 0.5, Math.max(0.5, wide - 2), ROW - 2);
    }
    if (wide > 28) {
      context.save();
      context.beginPath();
      context.rect(x + 3, y, wide - 8, ROW);
      context.clip();
      context.fillStyle = ink ?? "";
      context.fillText(box.node.name, x + 4, y + ROW / 2);
      context.restore();
    }
  }
}
