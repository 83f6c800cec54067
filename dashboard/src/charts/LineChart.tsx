/** A chart of values over time, drawn by uPlot; the newest or the greatest values stand below it in words. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { clock, time } from "../model/format";
import { color, onThemeChange } from "../model/theme";

export interface Line {
  label: string;
  values: readonly (number | null)[];
}

const HEIGHT = 150;
/** As many points are drawn as points: a line of so few may be too short to be seen. */
const POINTS_DRAWN = 30;
const DAY_S = 86_400;

export function LineChart(props: {
  title: string;
  /** Epoch milliseconds. */
  times: readonly number[];
  lines: readonly Line[];
  /** What the legend tells of each line: its last value, or the greatest one where all is over. */
  tells?: "last" | "greatest";
  format(value: number | null): string;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const labels = props.lines.map((line) => line.label).join("\n");
  const data = (): uPlot.AlignedData => [props.times.map((time) => time / 1000), ...props.lines.map((line) => [...line.values])];
  const latest = useRef(data);
  latest.current = data;
  const format = useRef(props.format);
  format.current = props.format;
  useEffect(() => {
    const element = box.current;
    if (element === null) {
      return;
    }
    const draw = (): void => {
      chart.current?.destroy();
      const axis = { stroke: color("--muted"), grid: { stroke: color("--border"), width: 1 }, ticks: { show: false } };
      chart.current = new uPlot(
        {
          width: Math.max(200, element.clientWidth),
          height: HEIGHT,
          // Room for the half of the last time that is written below the axis.
          padding: [null, 26, null, null],
          legend: { show: false },
          cursor: { show: true, y: false },
          axes: [
            { ...axis, size: 30, space: 90, values: (_, ticks) => timesOf(ticks) },
            { ...axis, size: (_, texts) => widthOf(texts), values: (_, ticks) => ticks.map((tick) => format.current(tick)) },
          ],
          scales: { y: { range: (_, least, greatest) => yRange(least, greatest) } },
          series: [
            {},
            ...props.lines.map((line, index) => ({
              label: line.label,
              stroke: color(`--series-${index % 8}`),
              width: 2,
              points: { show: (chart: uPlot) => chart.data[0].length <= POINTS_DRAWN, size: 5 },
            })),
          ],
        },
        latest.current(),
        element,
      );
    };
    draw();
    const observer = new ResizeObserver(() => {
      const width = Math.max(200, element.clientWidth);
      if (chart.current !== null && chart.current.width !== width) {
        chart.current.setSize({ width, height: HEIGHT });
      }
    });
    observer.observe(element);
    const unsubscribe = onThemeChange(draw);
    return () => {
      observer.disconnect();
      unsubscribe();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [labels]);
  useEffect(() => chart.current?.setData(data()), [props.times, props.lines]);
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} class="chart-canvas" aria-hidden="true" />
      <ul class="legend">
        {props.lines.map((line, index) => (
          <li key={line.label}>
            <span class={`swatch series-${index % 8}`} aria-hidden="true" />
            {line.label} {props.tells === "greatest" ? "at most " : ""}
            <strong>{props.format(props.tells === "greatest" ? greatest(line.values) : (line.values.at(-1) ?? null))}</strong>
          </li>
        ))}
      </ul>
    </figure>
  );
}

function greatest(values: readonly (number | null)[]): number | null {
  return values.reduce((most, value) => (most === null || (value !== null && value > most) ? value : most), null);
}

/** Pixels that the texts of an axis need; as little as most need where there are none. */
function widthOf(texts: readonly string[] | null): number {
  return Math.max(64, ...(texts ?? []).map((text) => 14 + 7 * text.length));
}

/** Times of day, with the day where there are several. */
function timesOf(ticks: readonly number[]): string[] {
  const hasDays = (ticks.at(-1) ?? 0) - (ticks[0] ?? 0) >= DAY_S;
  return ticks.map((tick) => (hasDays ? time(tick * 1000).slice(5, 16) : clock(tick * 1000)));
}

function yRange(least: number | null, greatest: number | null): [number, number] {
  if (least === null || greatest === null || !Number.isFinite(least) || !Number.isFinite(greatest)) {
    return [0, 1];
  }
  const low = least >= 0 && least < greatest * 0.7 ? 0 : least;
  return low === greatest ? [Math.min(0, low), greatest === 0 ? 1 : greatest + Math.abs(greatest) * 0.1] : [low, greatest + (greatest - low) * 0.08];
}
